"""What is imported without the extras, and what not before it is used."""

import json
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

from kesin.foundation.extras import LIBRARIES, extra_providing

ROOT = Path(__file__).parents[2]
EVERY = {name for names in LIBRARIES.values() for name in names}
# Where modules begin so, these extras may be wanted as soon as they are imported; nowhere else.
MAY_WANT = {
    "kesin.cli.demo.": {"web"},
    "kesin.store.transfer.copier_redis": {"redis"},
    "kesin.store.redis.": {"redis"},
    "kesin.store.transfer.dump_postgres": {"postgres"},
    "kesin.store.postgres.": {"postgres"},
    "kesin.web.": {"web"},
    "kesin.workloads.oci.": {"web", "oci"},
    "kesin.workloads.optiplan.": {"web"},
    "kesin.workloads.pdf.": {"web", "pdf", "redis", "s3"},
}
# Commands and rules of a trade are there with or without its libraries.
ALWAYS = (
    "kesin.store.postgres.reachability",
    "kesin.store.redis.program",
    *(f"kesin.workloads.{trade}.{part}" for trade in ("oci", "optiplan", "pdf")
      for part in ("advice", "cli", "lifecycle")),
)  # fmt: skip

WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            return None
        return super().find_spec(name, path, target)

sys.meta_path = [Without if one is PathFinder else one for one in sys.meta_path]
"""
IMPORT_ALL = """
import importlib, json, pkgutil
import kesin

failed = {}
for one in pkgutil.walk_packages(kesin.__path__, "kesin.", onerror=lambda name: None):
    if one.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(one.name)
    except ModuleNotFoundError as problem:
        failed[one.name] = problem.name.partition(".")[0]
print(json.dumps(failed))
"""
RUN = """
import json, sys
from contextlib import suppress
from kesin.cli import main

for words in (["--help"], ["--version"], ["lifecycle", "list"], ["jobs", "--help"]):
    sys.argv = ["kesin", *words]
    with suppress(SystemExit):
        main()
print(json.dumps(sorted(sys.modules)))
"""
SERVE = """
from pathlib import Path
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.sqlite.store import SqliteStore
from kesin.web.app import create_app
from kesin.web.service import Service
from kesin.workloads import built_in
from tests.web.client import Client

folder = Path(sys.argv[1])
store = SqliteStore(folder / "kesin.db")
service = Service(Settings(data_dir=folder), store, {one.name: one for one in built_in()})
client = Client(create_app(service))
service.start()
key = service.accounts.create_key(system_actor("test"), "test", ["admin"])[0]
who = {"x-api-key": key}
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
where = "/orders/1/import/xlsx?customer_phone=05321234567"
answers = [
    client.get("/health/ready"),
    client.post(where, content=b"PK", headers={"content-type": XLSX, **who}),
    client.get("/pdf/templates", headers=who),
]
service.stop()
print(([worker.queue.name for worker in service.workers], [one.text for one in answers]))
"""


def told(script: str, *words: object, missing: set[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"MISSING = {missing!r}\n{WITHOUT}\n{script}", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_any_extra_all_modules_are_there_but_those_that_stand_on_one():
    failed = json.loads(told(IMPORT_ALL, missing=EVERY))
    assert "kesin.web.app" in failed
    for module, library in failed.items():
        assert not module.startswith(ALWAYS), (module, library)
        allowed = next((may for start, may in MAY_WANT.items() if module.startswith(start)), set())
        assert extra_providing(library) in allowed, (module, library)


def test_commands_that_use_no_extra_import_none():
    loaded = set(json.loads(told(RUN, missing=set()).splitlines()[-1]))
    assert "kesin.cli.commands.lifecycle" in loaded
    assert [name for name in loaded if name.startswith("kesin.cli.demo.")] == []
    assert loaded & (EVERY | {"numpy", "PIL", "google", "grpc"}) == set()


def test_with_the_web_alone_the_service_runs_and_says_what_the_rest_needs(tmp_path):
    """A service that could not start without every trade would need all of them."""
    missing = EVERY - set(LIBRARIES["web"]) - {"httpx", "markupsafe"}  # the client's, and jinja2's
    workers, (ready, order, templates) = literal_eval(told(SERVE, tmp_path, missing=missing))
    assert workers == ["oci"]
    assert json.loads(ready)["status"] == "ok"
    assert json.loads(order)["error"] == {
        "code": "not_installed",
        "message": "this needs python_calamine: install it with `pip install 'kesin[optiplan]'`",
    }
    assert json.loads(templates)["error"]["code"] == "pdf_not_installed"
