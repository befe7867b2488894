"""Where people see what an order waits for: the API, the pages, health and the doctor."""

from tests.web.conftest import ROOT
from tests.workloads.optiplan.floor import Floor


def blocked(floor: Floor) -> str:
    """An order whose files cannot be delivered: the machine's folder is away."""
    job_id = floor.running()
    floor.plan(job_id)
    floor.paths.inbox.rename(floor.paths.machine_drop_folder / "gone")
    floor.later()
    floor.later()
    assert floor.state(job_id) == "XML_READY"
    return job_id


def test_a_blocked_order_is_shown_everywhere_and_is_one_line_of_its_audit(own_floor: Floor):
    floor = own_floor
    job_id = floor.running()
    waits = floor.job_body(job_id)["waiting_for"]
    assert waits == {"what": "xml", "message": "its XML in the export folder", "blocked": False}
    assert floor.client.get("/health/ready").json()["checks"]["optiplan"]["ok"]
    floor.orders.cancel(ROOT, job_id)
    job_id = blocked(floor)
    body = floor.job_body(job_id)
    why = f"{floor.paths.machine_drop_folder} cannot be used: there is no inbox in it"
    assert body["waiting_for"] == {"what": "folder", "message": why, "blocked": True}
    assert (body["error_code"], body["error_message"]) == ("E_DROP_DIR_UNWRITABLE", why)
    assert body["advice"]["en"]["act"]
    check = floor.client.get("/health/ready").json()["checks"]["optiplan"]
    assert check == {"ok": False, "detail": "blocked orders: 1 (folder); see `kesin optiplan doctor`"}
    who = floor.cookie(floor.person("boss", "admin"))
    for page in ("/dashboard/optiplan", f"/dashboard/jobs/{job_id}"):
        assert "there is no inbox in it" in floor.client.get(page, headers=who).text, page
    looks = 3
    for _ in range(looks):
        floor.later(30)
    moves = [event.move for event in floor.queue.events(job_id)]
    assert moves.count("block") >= looks
    [line] = [line for line in floor.job_audit(job_id) if line["event_type"] == "JOB_BLOCKED"]
    assert "there is no inbox in it" in line["message"]
    details = floor.details(job_id, "JOB_BLOCKED")
    assert (details["errorCode"], details["count"]) == ("E_DROP_DIR_UNWRITABLE", moves.count("block"))
    assert details["since"] < line["created_at"]
    assert floor.event_types(job_id).count("STATE_XML_READY") == 1


def test_broken_settings_make_the_service_unready(floor: Floor):
    floor.workshop.rules()  # the first look writes the file
    assert floor.client.get("/health/ready").json()["checks"]["optiplan"]["ok"]
    for name in ("rules.json", "paths.json"):
        file = floor.settings.data_dir / name
        whole = file.read_text()
        file.write_text("{")
        answer = floor.client.get("/health/ready")
        file.write_text(whole)
        assert answer.status_code == 503
        detail = f"{name} cannot be used: see `kesin optiplan doctor`"
        assert answer.json()["checks"]["optiplan"] == {"ok": False, "detail": detail}


def test_wake_ups_without_news_are_one_line_and_the_history_stays_whole(floor: Floor):
    job_id = floor.running()
    for _ in range(5):
        floor.later()
    moves = [event.move for event in floor.queue.events(job_id)]
    assert moves[-12:] == ["claim", "wait"] * 6 or moves[-10:] == ["claim", "wait"] * 5
    path = f"/api/jobs/{job_id}"
    events = floor.get(path).json()["events"]
    assert [event["move"] for event in events[-2:]] == ["run", "wait"]
    assert (events[-1]["count"], events[-2]["count"]) == (6, 1)
    assert events[-1]["since"] < events[-1]["at"]
    whole = floor.get(path, fold="false").json()["events"]
    assert [event["move"] for event in whole] == moves
    assert {event["count"] for event in whole} == {1}
    who = floor.cookie(floor.person("boss", "admin"))
    assert "× 6</span>" in floor.client.get(f"/dashboard/jobs/{job_id}", headers=who).text
