"""The pages of users, keys, sites, workers and the audit log; each change leaves a line."""

import html
import re
import threading
from typing import Any

import pytest

from kesin.engine.sweeper import Sweeper
from kesin.lifecycle.budget import SECOND_US
from kesin.store.records import Listing
from kesin.web import service as services
from kesin.web.dashboard.admin import accounts
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from tests.tables import table
from tests.web.conftest import PASSWORD, ROOT, MakeWorld, World, actor

DUE: dict[Any, float] = {"cap": 41.5, "prune": 3311.0}
PEOPLE, KEYS, SITES = (f"/dashboard/admin/{one}" for one in ("people", "keys", "sites"))


@pytest.fixture
def world(shared_world: World) -> World:
    """One service for all tests: each has users and keys of its own."""
    shared_world.known("boss", "admin")
    return shared_world


def get(world: World, path: str, who: str = "boss", **params: Any) -> str:
    answer = world.client.get(path, headers=world.cookie(who), params=params)
    assert answer.status_code == 200, answer.text
    return html.unescape(answer.text)


def post(world: World, path: str, who: str = "boss", **fields: Any) -> Any:
    return world.client.post(path, headers=world.cookie(who), data=fields)


def actions(world: World, target: str) -> list[str]:
    return [line.action for line in world.audit() if line.target == target]


# Navigation


@table(("role", "places"), [("viewer", []), ("operator", ["workers"]), ("admin", ["audit", "workers", "admin/people"])])
def test_the_navigation_has_the_pages_a_user_may_see(role, places, world):
    text = get(world, "/dashboard", world.known(f"plain-{role}", role, all_sites=True))
    links = re.findall(r'href="/dashboard/(audit|workers|admin/people)"', text)
    assert links == places
    assert ("<hr>" in text) == bool(places)


# People


def test_a_person_is_added_with_a_password_of_their_own(world):
    password = {"password": PASSWORD}
    answer = post(world, PEOPLE, name="can", role="operator", site=["north"], **password)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PEOPLE}/can")
    person = world.accounts.directory.user("can")
    assert person is not None
    assert (person.role, person.sites, person.all_sites) == ("operator", ("north",), False)
    assert actions(world, "can") == ["user.add"]
    assert "can" in get(world, PEOPLE)


def test_a_first_password_is_shown_once_and_lets_them_in(world):
    answer = post(world, PEOPLE, name="ece", role="viewer", all_sites="1")
    [password] = re.findall(r'<code class="once">([^<]+)</code>', answer.text)
    assert world.accounts.sign_in("ece", html.unescape(password), "192.0.2.1")
    assert 'class="once"' not in get(world, f"{PEOPLE}/ece")


def test_what_is_wrong_is_said_and_what_was_typed_stays(world):
    answer = post(world, PEOPLE, name="no way", role="operator", site="south")
    assert answer.status_code == 422
    assert "is not a user name" in answer.text
    assert 'value="no way"' in answer.text
    assert '<option value="operator" selected>' in answer.text
    assert '<input type="checkbox" name="site" value="south" checked>' in answer.text
    world.client.headers["accept-language"] = "tr"
    turkish = html.unescape(post(world, PEOPLE, name="no way", role="operator").text)
    del world.client.headers["accept-language"]
    assert "'no way' kullanıcı adı olamaz" in turkish
    assert 'lang="en">' not in turkish.partition("<main")[2]


def test_a_role_is_changed_and_the_sessions_end(world):
    world.known("deniz", sites=["north"])
    token = world.token("deniz")
    answer = post(world, f"{PEOPLE}/deniz", what="may", role="operator", queue=["task"])
    assert answer.status_code == 303
    person = world.accounts.directory.user("deniz")
    assert person is not None
    assert (person.role, person.sites, person.queues) == ("operator", (), ("task",))
    assert world.accounts.session_actor(token, "") is None
    assert actions(world, "deniz")[-1] == "user.set"


def test_a_user_is_disabled_only_with_the_confirmation(world):
    world.known("filiz")
    assert post(world, f"{PEOPLE}/filiz", what="disable").status_code == 422
    assert world.token("filiz")
    assert post(world, f"{PEOPLE}/filiz", what="disable", sure="1").status_code == 303
    person = world.accounts.directory.user("filiz")
    assert person is not None
    assert person.disabled_at is not None
    post(world, f"{PEOPLE}/filiz", what="enable")
    assert world.token("filiz")


def test_a_new_password_ends_the_old_one(world):
    world.known("gul")
    token = world.token("gul")
    answer = post(world, f"{PEOPLE}/gul", what="password")
    assert 'class="once"' in answer.text
    assert world.accounts.session_actor(token, "") is None


