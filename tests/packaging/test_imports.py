"""Modules and commands without the libraries of the extras."""

import json
import subprocess
import sys
from ast import literal_eval

from kesin.foundation.extras import LIBRARIES, extra_providing
from tests.docs.pages import ROOT

EVERY = {name for names in LIBRARIES.values() for name in names}
HEAVY = {"numpy", "PIL", "google", "grpc"}  # come with the libraries
# The extras that modules with this beginning may import at once; no other module may.
ALLOWED = {
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
# Commands and lifecycles of a workload work with or without its libraries.
ALWAYS = (
    "kesin.store.postgres.reachability",
    "kesin.store.redis.program",
    *(f"kesin.workloads.{workload}.{part}" for workload in ("oci", "optiplan", "pdf")
      for part in ("advice", "cli", "lifecycle")),
)  # fmt: skip

WITHOUT = """
import sys
from importlib.machinery import PathFinder

attempted = set()

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        library = name.partition(".")[0]
        if library in MISSING:
            attempted.add(library)
            return None
        return super().find_spec(name, path, target)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""
RUN_COMMANDS_THEN_IMPORT_ALL = """
import importlib, json, pkgutil
from contextlib import suppress
import kesin
from kesin.cli import main

for words in (["--help"], ["--version"], ["lifecycle", "list"], ["jobs", "--help"]):
    sys.argv = ["kesin", *words]
    with suppress(SystemExit):
        main()
by_commands = {"loaded": sorted(sys.modules), "attempted": sorted(attempted)}
failed = {}
for module in pkgutil.walk_packages(kesin.__path__, "kesin.", onerror=lambda name: None):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        failed[module.name] = error.name.partition(".")[0]
print(json.dumps([by_commands, failed]))
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
workloads = {workload.name: workload for workload in built_in()}
service = Service(Settings(data_dir=folder), store, workloads)
client = Client(create_app(service))
service.start()
key = {"x-api-key": service.accounts.create_key(system_actor("test"), "test", ["admin"])[0]}
xlsx = {"content-type": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"}
order = "/orders/1/import/xlsx?customer_phone=05321234567"
ready = client.get("/health/ready")
imported = client.post(order, content=b"PK", headers={**key, **xlsx})
invoice = {"template_name": "invoice", "variables": {}}
of_pdf = [
    client.get("/pdf/templates", headers=key),
    client.get("/pdf/jobs", headers=key),
    client.post("/pdf/jobs", json=invoice, headers=key),
    client.post("/pdf/templates/invoice/preview", json={"variables": {}}, headers=key),
]
service.stop()
queues = [worker.queue.name for worker in service.workers]
slow = {"kesin.workloads.pdf.templating.library", "kesin.workloads.pdf.jobs.worker"}
loaded = slow & set(sys.modules)
refusals = [(response.status_code, response.json()["error"]) for response in of_pdf]
print((queues, sorted(loaded), ready.json()["status"], imported.json()["error"], refusals))
"""


def output_of(script: str, *words: object, missing: set[str]) -> str:
    """The last line that a script prints in a process without these libraries."""
    process = subprocess.run(
        [sys.executable, "-c", f"MISSING = {missing!r}\n{WITHOUT}\n{script}", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()[-1]


def test_without_any_extra_commands_run_and_only_modules_that_need_one_fail_to_import():
    printed = output_of(RUN_COMMANDS_THEN_IMPORT_ALL, missing=EVERY | HEAVY)
    by_commands, failed = json.loads(printed)
    assert by_commands["attempted"] == []
    assert "kesin.cli.commands.lifecycle" in by_commands["loaded"]
    assert [name for name in by_commands["loaded"] if name.startswith("kesin.cli.demo.")] == []
    assert "kesin.web.app" in failed
    for module, library in failed.items():
        assert not module.startswith(ALWAYS), (module, library)
        allowed = next((extras for begin, extras in ALLOWED.items() if module.startswith(begin)), ())
        assert extra_providing(library) in allowed, (module, library)


def test_with_the_extra_web_alone_the_service_runs_and_names_the_missing_extras(tmp_path):
    missing = EVERY - set(LIBRARIES["web"]) - {"httpx", "markupsafe"}  # for the client and jinja2
    printed = literal_eval(output_of(SERVE, tmp_path, missing=missing))
    queues, loaded, ready, order, of_pdf = printed
    assert (queues, loaded, ready) == (["oci", "oci_adjustments"], [], "ok")
    assert order == {
        "code": "not_installed",
        "message": "this needs python_calamine: install it with `pip install 'kesin[optiplan]'`",
    }
    for status, error in of_pdf:
        assert (status, error["code"]) == (503, "pdf_not_installed")
        assert "pip install 'kesin[pdf]'" in error["message"]
