"""The alert rules against the service: every metric is there, every alert says what to do."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kesin.foundation.settings import Settings
from kesin.lifecycle.model import Change
from kesin.store.open import open_store
from kesin.web.service import Service
from kesin.workloads import workloads
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.oci.operations import FAILED_SHARE_LIMIT
from kesin.workloads.pdf.jobs.store import PdfJobStatus
from tests.docs.pages import ROOT, anchors, links

FOLDER = ROOT / "monitoring"
FILES = sorted(FOLDER.glob("*.rules.yml"))
GROUPS = [group for file in FILES for group in yaml.safe_load(file.read_text("utf-8"))["groups"]]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
RULE = {rule["alert"]: rule for rule in RULES}
LABEL = re.compile(r'(\w+)(=~?)"([^"]*)"')
METRIC = re.compile(r"((?:kesin|ptf_admin)_\w+)(\{[^}]*\})?")
BOARD = json.loads((FOLDER / "pdf-dashboard.json").read_text("utf-8"))
PANELS = {one["id"]: one for one in BOARD["panels"]}


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Iterator[dict[str, set[str]]]:
    """What `/metrics` of a service shows: names of samples, each with its labels."""
    folder = tmp_path_factory.mktemp("measured")
    store = open_store(str(folder / "kesin.db"))
    service = Service(Settings(data_dir=folder), store, workloads())
    service.metrics.start_sweeping()
    done = service.queues["oci"].enqueue({}).id
    service.queues["oci"].claim("test")
    service.queues["oci"].apply("ack", [Change(done)], actor="test")
    service.metrics.record_request("POST", "/pdf/jobs", 503, 0.01)
    page = service.metrics.page().decode()
    yield {
        name: set(re.findall(r'(\w+)="', labels))
        for name, labels in re.findall(r"^(\w+)(\{.*\})? \S+$", page, re.MULTILINE)
    }
    store.close()


@pytest.mark.parametrize("alert", RULE)
def test_every_metric_and_label_of_an_alert_exists(alert, measured):
    in_page(RULE[alert]["expr"], measured)


@pytest.mark.parametrize("panel", PANELS)
def test_every_metric_and_label_of_the_dashboard_exists(panel, measured):
    for target in PANELS[panel]["targets"]:
        in_page(target["expr"], measured)


def in_page(told: str, measured: dict[str, set[str]]) -> None:
    named = METRIC.findall(told)
    assert named
    for name, labels in named:
        assert name in measured
        assert {label for label, _, _ in LABEL.findall(labels)} <= measured[name]
    grouped = {one for by in re.findall(r"by \(([^)]*)\)", told) for one in by.split(", ")}
    assert grouped <= set().union(*(measured[name] for name, _ in named))


@pytest.mark.parametrize("alert", RULE)
def test_every_state_and_move_of_an_alert_is_declared(alert):
    lifecycle = oci_lifecycle()
    known = {
        "queue": {"oci"},
        "state": set(lifecycle.state),
        "to_state": set(lifecycle.state),
        "move": {move.name for move in lifecycle.moves},
        "status": {*PdfJobStatus, "503"},
        "method": {"POST"},
        "route": {"/pdf/jobs"},
    }
    for label, _, values in LABEL.findall(RULE[alert]["expr"]):
        assert set(values.split("|")) <= known[label]


@pytest.mark.parametrize("alert", RULE)
def test_every_alert_leads_to_what_to_do(alert):
    rule = RULE[alert]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert (ROOT / path).is_file()
    assert not anchor or anchor in anchors(ROOT / path)
    assert alert in (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize("alert", RULE)
def test_every_expression_closes_what_it_opens(alert):
    told = re.sub(r'"[^"]*"', "", RULE[alert]["expr"])
    assert all(told.count(one) == told.count(other) for one, other in ("()", "{}", "[]"))


def test_every_alert_has_a_name_of_its_own_and_a_line_in_the_readme():
    assert len(RULE) == len(RULES)
    page = (FOLDER / "README.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(RULE)


def test_the_share_is_the_one_a_site_warns_at():
    assert RULE["OciFailedShareHigh"]["expr"].strip().endswith(f"> {FAILED_SHARE_LIMIT}")


def test_what_every_process_tells_alike_is_never_added_up_over_them():
    within = re.compile(r"(max( by \([^)]*\))?\s*\(\s*((rate|increase)\()?|absent\()$")
    targets = [target for panel in PANELS.values() for target in panel["targets"]]
    for told in (one["expr"] for one in [*RULES, *targets]):
        for found in re.finditer("ptf_admin_pdf_", told):
            assert within.search(told[: found.start()]), told


def test_every_panel_has_a_place_and_a_name_of_its_own():
    assert len(PANELS) == len(BOARD["panels"])
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in PANELS.values()]
    assert len(set(places)) == len(places)


def test_every_link_of_the_readme_leads_somewhere():
    page = FOLDER / "README.md"
    assert [one for one in links(page) if not (FOLDER / one).exists()] == []