def test_a_person_is_signed_out_everywhere(world):
    world.known("hale")
    token = world.token("hale")
    assert "192.0.2.7" in get(world, f"{PEOPLE}/hale")
    assert post(world, f"{PEOPLE}/hale", what="sign_out").status_code == 303
    assert world.accounts.session_actor(token, "") is None


@table("fields", [{"what": "may", "role": "viewer"}, {"what": "disable", "sure": "1"}])
def test_an_admin_does_not_lock_themselves_out(fields, world):
    assert post(world, f"{PEOPLE}/boss", **fields).status_code == 409
    assert world.token("boss")


# Keys


def test_a_key_is_shown_once(world):
    answer = post(world, KEYS, name="crm", scope=["read", "pdf"], days="30")
    [key] = re.findall(r'<code class="once">([^<]+)</code>', answer.text)
    caller = world.accounts.key_actor(key, "")
    assert caller is not None
    assert caller.grants == {"read", "pdf"}
    listed = get(world, KEYS)
    assert "crm" in listed
    assert key not in listed
    assert actions(world, caller.name.removeprefix("key:")) == ["key.create"]


@table(
    "fields",
    [
        {"name": "x"},
        {"name": "", "scope": "read"},
        {"name": "x", "scope": "oci:ingest"},
        {"name": "x", "scope": "read", "days": "0"},
        {"name": "x", "scope": "read", "days": "-1"},
        {"name": "x", "scope": "read", "days": "9" * 5_000},
        {"name": "x", "scope": "no-such-scope"},
    ],
)
def test_a_key_that_makes_no_sense_is_refused(fields, world):
    answer = post(world, KEYS, **fields)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert 'class="once"' not in answer.text


def test_a_key_is_revoked_only_with_the_confirmation(world):
    key, record = world.accounts.create_key(ROOT, "old", ["read"])
    path = f"{KEYS}/{record.id}"
    assert "old" in get(world, path)
    assert post(world, path).status_code == 422
    assert world.accounts.key_actor(key, "") is not None
    assert post(world, path, sure="1").status_code == 303
    assert world.accounts.key_actor(key, "") is None
    assert actions(world, record.id) == ["key.create", "key.revoke"]


# Sites


def test_a_site_is_added_and_changed(world):
    answer = post(world, SITES, id="acme", name="Acme", channel="api", currency="EUR")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{SITES}/acme?done=true")
    site = world.accounts.directory.site("acme")
    assert site is not None
    assert (site.name, site.channel, site.currency) == ("Acme", "api", "EUR")
    assert post(world, f"{SITES}/acme", timezone="Nowhere/Here").status_code == 422
    assert post(world, f"{SITES}/acme", name="Acme & Co").status_code == 303
    assert "Acme & Co" in get(world, SITES)
    assert [line.action for line in world.audit() if line.site == "acme"] == ["site.add", "site.set"]


@table(("site_id", "status"), [("north", 409), ("<b>", 422), ("", 422)])
def test_a_site_that_is_there_or_makes_no_sense_is_refused(site_id, status, world):
    answer = post(world, SITES, id=site_id)
    assert answer.status_code == status
    assert "<b>" not in answer.text


# Workers


def test_workers_are_those_who_hold_jobs_and_those_who_say_that_they_live(world):
    world.task.claim("holder-1", ids=[world.job()])
    Heartbeat(world.store, "beater-2", lambda: {"engine": "weasy"}, now=world.accounts.now).beat()
    text = get(world, "/dashboard/workers")
    assert re.search(r"holder-1.*?busy", text, re.DOTALL)
    assert re.search(r'title="engine: weasy">beater-2.*?ready', text, re.DOTALL)
    world.clock.advance(3_600)
    assert re.search(r"holder-1.*?silent", get(world, "/dashboard/workers"), re.DOTALL)


def test_an_operator_of_one_site_sees_no_worker_of_the_rest(world):
    world.known("ali", "operator", sites=["north"])
    world.task.claim("holder-3", ids=[world.job("south")])
    assert "holder-3" not in get(world, "/dashboard/workers", "ali")


def test_a_service_that_sweeps_says_when_it_does_so_again(make_world: MakeWorld):
    world = make_world()
    sweeper = Sweeper([world.task], every_s={"cap": 60, "prune": 3600})
    sweeper._due = {stage: world.clock.monotonic() + in_s for stage, in_s in DUE.items()}
    sweeper.last_success = world.clock.monotonic() - 7
    world.service.sweeper = sweeper
    world.person("boss", "admin")
    text = get(world, "/dashboard/workers")
    assert "The last sweep finished 7 secs ago." in text
    assert "No workers seen" in text
    assert "Most workers in other processes are visible only while they hold a job." in text
    for stage in ("in 42 secs", "every 60 secs", "in 55 mins", "every 60 mins"):
        assert stage in text
    assert "outside this process" not in text


