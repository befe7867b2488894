"""The overview: whether anything needs attention."""

import re

import pytest

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.lifecycle import moves
from kesin.lifecycle.errors import Category
from kesin.lifecycle.task import task_lifecycle
from kesin.store.records import RulesVersion
from kesin.workloads.oci.google.channel import ConnectionTrouble
from kesin.workloads.oci.google.circuit_breaker import record_upload
from kesin.workloads.oci.site import SiteContext
from tests.lifecycle.small import small
from tests.web.conftest import ROOT, World


def overview(world: World, name: str = "ayse", **headers: str) -> str:
    answer = world.client.get("/dashboard", headers=world.cookie(name) | headers)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<svg.*?</svg>", "", answer.text, flags=re.DOTALL))


def inbox(text: str) -> list[dict[str, str]]:
    """The lines about failed jobs: how many, everything before the button, the button."""
    lines = re.findall(r'<li id="need-.*?</li>', text)
    return [
        {
            "n": re.findall(r'class="many n">([^<]*)<', line)[0],
            "what": line[: line.rindex('class="button"')],
            "button": line[line.rindex('class="button"') :],
        }
        for line in lines
    ]


def fail(world: World, n: int, code: str, category: Category = Category.VALIDATION) -> None:
    for _ in range(n):
        world.job()
    answer = Failed(code, "so the test wants it", category=category)
    Worker(world.task, lambda _job: answer).drain()


@pytest.fixture(autouse=True)
def _admin(world: World) -> None:
    world.person("ayse", "admin")


def test_nothing_needs_you_is_one_line_in_both_languages_and_as_a_part(world):
    world.job()
    assert "Nothing needs you." in overview(world)
    part = overview(world, **{"hx-request": "true"})
    assert "<html" not in part
    assert 'id="view"' in part
    turkish = overview(world, **{"accept-language": "tr"})
    assert "<h1>Genel bakış</h1>" in turkish
    assert "Sizi bekleyen bir iş yok." in turkish


def test_the_inbox_has_a_line_for_each_code_with_count_time_and_button(world):
    fail(world, 3, "NO_SUCH_STREET")
    fail(world, 1, "NOBODY_HOME")
    text = overview(world)
    assert "Nothing needs you" not in text
    assert [line["n"] for line in inbox(text)] == ["3 jobs", "1 job"]
    street, home = inbox(text)
    assert "<code>NO_SUCH_STREET</code>" in street["what"]
    assert "since " in street["what"]
    assert "You" in street["what"]
    assert 'href="/dashboard/queues/task?state=failed&amp;code=NO_SUCH_STREET"' in street["what"]
    for line, code in ((street, "NO_SUCH_STREET"), (home, "NOBODY_HOME")):
        path = f'href="/dashboard/queues/task/fix?state=failed&amp;code={code}">Fix data'
        assert path in line["button"]  # a retry would fail again
    world.clock.advance(30 * 86_400)
    assert "3 jobs" in overview(world)  # they need someone until they are gone


def test_what_may_work_the_next_time_can_be_retried_from_the_inbox(world):
    fail(world, 4, "SMTP_DOWN", Category.PERMANENT)
    [line] = inbox(overview(world))
    assert "Retry 4 jobs" in line["button"]
    assert (
        'hx-get="/dashboard/triage?queue=task&amp;state=failed&amp;code=SMTP_DOWN&amp;category=PERMANENT"'
        in line["button"]
    )
    world.person("ece", "viewer", all_sites=True)
    [line] = inbox(overview(world, "ece"))
    assert "Show 4 jobs" in line["button"]


def test_counts_are_exact_however_many_there_are(world):
    world.service.queues["task"].enqueue_many([NewJob(n) for n in range(500)])
    answer = Failed("NO_SUCH_STREET", "no", category=Category.VALIDATION)
    Worker(world.task, lambda _job: answer).drain()
    text = overview(world)
    assert [line["n"] for line in inbox(text)] == ["500 jobs"]
    assert '<dd data-number class="bad">500</dd>' in text
    navigation = world.client.get("/dashboard/nav", headers=world.cookie("ayse")).text
    assert re.search(r'class="badge"[^>]*>500<', navigation)
    metrics = world.service.metrics.page().decode()
    assert 'kesin_needs_you_jobs{queue="task"} 500.0' in metrics


def test_what_is_tried_again_by_itself_or_was_decided_is_no_line_of_the_inbox(world):
    world.service.commands.act(ROOT, "task", "cancel", ids=[world.job()])
    assert "Nothing needs you." in overview(world)
    fail(world, 1, "SMTP_DOWN", Category.TRANSIENT)
    text = overview(world)
    assert "Nothing needs you." in text
    assert re.search(r"1 retries automatically.*next at", text)
    metrics = world.service.metrics.page().decode()
    assert 'kesin_needs_you_jobs{queue="task"} 0.0' in metrics
    assert 'kesin_retrying_jobs{queue="task"} 1.0' in metrics
    world.clock.advance(3_600)
    due = "1 retries automatically, the first is due"  # no worker: a site's script may not run for hours
    assert due in re.sub(r"<[^>]+>", "", overview(world))


def test_a_badge_counts_what_needs_you_and_is_loud_for_what_is_new(world):
    fail(world, 2, "BAD")

    def badge() -> str:
        text = world.client.get("/dashboard/nav", headers=world.cookie("ayse")).text
        return str(re.findall(r'<span class="(badge[^"]*)"[^>]*>2</span>', text)[0])

    assert badge() == "badge"
    world.client.get("/dashboard/queues/task", headers=world.cookie("ayse"))
    assert badge() == "badge seen"


