"""What an operator copies: units, image, settings. Nothing in it that the code does not know."""

import re
import shlex
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest
import yaml

from kesin.engine.worker import GRACE_S
from kesin.foundation.settings import Settings, variable
from kesin.store.open import open_store
from kesin.web.service import Service
from kesin.workloads import workloads
from tests.docs.pages import DOCS, ROOT

DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
UNITS = sorted(DEPLOY.rglob("*.service"))
KNOWN = {variable(field) for field in Settings.model_fields}
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
OURS = sorted(name for name, one in COMPOSE.items() if one["image"] == "kesin")
IMAGE = (DEPLOY / "Containerfile").read_text("utf-8")
HARDENED = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "UMask": "0077",
}


def name_of(path: Path) -> str:
    return path.name


def unit(path: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#", ";"))
    parser.optionxform = str  # systemd's names have capitals
    parser.read_string(path.read_text("utf-8"))
    return parser


def service(path: Path) -> dict[str, str]:
    return dict(unit(path)["Service"])


def commands() -> dict[str, list[str]]:
    """Every command line of ours in these files, without the program's folder."""
    found = {path.name: shlex.split(service(path)["ExecStart"]) for path in UNITS}
    found |= {f"compose {name}": list(COMPOSE[name]["command"]) for name in OURS}
    words = re.search(r"^CMD \[(.+)\]$", IMAGE, re.MULTILINE)
    found["image"] = [word.strip(' "') for word in words[1].split(",")]
    return {where: [Path(words[0]).name, *words[1:]] for where, words in found.items()}


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def sample(field: str) -> str:
    """A setting's default as it is written down."""
    default = Settings.model_fields[field].default
    return "" if default is None else str(default)


@pytest.mark.parametrize("path", [*FILES, DOCS / "service.md"], ids=name_of)
def test_every_variable_named_is_a_setting(path):
    assert set(re.findall(r"KESIN_[A-Z_]*[A-Z]", path.read_text("utf-8"))) <= KNOWN


def test_the_example_has_every_setting_with_its_default_and_a_sentence():
    text = (DEPLOY / "kesin.env.example").read_text("utf-8")
    found = re.findall(r"^# .*[.…]\n#(KESIN_\w+)=(.*)$", text, re.MULTILINE)
    assert dict(found) == {variable(field): sample(field) for field in Settings.model_fields}
    assert len(found) == len(KNOWN)


def test_the_example_changes_nothing_as_it_is():
    lines = (DEPLOY / "kesin.env.example").read_text("utf-8").splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == []


def test_the_page_lists_every_setting_with_its_default():
    page = (DOCS / "service.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(KESIN_\w+)` \| (.*?) ?\| .+ \|$", page, re.MULTILINE))
    assert rows.pop("KESIN_DATABASE_URL") == "`kesin.db` in it"
    told = {name: default.strip("`") for name, default in rows.items()}
    expected = {variable(field): sample(field) for field in Settings.model_fields}
    assert told == {name: one for name, one in expected.items() if name != "KESIN_DATABASE_URL"}


def test_the_page_explains_every_metric_and_every_check(tmp_path):
    page = (DOCS / "service.md").read_text("utf-8")
    store = open_store(str(tmp_path / "kesin.db"))
    try:
        running = Service(Settings(data_dir=tmp_path), store, workloads())
        measured = running.metrics.page().decode()
        running.begin_stop()
        checks = set(running.checks())
    finally:
        store.close()
    metrics = set(re.findall(r"^# TYPE (\w+) ", measured, re.MULTILINE))
    pages = page + (DOCS / "pdf-operations.md").read_text("utf-8")
    told = set(re.findall(r"^\| `((?:kesin|ptf_admin)_\w+)` \|", pages, re.MULTILINE))
    assert told == {name for name in metrics if not name.endswith("_created")}
    health = page.partition("## Is it well?")[2].partition("\n## ")[0]
    assert checks == set(re.findall(r"^\| `([a-z]+)` \|", health, re.MULTILINE))


