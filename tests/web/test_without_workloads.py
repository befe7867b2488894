"""The service and the dashboard need no workload; a user's own queue is enough."""

from contextlib import closing

import pytest

from kesin import Queue, Workload, task_lifecycle
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.sqlite.store import SqliteStore
from kesin.web.app import create_app
from kesin.web.service import Service
from tests.web.client import Client

ADMIN = system_actor("test")


def test_the_service_runs_without_any_workload(tmp_path):
    with closing(SqliteStore(":memory:")) as store:
        Queue("emails", task_lifecycle(), store).enqueue({"to": "ada"})
        service = Service(Settings(data_dir=tmp_path), store, {}, work=False)
        key, _ = service.accounts.create_key(ADMIN, "looks", ["read"])
        client = Client(create_app(service))
        overview = client.get("/dashboard", headers={"x-api-key": key})
        assert (overview.status_code, "emails" in overview.text) == (200, True)
        page = client.get("/dashboard/queues/emails", headers={"x-api-key": key})
        assert page.status_code == 200
        assert client.get("/dashboard/pdf", headers={"x-api-key": key}).status_code == 404


def test_a_queue_made_after_the_start_is_known_at_once(tmp_path):
    with closing(SqliteStore(":memory:")) as store:
        service = Service(Settings(data_dir=tmp_path), store, {}, work=False)
        key, _ = service.accounts.create_key(ADMIN, "looks", ["read"])
        client = Client(create_app(service))
        looks = {"headers": {"x-api-key": key}}
        assert client.get("/api/queues/emails/stats", **looks).status_code == 404
        job_id = Queue("emails", task_lifecycle(), store).enqueue({"to": "ada"}).id
        assert client.get("/api/queues/emails/stats", **looks).json()["total"] == 1
        assert client.get(f"/api/jobs/{job_id}", **looks).status_code == 200


def test_pages_that_are_no_pages_are_refused_by_name(tmp_path):
    broken = Workload("lathe", lambda: task_lifecycle("lathe"), pages=lambda: "pages")
    with closing(SqliteStore(":memory:")) as store:
        service = Service(Settings(data_dir=tmp_path), store, {"lathe": broken}, work=False)
        with pytest.raises(TypeError, match="the pages of the workload lathe must be"):
            create_app(service)
