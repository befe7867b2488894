"""Vendored files are as they were published, with their licences."""

import hashlib
import re
from importlib.resources import files

STATIC = files("kesin.web") / "static"
VENDOR = STATIC / "vendor"


def test_vendored_files_are_the_ones_that_were_published():
    page = (VENDOR / "README.md").read_text("utf-8")
    lines = re.findall(r"^([0-9a-f]{64})  (\S+)$", page, re.MULTILINE)
    published = {name: digest for digest, name in lines}
    code = {file.name for file in VENDOR.iterdir() if file.name.endswith((".js", ".css"))}
    assert published.keys() == code
    for name, digest in published.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest


def test_the_licences_they_name_are_beside_them():
    first = (VENDOR / "swagger-ui-bundle.js").read_text("utf-8").splitlines()[0]
    named = re.search(r"see (\S+\.LICENSE\.txt)", first)
    assert named
    for name in (named[1], "swagger-ui.LICENSE", "swagger-ui.NOTICE"):
        assert (VENDOR / name).is_file()


def test_the_scripts_of_every_page_come_as_one_file(world):
    page = world.client.get("/dashboard", headers=world.cookie(world.known("ayse", "viewer"))).text
    [path] = re.findall(r'<script src="([^"]+)"', page)
    answer = world.client.get(path)
    assert answer.headers["content-type"].startswith("text/javascript")
    own = [file for file in (STATIC / "dashboard").iterdir() if file.name.endswith(".js")]
    for file in (VENDOR / "htmx.min.js", VENDOR / "idiomorph-ext.min.js", *own):
        assert file.read_text("utf-8") in answer.text
    assert answer.text.startswith((VENDOR / "htmx.min.js").read_text("utf-8"))  # strict is ours
    assert world.client.post(path).status_code == 405