@pytest.mark.parametrize("path", UNITS, ids=name_of)
def test_a_unit_is_whole(path):
    parser = unit(path)
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    options = service(path)
    assert options["User"] == "kesin"
    assert options["StateDirectory"] == "kesin"
    assert options["Environment"] == f"KESIN_DATA_DIR=/var/lib/{options['StateDirectory']}"
    assert options["EnvironmentFile"] == "/etc/kesin/kesin.env"  # no '-': it must be there
    assert options["KillSignal"] == "SIGTERM"
    assert options["Restart"] == "on-failure"
    assert options["RestartPreventExitStatus"] == "2"
    assert {name: options.get(name) for name in HARDENED} == HARDENED
    draws = path.name != "kesin-sweep.service"  # with a Chromium, whose own sandbox needs more
    assert options["RestrictNamespaces"] == ("user pid net" if draws else "yes")
    assert options["SystemCallFilter"] == f"@system-service{' chroot' if draws else ''}"


@pytest.mark.parametrize("path", UNITS, ids=name_of)
def test_a_unit_gives_a_stop_more_time_than_the_grace(path):
    grace_s = max(GRACE_S, Settings.model_fields["grace_s"].default)
    waits = 2 if path.name == "kesin.service" else 1  # requests, then jobs
    assert seconds(service(path)["TimeoutStopSec"]) > waits * grace_s


@pytest.mark.parametrize("name", OURS)
def test_a_container_gets_more_time_than_the_grace(name):
    grace_s = Settings.model_fields["grace_s"].default
    assert seconds(COMPOSE[name]["stop_grace_period"]) > 2 * grace_s


@pytest.mark.parametrize(("where", "words"), commands().items(), ids=commands())
def test_a_command_exists_with_these_options(where, words):
    assert words[0] == "kesin"
    asked = subprocess.run(
        [sys.executable, "-m", "kesin.cli", words[1], "--help"],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert options <= set(re.findall(r"--[a-z-]+", asked.stdout))


@pytest.mark.parametrize("where", ["kesin-sweep.service", "compose sweep"])
def test_every_queue_is_swept_whatever_its_name(where):
    assert commands()[where][2:] == ["--every", "60"]


def test_whoever_works_on_files_has_the_folder_of_the_service():
    """The sweeper deletes PDFs: in a folder of its own it would find none, and the disk fills."""
    folder = COMPOSE["kesin"]["volumes"]
    assert {name: COMPOSE[name].get("volumes") for name in OURS if name != "migrate"} == {
        "kesin": folder,
        "sweep": folder,
        "worker": folder,
    }


def test_the_image_has_what_draws_without_a_browser():
    page = (DOCS / "pdf.md").read_text("utf-8")
    [packages] = re.findall(r"`([^`]+)` for WeasyPrint", page)
    assert [one for one in packages.split() if one not in IMAGE] == []


def test_the_image_runs_as_nobody_special_and_knows_whether_it_lives():
    assert re.search(r"^FROM python:3\.12-slim$", IMAGE, re.MULTILINE)
    lines = IMAGE.splitlines()
    assert lines.index("USER kesin") > max(n for n, one in enumerate(lines) if "pip " in one)
    assert "EXPOSE 8000" in lines
    assert "VOLUME /data" in lines
    probe = re.search(r'CMD \["python", "-c", "(.+)"\]', IMAGE)[1]
    compile(probe, "probe", "exec")
    assert "http://127.0.0.1:8000/health/live" in probe
    assert commands()["image"][2:] == ["--host", "0.0.0.0", "--port", "8000"]


def test_what_the_image_copies_is_there():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", IMAGE, re.MULTILINE)
    assert copied
    assert [one for line in copied for one in line.split() if not (ROOT / one).exists()] == []


def test_no_secret_stands_in_these_files():
    secrets = re.compile(r"(PASSWORD|SECRET|SECRET_KEYS)(=|: )(?!\$\{|…|\n)")
    assert [path.name for path in FILES if secrets.search(path.read_text("utf-8"))] == []


def test_the_proxy_does_not_hold_back_events():
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    events = re.search(r"location ~ (\S+) \{(.+?)\}", text, re.DOTALL)
    assert re.search(events[1], "/api/queues/pdf/events")
    assert "proxy_buffering off;" in events[2]
    for header in ("Host $http_host", "X-Forwarded-For $proxy_add_x_forwarded_for"):
        assert f"proxy_set_header {header};" in text
    assert "proxy_set_header X-Forwarded-Proto $scheme;" in text
    assert text.count("{") == text.count("}")
