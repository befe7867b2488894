"""What a command imports before it does something: modules are counted, no time is taken."""

import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from tests.test_public_api import PUBLIC, homes

# What a library has as well: room for a newer version of it.
HELP_MODULES = 90
SERVE_MODULES = 850
WORKER_MODULES = 600
# Libraries that only some jobs, pages or stores need.
LATER = {"fpdf", "rich", "httpx", "lxml", "openpyxl", "pikepdf", "playwright", "psycopg", "pygments"}
LATER |= {"python_calamine", "redis", "rq", "segno", "weasyprint", "zxingcpp"}
WEB = {"anyio", "argon2", "babel", "fastapi", "jinja2", "prometheus_client", "starlette", "uvicorn"}


def imported(report: str) -> set[str]:
    """The modules that Python says it imported (`-X importtime`)."""
    lines = (line for line in report.splitlines() if line.startswith("import time:"))
    modules = {line.rpartition("|")[2].strip() for line in lines}
    return modules - {"rich"}  # structlog is kept from importing it


def run(*words: str, **env: str) -> set[str]:
    command = [sys.executable, "-X", "importtime", "-m", "kesin.cli", *words]
    shell = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(command, env={**shell, **env}, capture_output=True, text=True, check=True, timeout=120)
    return imported(done.stderr)


def top(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.starts
def test_the_help_imports_neither_the_engine_nor_what_it_needs():
    modules = run("--help")
    slow = {"asyncio", "inspect", "typer", "email", "pydantic", "pydantic_settings", "sqlite3", "structlog", "tomli"}
    assert top(modules) & (slow | LATER | WEB) == set()
    assert "importlib.metadata" not in modules
    assert not {name for name in modules if name.startswith(("kesin.engine", "kesin.store"))}
    assert modules.isdisjoint(home for name, home in homes() if name in PUBLIC)
    assert len(modules) <= HELP_MODULES


@pytest.mark.starts
def test_a_worker_imports_no_web_framework_before_its_first_claim(tmp_path: Path):
    (tmp_path / "work.py").write_text("def handle(job):\n    pass\n")
    words = ("worker", "emails", "--handler", "work:handle", "--lifecycle", "task", "--until-idle")
    modules = run(*words, KESIN_DATA_DIR=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert top(modules) & (LATER | WEB) == set()
    assert len(modules) <= WORKER_MODULES


@pytest.mark.starts
def test_the_service_listens_before_it_imports_what_only_some_requests_need(tmp_path: Path):
    command = [sys.executable, "-X", "importtime", "-m", "kesin.cli", "serve", "--port", "0"]
    env = {**os.environ, "KESIN_DATA_DIR": str(tmp_path), "KESIN_LOG": "json"}
    with subprocess.Popen([*command, "--no-workers"], env=env, stderr=subprocess.PIPE, text=True) as program:
        lines = list(takewhile(lambda line: '"listening"' not in line, program.stderr or ()))
        program.kill()  # before it imports the rest
    modules = imported("".join(lines))
    assert top(modules) & LATER == set()
    assert {"httptools", "uvloop"} <= top(modules)
    assert top(modules) & {"babel", "jinja2"} == set()
    assert not {name for name in modules if name.startswith("kesin.web.dashboard")}
    assert len(modules) <= SERVE_MODULES