def test_a_high_share_of_failures_in_a_day_is_reported(world):
    world.service._note_history()
    fail(world, 1, "BAD")
    for _ in range(3):
        world.job()
    Worker(world.task, lambda _job: None).drain()
    world.clock.advance(60)
    assert re.search(r'class="chip retrying">\s*25% failed', overview(world))


def test_an_unknown_value_is_not_shown_as_a_number(world):
    """Before the first note, and for users who see some sites only."""
    world.person("ece", sites=["north"])
    fail(world, 1, "BAD")
    assert "<dt>done in 24 h</dt><dd data-number>–</dd>" in overview(world)
    world.service._note_history()
    text = overview(world, "ece")
    assert "<dt>done in 24 h</dt><dd data-number>–</dd>" in text
    assert ">workers seen</dt><dd>–</dd>" in text


def test_queues_without_work_fold_into_one_line_and_your_own_come_first(world):
    world.job()
    name, store = "courier", world.store
    own = Queue(name, task_lifecycle("courier"), store, clock=world.clock)
    world.service.queues[name] = own
    own.enqueue(1)
    text = overview(world)
    cards = re.findall(r'<article class="card" id="card-(\w+)">', text)
    assert cards == ["courier", "task"]
    assert re.search(r"<p class=\"muted\">.*PDF batches</a>.*: no jobs</p>", text)


def test_a_queue_with_its_own_lifecycle_is_shown_by_its_stored_rules(world):
    lifecycle = small(moves.attempt_cap("ready", "failed"), name="kiln")
    Queue("kiln", lifecycle, world.store, clock=world.clock).enqueue({"pot": 7})
    text = overview(world)  # of a service that was there before
    assert re.search(r'id="card-kiln".*yours.*<dt>waiting</dt><dd data-number>1', text)
    opened = world.service.queues["kiln"]
    assert (opened.lifecycle, opened.stats().total) == (lifecycle, 1)
    page = world.client.get("/dashboard/queues/kiln", headers=world.cookie("ayse"))
    assert page.status_code == 200


def test_a_queue_with_unreadable_rules_is_left_out_and_the_others_are_shown(world, monkeypatch):
    Queue("kiln", task_lifecycle("kiln"), world.store, clock=world.clock)
    Queue("loom", task_lifecycle("loom"), world.store, clock=world.clock).enqueue(1)
    read = world.store.rules

    def of_a_newer_version(name: str) -> list[RulesVersion]:
        return [one._replace(definition="{}") if name == "kiln" else one for one in read(name)]

    monkeypatch.setattr(world.store, "rules", of_a_newer_version)
    assert 'id="card-loom"' in overview(world)
    assert "kiln" not in world.service.queues


def test_work_without_a_worker_is_reported_and_red_at_once(world):
    red = 'class="bad" title="Jobs are waiting, but no worker has been seen."'
    assert red not in overview(world)
    world.job()
    assert red in overview(world)
    world.clock.advance(61)
    assert "No worker is running; the oldest job has been waiting for 61 secs." in overview(world)
    world.task.claim("hand", lease_seconds=2_000)
    world.job()
    world.clock.advance(59)
    text = overview(world)
    assert "Nothing needs you." in text
    assert ">workers seen</dt><dd>1</dd>" in text


def test_silent_workers_and_a_late_sweeper_are_reported(world, monkeypatch):
    monkeypatch.setattr(world.service, "_work", True)  # as if it had been started, and got stuck
    world.service.workers.append(Worker(world.task, lambda _job: None))
    world.clock.advance(1_000)
    text = overview(world)
    assert "Workers in this process are not responding." in text
    assert "The sweeper in this process has missed its most recent sweeps." in text
    assert "Nothing needs you" not in text
    world.service.workers.clear()


def test_an_open_breaker_is_reported_to_users_of_the_site(world):
    world.person("ece", sites=["south"])
    world.accounts.set_site(ROOT, "north", channel="api")
    context = world.service.workload_context("oci")
    site = SiteContext(context, world.accounts.directory.site("north"))
    record_upload(site, ConnectionTrouble("AUTH", "BAD_LOGIN", "no"))
    text = overview(world)
    assert "uploads are suspended for north" in text
    assert "breaker" not in overview(world, "ece")


def test_jobs_of_a_lost_worker_are_reported(world):
    world.job()
    world.task.claim("gone", lease_seconds=5)
    world.clock.advance(6)
    assert "Jobs stuck because their worker stopped: 1." in overview(world)


def test_a_paused_queue_is_reported(world):
    world.service.commands.pause(ROOT, "task", site="north")
    assert "Paused for north." in overview(world)
    world.service.commands.pause(ROOT, "task")
    assert "Paused.</span>" in overview(world)


def test_only_jobs_of_permitted_sites_are_counted_and_without_any_an_admin_is_named(world):
    world.person("nur", sites=["south"])
    fail(world, 2, "SECRET_OF_NORTH")
    text = overview(world, "nur")
    assert "SECRET_OF_NORTH" not in text
    assert inbox(text) == []
    world.person("ece")
    text = overview(world, "ece")
    assert "You do not have access to any queue. Ask an admin for access to a site or a queue." in text
    assert "/dashboard/queues/" not in text


def test_jobs_that_wait_for_others_need_nobody(world):
    queue = Queue("steps", task_lifecycle("steps", parents=True), world.store, clock=world.clock)
    world.service.queues["steps"] = queue
    queue.enqueue(2, after=[queue.enqueue(1).id])
    text = overview(world)
    assert "Nothing needs you." in text
    assert "<dt>waiting</dt><dd data-number>2" in text
    navigation = world.client.get("/dashboard/nav", headers=world.cookie("ayse")).text
    assert "badge" not in navigation
