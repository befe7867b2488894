"""The traceback of a failed handler: on the job's page, in the API and at the terminal."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from kesin import Job, Queue, Worker, open_store, task_lifecycle
from kesin.cli.root import app
from tests.web.conftest import World

CLICK = "Cj0KCQiA_click-of-ayse"


def stumble(job: Job) -> None:
    raise LookupError(f"no row for {job.payload['gclid']}")


@pytest.fixture(scope="module")
def failed(shared_world: World) -> str:
    job_id: str = shared_world.task.enqueue({"gclid": CLICK}).id
    Worker(shared_world.task, stumble).drain()
    for role in ("viewer", "operator"):
        shared_world.person(f"the-{role}", role, all_sites=True)
    return job_id


def traceback_of(world: World, job_id: str, **how: Any) -> str:
    response = world.client.get(f"/api/jobs/{job_id}", **how)
    assert response.status_code == 200
    [text] = [event["traceback"] for event in response.json()["events"] if event["traceback"]]
    assert isinstance(text, str)
    return text


def test_the_api_shows_it_with_the_event_and_masks_it_like_the_message(shared_world: World, failed: str):
    text = traceback_of(shared_world, failed, headers=shared_world.cookie("the-viewer"))
    assert "in stumble" in text
    assert CLICK not in text
    shown = traceback_of(shared_world, failed, headers=shared_world.key("read", "reveal"))
    assert CLICK in shown


def test_the_page_of_the_job_shows_it(shared_world: World, failed: str):
    headers = shared_world.cookie("the-viewer")
    page = shared_world.client.get(f"/dashboard/jobs/{failed}", headers=headers).text
    assert '<details class="fold"><summary>Traceback</summary>' in page
    assert "in stumble" in page
    assert CLICK not in page


def test_the_terminal_shows_it(tmp_path, monkeypatch):
    monkeypatch.setenv("KESIN_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("KESIN_DATABASE_URL", raising=False)
    store = open_store(tmp_path / "kesin.db")
    queue = Queue("work", task_lifecycle(), store)
    job_id = queue.enqueue({"gclid": "x"}).id
    Worker(queue, stumble).drain()
    store.close()
    shown = CliRunner().invoke(app, ["jobs", "show", job_id])
    assert shown.exit_code == 0
    assert "LookupError: no row for x" in shown.stdout
    assert "in stumble" in shown.stdout
    whole = json.loads(CliRunner().invoke(app, ["jobs", "show", job_id, "--json"]).stdout)
    assert "in stumble" in whole["events"][-1]["traceback"]
