"""What an operator does from the overview: groups of failures, retried together or corrected."""

import html
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.lifecycle import moves
from kesin.lifecycle.errors import Category
from kesin.lifecycle.task import CANCELLED, task_lifecycle
from kesin.store.errors import StoreUnreachable
from kesin.web.dashboard.queues import actions
from kesin.web.dashboard.queues.bulk import take_action
from kesin.web.dashboard.state_groups import glossed
from tests.tables import table
from tests.web.client import end_bulk_runs
from tests.web.conftest import ROOT, World
from tests.web.dashboard.turkish import TEMPLATES, catalogue

PART = {"hx-request": "true"}


@pytest.fixture
def mail(world: World) -> Queue:
    """A queue of the user's own, beside the queue `task`."""
    world.person("ayse", "admin", all_sites=True)
    queue = Queue("mail", task_lifecycle("mail"), world.store, clock=world.clock)
    world.service.queues["mail"] = queue
    return queue


def fail(queue: Queue, code: str, category: Category, n: int = 1, site: str = "north") -> list[str]:
    ids = [queue.enqueue({"n": number}, tenant=site).id for number in range(n)]
    answer = Failed(code, "so the test wants it", category=category)
    Worker(queue, lambda _job: answer).drain()
    return ids


def words(text: str) -> str:
    plain = re.sub(r"<svg.*?</svg>|<input[^>]*>|<[^>]+>", " ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(plain)).strip()


def dialog(world: World, name: str = "ayse", query: str = "", **headers: str) -> str:
    answer = world.client.get(f"/dashboard/triage{query}", headers=world.cookie(name) | PART | headers)
    assert answer.status_code == 200
    return str(answer.text)


def groups_of(text: str) -> list[str]:
    return [html.unescape(one) for one in re.findall(r'name="group" value="([^"]*)"', text)]


def retry(world: World, groups: Sequence[str], name: str = "ayse", **fields: str) -> Any:
    data = {"group": list(groups), **fields}
    return world.client.post("/dashboard/triage", data=data, headers=world.cookie(name) | PART)


def test_groups_of_all_queues_are_retried_together_and_what_is_futile_is_left_out(world, mail):
    down = fail(world.task, "SMTP_DOWN", Category.AUTH, 3)
    full = fail(mail, "MAILBOX_FULL", Category.AUTH, 2)
    bad = fail(mail, "NO_SUCH_STREET", Category.VALIDATION, 4)
    page = world.client.get("/dashboard", headers=world.cookie("ayse")).text
    assert "Retry 5 in 2 groups…" in words(page)
    text = dialog(world)
    assert "5 jobs will be retried" in words(text)
    assert "4 jobs are left out" in words(text)
    assert "4 jobs with VALIDATION errors will keep failing until" in words(text)
    assert "AUTH: it will fail again unless the cause has been fixed." in words(text)
    assert "NO_SUCH_STREET" in words(text)
    assert "no group is selected" in words(retry(world, []).text)
    answer = retry(world, groups_of(text), reason="the relay is back")
    assert "3 retried SMTP_DOWN" in words(answer.text)
    assert "2 retried MAILBOX_FULL" in words(answer.text)
    assert 'data-at="need-mail-failed-MAILBOX_FULL-AUTH"' in answer.text
    assert {world.state(job) for job in down} == {"ready"}
    assert {mail.job(job).state for job in full} == {"ready"}
    assert {mail.job(job).state for job in bad} == {"failed"}
    lines = [line for line in world.accounts.audit(ROOT) if line.action == "queue.requeue"]
    assert {line.queue for line in lines} == {"task", "mail"}  # a line for each bulk action
    assert "no longer need you" in words(dialog(world, query="?queue=task&state=failed&code=X"))


def test_failures_of_the_data_are_dismissed_by_choice_and_need_no_one_any_more(world, mail):
    fail(mail, "MAILBOX_FULL", Category.AUTH, 2)
    bad = fail(mail, "NO_SUCH_STREET", Category.VALIDATION, 4)
    text = dialog(world)
    retried, dismissed = groups_of(text)
    assert "call=requeue" in retried
    assert "call=dismiss" in dismissed
    retry(world, [retried])
    assert {mail.job(job).error_code for job in bad} == {"NO_SUCH_STREET"}  # not ticked
    alone = dialog(world, query="?queue=mail&state=failed&code=NO_SUCH_STREET&category=VALIDATION")
    assert groups_of(alone) == []
    assert "/dashboard/queues/mail/fix?state=failed&amp;code=NO_SUCH_STREET" in alone
    assert "4 dismissed NO_SUCH_STREET" in words(retry(world, [dismissed]).text)
    assert {mail.job(job).error_code for job in bad} == {"DISMISSED"}
    page = world.client.get("/dashboard", headers=world.cookie("ayse")).text
    assert "Nothing needs you." in words(page)
    page = world.client.get(f"/dashboard/jobs/{bad[0]}", headers=world.cookie("ayse")).text
    assert "This was a decision, not a failure: no action is needed." in words(page)
    assert "Waiting for an operator" not in words(page)
    assert not re.search(r'class="button first"', page)  # nothing is urged
    form = {"call": "requeue", "ids": ",".join(bad)}
    path = "/dashboard/queues/mail/act"
    world.client.post(path, data=form, headers=world.cookie("ayse") | PART)
    assert {mail.job(job).state for job in bad} == {"ready"}  # a retry is still open


def test_an_action_of_another_lifecycle_that_is_called_dismiss_is_not_taken_for_ours(world, mail):
    ours = mail.lifecycle
    own = moves.cancel("ready", "failed", name="dismiss", by=("operator",), error=CANCELLED)
    others = [move for move in ours.moves if move.name != "dismiss"]
    lifecycle = replace(ours, name="post", moves=(*others, own))
    post = Queue("post", lifecycle, world.store, clock=world.clock)
    world.service.queues["post"] = post
    fail(post, "NO_SUCH_STREET", Category.VALIDATION, 4)
    text = dialog(world)
    assert groups_of(text) == []
    assert "Show 4 jobs" in words(text)
    sheets = []
    for queue in (post, mail):
        fail(queue, "NO_SUCH_STREET", Category.VALIDATION)
        queue.enqueue({"n": "new"}, tenant="north")
        path, form = f"/dashboard/queues/{queue.name}/sheet", {"call": "dismiss", "all": "1"}
        answer = world.client.post(path, data=form, headers=world.cookie("ayse") | PART)
        assert "Dismiss 1 job" in words(answer.text)
        sheets.append("A dismissed job stays in the list" in words(answer.text))
    assert sheets == [False, True]


def test_permanent_errors_are_retried_with_the_others_only_if_they_are_chosen(world, mail):
    fail(mail, "MAILBOX_FULL", Category.AUTH, 2)
    gone = fail(mail, "MAILBOX_GONE", Category.PERMANENT, 3)
    page = world.client.get("/dashboard", headers=world.cookie("ayse")).text
    assert "Retry 2 in 1 group…" in words(page)
    text = dialog(world)
    assert "2 jobs will be retried" in words(text)
    said = "3 jobs with PERMANENT errors will fail again unless the cause has been fixed."
    assert f"{said} Retry them too" in words(text)
    retry(world, groups_of(text))
    assert {mail.job(job).state for job in gone} == {"failed"}
    page = world.client.get("/dashboard", headers=world.cookie("ayse")).text
    assert "Retry 3 jobs" in words(page)  # by its own line
    text = dialog(world, query="?permanent=1")
    assert "3 jobs will be retried" in words(text)
    retry(world, groups_of(text))
    assert {mail.job(job).state for job in gone} == {"ready"}


def test_a_dialog_of_one_group_is_about_it_and_of_a_queue_page_about_its_site(world, mail):
    fail(mail, "MAILBOX_FULL", Category.AUTH, 2)
    fail(mail, "SMTP_DOWN", Category.AUTH)
    text = dialog(world, query="?queue=mail&state=failed&code=SMTP_DOWN&category=AUTH")
    assert "1 job will be retried" in words(text)
    assert "Retry 1 job" in words(text)
    assert "MAILBOX_FULL" not in text
    [there] = fail(mail, "MAILBOX_FULL", Category.AUTH, site="south")
    page = world.client.get("/dashboard/queues/mail?site=south", headers=world.cookie("ayse")).text
    [path] = re.findall(r'hx-get="(/dashboard/triage[^"]*)"', html.unescape(page))
    text = dialog(world, query=path.removeprefix("/dashboard/triage"))
    assert "1 job will be retried" in words(text)
    retry(world, groups_of(text))
    assert mail.job(there).state == "ready"
    assert mail.stats().states["failed"] == 3


def test_groups_that_differ_by_category_alone_are_two_lines_and_one_of_them_is_not_retried(world, mail):
    fail(mail, "REFUSED", Category.AUTH, 2)
    [bad] = fail(mail, "REFUSED", Category.VALIDATION)
    for path in ("/dashboard", "/dashboard/queues/mail"):
        page = world.client.get(path, headers=world.cookie("ayse")).text
        ids = re.findall(r'<li id="(need-[^"]*)"', page)
        assert sorted(ids) == ["need-mail-failed-REFUSED-AUTH", "need-mail-failed-REFUSED-VALIDATION"]
    query = "?queue=mail&state=failed&code=REFUSED&category=VALIDATION"
    assert groups_of(dialog(world, query=query)) == []
    text = dialog(world)
    assert "2 jobs will be retried" in words(text)
    retry(world, groups_of(text))
    assert mail.job(bad).state == "failed"


def test_a_group_that_is_refused_is_named_and_does_not_stop_the_others(world, mail):
    [job] = fail(mail, "MAILBOX_FULL", Category.AUTH)
    [group] = groups_of(dialog(world))
    hidden = "queue=hidden&call=requeue&all=1&state=failed&code=X"
    answer = retry(world, [hidden, group])
    assert answer.status_code == 200
    assert "Not retried: there is no queue 'hidden', or you have no access to it" in words(answer.text)
    assert "1 retried MAILBOX_FULL" in words(answer.text)
    assert mail.job(job).state == "ready"
    assert retry(world, [hidden]).status_code == 404  # nothing was done at all


def test_a_store_that_does_not_answer_is_named_too(world, mail, monkeypatch):
    fail(mail, "MAILBOX_FULL", Category.AUTH)
    fail(world.task, "SMTP_DOWN", Category.AUTH)
    groups = groups_of(dialog(world))

    def away(ctx: Any, queue: str, fields: Any) -> Any:
        if queue == "mail":
            raise StoreUnreachable("away")
        return take_action(ctx, queue, fields)

    monkeypatch.setattr("kesin.web.dashboard.overview.take_action", away)
    text = words(retry(world, groups).text)
    assert "Not retried: Its store is not responding. MAILBOX_FULL" in text
    assert "1 retried SMTP_DOWN" in text


def test_many_jobs_are_retried_in_the_background(world, mail, monkeypatch):
    jobs = fail(mail, "MAILBOX_FULL", Category.AUTH, 3)
    monkeypatch.setattr(actions, "MAX_FOREGROUND_JOBS", 2)
    text = dialog(world)
    assert "They are processed in the background" in words(text)
    assert "Being retried in the background MAILBOX_FULL" in words(retry(world, groups_of(text)).text)
    end_bulk_runs(world.app.state.bulk_runs)
    assert {mail.job(job).state for job in jobs} == {"ready"}


def test_a_dialog_shows_only_what_its_user_may_see_and_do(world, mail):
    fail(mail, "SECRET_OF_NORTH", Category.AUTH, 2)
    fail(mail, "SOUTHERN", Category.AUTH, 1, site="south")
    world.person("ece", "operator", sites=["south"])
    text = dialog(world, "ece")
    assert "SECRET_OF_NORTH" not in text
    assert "1 job will be retried" in words(text)
    asked = {"headers": world.cookie("ece") | PART, "params": {"site": "north"}}
    assert world.client.get("/dashboard/triage", **asked).status_code == 403
    stolen = "queue=mail&call=requeue&all=1&state=failed&code=SECRET_OF_NORTH"
    retry(world, [stolen], "ece")
    assert mail.stats().states["failed"] == 3
    world.person("vera", "viewer", sites=["south"])
    text = dialog(world, "vera")
    assert groups_of(text) == []
    assert "Open the job" in words(text)
    assert retry(world, ["queue=mail&call=requeue&all=1"], "vera").status_code == 403


def test_without_scripts_it_is_a_page(world, mail):
    [job] = fail(mail, "MAILBOX_FULL", Category.AUTH)
    cookie = world.cookie("ayse")
    page = world.client.get("/dashboard/triage", headers=cookie).text
    assert "<html" in page
    assert "<dialog class" not in re.sub(r"<template.*?</template>", "", page, flags=re.DOTALL)
    data = {"group": groups_of(page)}
    answer = world.client.post("/dashboard/triage", data=data, headers=cookie, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard")
    assert mail.job(job).state == "ready"


def test_a_card_without_anything_done_has_no_chart(world, mail):
    world.service._note_history()
    mail.enqueue(1)
    world.clock.advance(60)
    world.service._note_history()
    card = re.findall(r'id="card-mail".*?</article>', overview_text(world), re.DOTALL)[0]
    assert "card-chart" not in card
    Worker(mail, lambda _job: None).drain()
    world.clock.advance(60)
    world.service._note_history()
    card = re.findall(r'id="card-mail".*?</article>', overview_text(world), re.DOTALL)[0]
    assert "card-chart" in card


def overview_text(world: World) -> str:
    return str(world.client.get("/dashboard", headers=world.cookie("ayse")).text)


@table("template", TEMPLATES)
def test_every_dialog_is_left_by_the_same_button_before_its_action(template):
    text = template.read_text("utf-8")
    for buttons in re.findall(r'<div class="sheet-actions">(.*?)</div>', text, re.DOTALL):
        before, leave, _ = buttons.partition("{{ bits.leave() }}")
        assert leave
        assert "button" not in before
    if template.name != "bits.html":
        assert "data-close" not in text


def test_the_name_of_a_state_has_its_meaning_in_turkish_alone():
    turkish, english = catalogue().gettext, catalogue("en").gettext
    assert glossed(turkish, "FAILED") == "FAILED (başarısız)"
    assert glossed(english, "FAILED") == "FAILED"
    assert glossed(turkish, "a state of your own") == "a state of your own"
