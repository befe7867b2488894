"""The files that an operator copies, and the page about them: units, image, settings, proxy."""

import re
import shlex
from configparser import RawConfigParser
from pathlib import Path

import yaml

from kesin.engine.worker import GRACE_S
from kesin.foundation.settings import Settings, variable
from kesin.store.open import open_store
from kesin.web.service import Service
from kesin.workloads import workloads
from tests.docs.pages import DOCS, ROOT
from tests.docs.test_commands import missing_word
from tests.tables import table

DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
UNITS = sorted(DEPLOY.rglob("*.service"))
DEFAULTS = {
    variable(name): "" if field.default is None else str(field.default) for name, field in Settings.model_fields.items()
}
KNOWN = set(DEFAULTS)
OF_WORKLOADS = ("KESIN_OCI_", "KESIN_PDF_", "KESIN_OPTIPLAN_")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
OURS = sorted(name for name, container in COMPOSE.items() if container["image"] == "kesin")
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


def unit(path: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[method-assign,assignment]  # names have capitals
    parser.read_string(path.read_text("utf-8"))
    return parser


def service(path: Path) -> dict[str, str]:
    return dict(unit(path)["Service"])


def commands() -> dict[str, list[str]]:
    """Every command line of Kesin in these files, without the folder of the program."""
    lines = {path.name: shlex.split(service(path)["ExecStart"]) for path in UNITS}
    lines |= {f"compose {name}": list(COMPOSE[name]["command"]) for name in OURS}
    (words,) = re.findall(r"^CMD \[(.+)\]$", IMAGE, re.MULTILINE)
    lines["image"] = [word.strip(' "') for word in words.split(",")]
    return {place: [Path(words[0]).name, *words[1:]] for place, words in lines.items()}


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_every_variable_is_a_setting():
    texts = {path.name: path.read_text("utf-8") for path in [*FILES, DOCS / "service.md"]}
    names = {name: set(re.findall(r"KESIN_[A-Z_]*[A-Z]", text)) for name, text in texts.items()}
    assert {name: unknown for name, used in names.items() if (unknown := used - KNOWN)} == {}


def test_the_example_has_every_setting_with_its_default_and_a_sentence():
    text = (DEPLOY / "kesin.env.example").read_text("utf-8")
    lines = re.findall(r"^# .*[.…]\n#(KESIN_\w+)=(.*)$", text, re.MULTILINE)
    assert dict(lines) == DEFAULTS
    assert len(lines) == len(KNOWN)
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == [], "it sets nothing"
    assert defaults_on("reference/settings.md") == DEFAULTS


def defaults_on(page: str) -> dict[str, str]:
    text = (DOCS / page).read_text("utf-8")
    rows = re.findall(r"^\| `(KESIN_\w+)` \| (.*?) ?\| .+ \|$", text, re.MULTILINE)
    return {name: default.strip("`") for name, default in rows}


def test_the_page_of_the_service_lists_every_setting_that_is_not_a_workloads():
    shown = defaults_on("service.md")
    assert shown.pop("KESIN_DATABASE_URL") == "kesin.db` in it"
    others = {name for name in KNOWN if not name.startswith(OF_WORKLOADS)}
    assert shown == {name: DEFAULTS[name] for name in others - {"KESIN_DATABASE_URL"}}


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
    explained = set(re.findall(r"^\| `((?:kesin|ptf_admin)_\w+)` \|", pages, re.MULTILINE))
    assert explained == {name for name in metrics if not name.endswith("_created")}
    health = page.partition("## Health checks")[2].partition("\n## ")[0]
    assert checks == set(re.findall(r"^\| `([a-z]+)` \|", health, re.MULTILINE))


@table("path", UNITS)
def test_a_unit_is_complete_hardened_and_stops_in_time(path):
    assert set(unit(path).sections()) == {"Unit", "Service", "Install"}
    options = service(path)
    assert options["User"] == "kesin"
    assert options["StateDirectory"] == "kesin"
    assert options["Environment"] == f"KESIN_DATA_DIR=/var/lib/{options['StateDirectory']}"
    assert options["EnvironmentFile"] == "/etc/kesin/kesin.env"  # no '-': it must be there
    assert options["KillSignal"] == "SIGTERM"
    assert options["Restart"] == "on-failure"
    assert options["RestartPreventExitStatus"] == "2"
    assert {name: options.get(name) for name in HARDENED} == HARDENED
    renders = path.name != "kesin-sweep.service"  # the sandbox of Chromium needs more
    assert options["RestrictNamespaces"] == ("user pid net" if renders else "yes")
    assert options["SystemCallFilter"] == f"@system-service{' chroot' if renders else ''}"
    grace_s = max(GRACE_S, Settings.model_fields["grace_s"].default)
    waits = 2 if path.name == "kesin.service" else 1  # requests, then jobs
    assert seconds(options["TimeoutStopSec"]) > waits * grace_s


def test_every_command_exists_with_its_options():
    lines = commands()
    assert {words[0] for words in lines.values()} == {"kesin"}
    missing = {place: missing_word(words[1:]) for place, words in lines.items()}
    assert {place: words for place, words in missing.items() if words} == {}
    for place in ("kesin-sweep.service", "compose sweep"):
        assert lines[place][2:] == ["--every", "60"], "the sweeper has every queue"


def test_workers_and_the_sweeper_have_the_folder_of_the_service_and_more_time_than_the_grace_period():
    """The sweeper deletes expired PDFs: in a folder of its own it would find none."""
    folder = COMPOSE["kesin"]["volumes"]
    assert {name: COMPOSE[name].get("volumes") for name in OURS if name != "migrate"} == {
        "kesin": folder,
        "sweep": folder,
        "worker": folder,
    }
    grace_s = Settings.model_fields["grace_s"].default
    assert [name for name in OURS if seconds(COMPOSE[name]["stop_grace_period"]) <= 2 * grace_s] == []


def test_the_image_has_a_user_a_port_a_volume_a_health_check_and_copies_and_installs_what_exists():
    assert re.search(r"^FROM python:3\.12-slim$", IMAGE, re.MULTILINE)
    lines = IMAGE.splitlines()
    assert lines.index("USER kesin") > max(n for n, line in enumerate(lines) if "pip " in line)
    assert "EXPOSE 8000" in lines
    assert "VOLUME /data" in lines
    (probe,) = re.findall(r'CMD \["python", "-c", "(.+)"\]', IMAGE)
    compile(probe, "probe", "exec")
    assert "http://127.0.0.1:8000/health/live" in probe
    assert commands()["image"][2:] == ["--host", "0.0.0.0", "--port", "8000"]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", IMAGE, re.MULTILINE)
    paths = [path for line in copied for path in line.split()]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    [packages] = re.findall(r"`([^`]+)` for WeasyPrint", (DOCS / "pdf.md").read_text("utf-8"))
    assert [name for name in packages.split() if name not in IMAGE] == []


def test_the_files_contain_no_secret():
    secrets = re.compile(r"(PASSWORD|SECRET|SECRET_KEYS)(=|: )(?!\$\{|…|\n)")
    assert [path.name for path in FILES if secrets.search(path.read_text("utf-8"))] == []


def test_the_proxy_does_not_buffer_events():
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    ((pattern, options),) = re.findall(r"location ~ (\S+) \{(.+?)\}", text, re.DOTALL)
    assert re.search(pattern, "/api/queues/pdf/events")
    assert "proxy_buffering off;" in options
    for header in ("Host $http_host", "X-Forwarded-For $proxy_add_x_forwarded_for"):
        assert f"proxy_set_header {header};" in text
    assert "proxy_set_header X-Forwarded-Proto $scheme;" in text
    assert text.count("{") == text.count("}")
