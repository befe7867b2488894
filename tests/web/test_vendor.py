"""What is not ours lies here as it was published, with its licences."""

import hashlib
import re
from importlib.resources import files

VENDOR = files("kesin.web") / "static" / "vendor"


def test_vendored_files_are_the_ones_that_were_published():
    page = (VENDOR / "README.md").read_text("utf-8")
    lines = re.findall(r"^([0-9a-f]{64})  (\S+)$", page, re.MULTILINE)
    said = {name: digest for digest, name in lines}
    code = {one.name for one in VENDOR.iterdir() if one.name.endswith((".js", ".css"))}
    assert said.keys() == code
    for name, digest in said.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest


def test_the_licences_it_names_lie_beside_it():
    first = (VENDOR / "swagger-ui-bundle.js").read_text("utf-8").splitlines()[0]
    named = re.search(r"see (\S+\.LICENSE\.txt)", first)[1]
    for name in (named, "swagger-ui.LICENSE", "swagger-ui.NOTICE"):
        assert (VENDOR / name).is_file()