class Beside:
    """Processes that this one started."""

    alive = True

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def join(self, grace_s: float) -> None: ...


def test_the_queues_of_the_processes_beside_this_one_have_their_worker(world, monkeypatch):
    monkeypatch.setattr(world.service, "_supervisor", Beside())
    monkeypatch.setattr(world.service, "_work", True)
    text = get(world, "/dashboard/workers")
    for title in ("PDF batches", "PDF webhooks"):
        assert re.search(rf"outside this process</td>\s+<td><a [^>]+>{title}</a>", text)
    assert "0 in this process" in text
    monkeypatch.setattr(Beside, "alive", False)
    gone = get(world, "/dashboard/workers")
    assert re.search(r"outside this process</td>\s+<td>.*?</td>\s+<td>.*?silent", gone)


# The audit log


def test_the_log_is_searched_by_actor_action_queue_and_target(world):
    job_id = world.failed("north")
    world.service.commands.act(actor("user:zed", "admin"), "task", "requeue", ids=[job_id])
    lines = {"actor": "user:zed", "action": "queue.requeue", "queue": "task", "target": job_id}
    for name, value in lines.items():
        assert f"/dashboard/jobs/{job_id}" in get(world, "/dashboard/audit", **{name: value})
        assert f"/dashboard/jobs/{job_id}" in get(
            world, "/dashboard/audit", **{name: value if name == "queue" else value[1:-1]}
        )
    assert "No line matches" in get(world, "/dashboard/audit", actor="user:zed", queue="pdf")


def test_a_line_about_a_job_has_its_title_with_the_id_in_one_query(world, monkeypatch):
    world.store.write_listing("task", Listing("{to} · {order}"))
    people = {"Ada": "1", "ada@example.com": "2", "Işıl": "3"}
    jobs = [world.job(payload={"to": to, "order": order}) for to, order in people.items()]
    gone = "00000000-0000-7000-8000-000000000000"
    for target, queue in ((jobs[0], "task"), (jobs[1], "task"), (jobs[2], "task"), (gone, "left")):
        world.accounts.note(actor("user:yaz"), "queue.look", queue=queue, target=target)
    asked, find = list[Any](), world.store.find

    def counted(queue: str, ids: Any) -> Any:
        asked.append(queue)
        return find(queue, ids)

    monkeypatch.setattr(world.store, "find", counted)
    text = get(world, "/dashboard/audit", actor="user:yaz")
    shown = re.findall(r'<a[^>]* title="[0-9a-f-]{36}">(.*?)</a>', text)
    assert shown == [f"…{gone[-12:]}", "Işıl · 3", "2", "Ada · 1"]
    assert [text.count(f"…{job[-12:]}") for job in jobs] == [1, 1, 1]
    assert asked == ["task"]


def test_the_log_goes_on_below_the_last_line(world, monkeypatch):
    monkeypatch.setattr(accounts, "AUDIT_PAGE", 3)
    for n in range(7):
        world.accounts.note(actor("user:many"), f"did.{n}")
    seen: list[str] = []
    path: str | None = "/dashboard/audit?actor=user:many"
    headers = world.cookie("boss")
    while path:
        text = world.client.get(path, headers=headers).text
        seen += re.findall(r">(did\.\d)<", text)
        more = re.search(r'class="more" href="([^"]+)"', text)
        path = html.unescape(more[1]) if more else None
    assert seen == [f"did.{n}" for n in range(6, -1, -1)]
    part = headers | {"hx-request": "true", "hx-target": "more"}
    assert "<html" not in world.client.get("/dashboard/audit", headers=part).text


def test_personal_data_in_the_log_is_covered(world):
    world.accounts.note(actor("user:kim"), "x.y", target="+90 532 000 00 01", details={"email": "ayse@example.com"})
    text = get(world, "/dashboard/audit", actor="user:kim")
    assert "x.y" in text
    assert not [part for part in ("532", "ayse@") if part in text]


# Once a minute


def test_the_counters_are_noted_once_a_minute_while_the_service_runs(make_world, monkeypatch):
    monkeypatch.setattr(services, "MINUTE_S", 0.01)
    world = make_world()
    assert world.app  # it brings the notes along
    fact = lambda: world.accounts.directory.metadata_entry("history", "task", "totals")  # noqa: E731
    assert fact() is None
    at_once, again = threading.Event(), threading.Event()

    def note() -> None:
        (again if at_once.is_set() else at_once).set()

    def broken() -> None:
        raise RuntimeError("the next minute tries again")

    world.service.every_minute.insert(0, broken)
    world.service.every_minute.append(note)
    world.service.start()
    assert at_once.is_set()  # before anybody works: the first minute counts too
    assert again.wait(10)
    world.service.begin_stop()
    assert fact() is not None
    assert fact().changed_at <= world.accounts.now() + SECOND_US
