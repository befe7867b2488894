"""Alert rules and dashboard: their metrics exist, and every alert leads to its runbook."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kesin.engine.queue import apply_changes
from kesin.foundation.settings import Settings
from kesin.lifecycle.model import Change
from kesin.store.open import open_store
from kesin.web.service import Service
from kesin.workloads import workloads
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.oci.operations import FAILED_SHARE_LIMIT, MIN_FINISHED_ROWS
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
PANELS = {panel["id"]: panel for panel in BOARD["panels"]}
TARGETS = [target for panel in PANELS.values() for target in panel["targets"]]
EXPRESSIONS = [item["expr"] for item in [*RULES, *TARGETS]]
BRACKETS = (("(", ")"), ("{", "}"), ("[", "]"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Iterator[dict[str, set[str]]]:
    """The samples on `/metrics` of a service, each with its labels."""
    folder = tmp_path_factory.mktemp("measured")
    store = open_store(str(folder / "kesin.db"))
    service = Service(Settings(data_dir=folder), store, workloads())
    service.metrics.start_sweeping()
    done = service.queues["oci"].enqueue({}).id
    service.queues["oci"].claim("test")
    apply_changes(service.queues["oci"], "ack", [Change(done)], actor="test")
    service.metrics.record_request("POST", "/pdf/jobs", 503, 0.01)
    page = service.metrics.page().decode()
    yield {
        name: set(re.findall(r'(\w+)="', labels))
        for name, labels in re.findall(r"^(\w+)(\{.*\})? \S+$", page, re.MULTILINE)
    }
    store.close()


def test_every_metric_and_label_of_alerts_and_dashboard_exists(measured):
    for expression in EXPRESSIONS:
        metrics = METRIC.findall(expression)
        assert metrics, expression
        for name, labels in metrics:
            assert name in measured, expression
            assert {label for label, _, _ in LABEL.findall(labels)} <= measured[name], expression
        groups = re.findall(r"by \(([^)]*)\)", expression)
        grouped = {label for group in groups for label in group.split(", ")}
        assert grouped <= set().union(*(measured[name] for name, _ in metrics)), expression


def test_every_value_of_a_label_exists():
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
    for alert, rule in RULE.items():
        for label, _, values in LABEL.findall(rule["expr"]):
            assert set(values.split("|")) <= known[label], alert


def test_every_alert_has_a_name_a_severity_a_summary_a_runbook_and_a_row_in_the_readme():
    assert len(RULE) == len(RULES)
    page = FOLDER / "README.md"
    assert set(re.findall(r"^\| `(\w+)` \|", page.read_text("utf-8"), re.MULTILINE)) == set(RULE)
    assert [link for link in links(page) if not (FOLDER / link.partition("#")[0]).exists()] == []
    for alert, rule in RULE.items():
        text = re.sub(r'"[^"]*"', "", rule["expr"])
        assert all(text.count(left) == text.count(right) for left, right in BRACKETS), alert
        assert rule["labels"]["severity"] in {"warning", "critical"}, alert
        assert rule["annotations"]["summary"], alert
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert not anchor or anchor in anchors(ROOT / path), alert
        assert alert in (ROOT / path).read_text("utf-8"), alert


def test_an_alert_and_a_site_warn_at_the_same_failed_share():
    expr = RULE["OciFailedShareHigh"]["expr"]
    assert f"> {FAILED_SHARE_LIMIT}\nand" in expr
    assert expr.strip().endswith(f">= {MIN_FINISHED_ROWS}")


def test_metrics_that_every_process_reports_alike_are_not_summed():
    within = re.compile(r"(max( by \([^)]*\))?\s*\(\s*((rate|increase)\()?|absent\()$")
    for expression in EXPRESSIONS:
        for metric in re.finditer("ptf_admin_pdf_", expression):
            assert within.search(expression[: metric.start()]), expression


def test_every_panel_has_an_id_and_a_position_of_its_own():
    assert len(PANELS) == len(BOARD["panels"])
    positions = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS.values()]
    assert len(set(positions)) == len(positions)
    assert all(panel["targets"] for panel in PANELS.values())
