"""A job's page: what came of it first, repeats folded, corrections field by field."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kesin.engine.access.companions import fold_events
from kesin.engine.queue import apply_changes
from kesin.engine.results import Done, Failed, Wait
from kesin.engine.worker import Worker
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change
from kesin.store.records import Event
from kesin.web.dashboard.jobs.timeline import MAX_FOLDED
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.site import SiteContext
from tests.web.conftest import ROOT, World
from tests.web.dashboard.jobs.test_page import CONVERSION, create_pdf, read, uploaded
from tests.workloads.optiplan.orders_ready import planned_order

PART = {"hx-request": "true"}
CONTROL = "/dashboard/site/north/oci-control"


@pytest.fixture
def world(shared_world: World) -> World:
    """One for all of them: each has a job of its own."""
    return shared_world


def parts(page: str) -> list[str]:
    """The parts of the page, from top to bottom."""
    return re.findall(r'id="job-(head|outcome|panel|next|story|facts|picture|values)"', page)


def part(page: str, name: str) -> str:
    """The text of a part, without its tags."""
    found = page[page.index(f'id="job-{name}"') :].partition('id="job-')[2].partition('id="job-')[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*(>|$)", " ", found.partition(">")[2])).strip()


# What came of it


def test_what_came_of_it_stands_above_the_outlook_and_the_timeline(world):
    for job_id in (create_pdf(world), uploaded(world), planned_order(world.service), world.job()):
        assert parts(read(world, job_id)) == [
            *("head", "outcome", "panel", "next", "story", "facts", "picture", "values")
        ]


def test_a_result_is_shown_above_and_a_failure_is_explained_there_once(world):
    job_id = world.job(payload={"email": "ayse@example.com"})
    Worker(world.task, lambda _: Done({"sent to": "a", "email": "ayse@example.com"})).drain()
    page = read(world, job_id)
    assert "sent to" in part(page, "outcome")
    assert "ayse@example.com" not in page
    assert "Result" not in part(page, "values")
    name = world.known("the-admin", "admin", all_sites=True)
    shown = world.client.post(f"/dashboard/jobs/{job_id}/unmask", headers=world.cookie(name) | PART).text
    assert shown.count("ayse@example.com") == 2  # in the payload, and in the result above
    assert '<div id="job-outcome" class="stack" hx-swap-oob="morph">' in shown
    empty = world.job()
    Worker(world.task, lambda _: None).drain()
    assert part(read(world, empty), "outcome") == "Result Finished without a result."
    failed = read(world, uploaded(world))
    assert "UNPARSEABLE_GCLID" in part(failed, "outcome")
    assert failed.count("What it means") == 1
    assert "Explained above" in part(failed, "story")
    assert part(read(world, world.job()), "outcome") == ""


# The outlook


def test_the_outlook_says_when_a_job_is_retried_and_which_attempt_that_is(world):
    job_id = world.job()
    Worker(world.task, lambda _: Failed("FLAKY", "no answer", retry_in_s=600)).drain()
    text = part(read(world, job_id), "next")
    assert re.search(r"Next Retries automatically at .*, attempt 2 of 5 \(in 10 min\)", text)
    later = world.job(run_at=world.task.now() + 600 * SECOND_US)
    assert "Starts automatically at" in part(read(world, later), "next")
    done = create_pdf(world)
    assert part(read(world, done), "next").startswith("Next Expires at")


# Repeats


def test_waits_are_folded_into_one_line_that_can_be_opened(world):
    queue = world.task
    job_id = world.job()
    for _ in range(3):
        Worker(queue, lambda _: Wait(5)).drain()
        world.clock.time_us += 6 * SECOND_US
    story = part(read(world, job_id), "story")
    assert "wait × 3" in story
    assert "Show all 3" in story
    page = read(world, job_id)
    opened = page[page.index('class="fold repeats"') :].partition("</details>")[0]
    assert opened.count('<span class="mono">wait</span>') == 3
    assert opened.count('<span class="mono">claim</span>') == 2  # the first claim is its own line


def test_retries_with_the_same_code_are_folded_and_others_are_not(world):
    job_id = world.job()
    for code in ("FLAKY", "FLAKY", "FLAKY", "OTHER"):
        Worker(world.task, lambda _, code=code: Failed(code, f"{code} again")).drain()
        world.clock.time_us += 3600 * SECOND_US
    page = read(world, job_id)
    story = part(page, "story")
    assert story.count("retry × 3") == 1
    assert "×" not in story.partition("OTHER")[0]
    stable = re.search(r'<li id="(line-move--\d+)">', page)
    assert stable  # a fold keeps its id, and so stays open, while more lines are added


def test_a_job_whose_attempts_are_used_says_so_and_names_its_other_errors(world):
    job_id, once = world.job(max_attempts=3), world.job(max_attempts=1)
    for code in ("FLAKY", "FLAKY", "OTHER"):
        Worker(world.task, lambda _, code=code: Failed(code, f"{code} again")).drain()
        assert "no attempts left" not in part(read(world, job_id), "story") or code == "OTHER"
        world.clock.time_us += 3600 * SECOND_US
    page = read(world, job_id)
    assert "All 3 attempts have been used." in part(page, "outcome")
    assert "Earlier, 2 attempts failed with FLAKY." in part(page, "outcome")
    assert part(page, "story").count("no attempts left") == 1
    only = part(read(world, once), "outcome")
    assert "Its only attempt has been used." in only
    assert "Before" not in only
    for_good = world.job(max_attempts=3)
    Worker(world.task, lambda _: Failed("BAD", "it is bad", category=Category.VALIDATION)).drain()
    assert "used" not in part(read(world, for_good), "outcome")


def test_what_a_person_did_is_never_folded(world):
    job_id = world.job()
    for _ in range(3):
        Worker(world.task, lambda _: Failed("BROKEN", "it broke", category=Category.VALIDATION)).drain()
        world.task.act("requeue", actor="user:can", ids=[job_id], reason="again")
    story = part(read(world, job_id), "story")
    assert story.count("by can") == 3
    assert "×" not in story


def event(seq: int, move: str, *, worker: str | None = None, **other: Any) -> Event:
    names: dict[str, Any] = dict.fromkeys(Event._fields)
    known = {"job_id": "j", "seq": seq, "at": seq, "move": move, "actor": "w", "worker": worker}
    return Event(**names | known | other)


def test_folding_loses_no_event_whatever_the_cycle():
    once = [event(1, "enqueue"), event(2, "claim", worker="w"), event(3, "wait")]
    cycles = {
        "waits": [*once, event(4, "claim", worker="w"), event(5, "wait")],
        "chain": [
            *once[:1],
            *(event(2 + n, name, worker="w" if name == "claim" else None)
              for n, name in enumerate(("claim", "fail", "requeue") * 3)),
        ],
        "running": [*once, event(4, "claim", worker="w")],
        "nothing": [],
    }  # fmt: skip
    counts = {"waits": [2, 1, 1], "chain": [3, 1, 1, 1], "running": [1, 1, 1, 1], "nothing": []}
    for name, events in cycles.items():
        folded = fold_events(events)[::-1]
        assert [one for line in folded for one in line.events] == events[::-1]
        assert [line.count for line in folded] == counts[name], name


def test_a_long_fold_is_cut_and_says_so(world):
    job_id = world.job(max_attempts=MAX_FOLDED)
    for _ in range(MAX_FOLDED - 1):
        Worker(world.task, lambda _: Wait(1)).drain()
        world.clock.time_us += 2 * SECOND_US
    page = read(world, job_id)
    opened = page[page.index('class="fold repeats"') :].partition("</details>")[0]
    assert opened.count("<li>") == MAX_FOLDED
    hidden = 2 * (MAX_FOLDED - 1) - 1 - MAX_FOLDED
    assert f"Older lines, available in the API: {hidden}." in opened


# Corrections


def sent_row(world: World, name: str, *, delivered: bool = False) -> str:
    """A conversion that Google refused because of its data, or took."""
    stored = world.accounts.find_site("north")
    assert stored is not None
    site = SiteContext(world.service.workload_context("oci"), stored)
    day_before = datetime.fromtimestamp(site.queue.now() / SECOND_US, UTC) - timedelta(days=1)
    row = {**CONVERSION, "externalId": name, "conversionTime": day_before.isoformat()}
    [result] = ingest(site, [row], actor=ROOT)
    job_id = str(result.id).removeprefix("seal_")
    [job] = site.queue.claim("one", ids=[job_id])
    refusal = ("UNPARSEABLE_GCLID", "VALIDATION", "it cannot be read")
    change = Change(job.id, job.claim_seq, *(() if delivered else refusal))
    apply_changes(site.queue, "ack" if delivered else "ack_failed", [change], actor="one")
    return job_id


def fix(world: World, job_id: str, name: str = "the-operator", **fields: str) -> Any:
    world.known(name, "operator", all_sites=True)
    path = f"{CONTROL}/rows/{job_id}/fix"
    return world.client.post(path, data=fields, headers=world.cookie(name) | PART)


def test_a_correction_shows_each_field_before_and_after_masked_like_the_payload(world):
    job_id = sent_row(world, "diff-1")
    assert "Corrected by" not in read(world, job_id)
    answer = fix(world, job_id, gclid="Cj0KCQiA_mended_77", conversionValue="99", reason="typo")
    assert answer.status_code == 200
    assert "The data was corrected, and the row was queued again." in answer.text
    assert "kesin:forget" in answer.headers["hx-trigger"]
    assert world.state(job_id) == "QUEUED"
    page = read(world, job_id)
    changes = re.findall(r"<del>(.*?)</del></td><td class=\"mono\"><ins>(.*?)</ins>", page)
    assert sorted(changes) == [("12.5", "99"), ("••••7890", "••••d_77")]
    assert "Cj0KCQiA_mended_77" not in page
    assert "Corrected by the-operator" in part(page, "values")
    path, name = f"/dashboard/jobs/{job_id}/unmask", world.known("the-admin", "admin")
    clear = world.client.post(path, headers=world.cookie(name) | PART).text
    assert "<del>Cj0KCQiA1234567890</del>" in clear
    assert "<ins>Cj0KCQiA_mended_77</ins>" in clear


def test_the_new_value_of_a_sent_row_goes_as_an_adjustment_or_as_a_copy(world):
    job_id = sent_row(world, "sent-1", delivered=True)
    world.known("the-operator", "operator", all_sites=True)
    dialog = f"{CONTROL}/rows/{job_id}/fix"
    page = world.client.get(dialog, headers=world.cookie("the-operator") | PART).text
    assert 'name="taken" value="1" checked' in page
    answer = fix(world, job_id, conversionValue="7", taken="1").text
    assert "The new value was queued as an adjustment." in answer
    assert "Open the adjustment" in answer
    assert len(world.service.queues["oci_adjustments"].jobs().jobs) == 1
    assert "it has an adjustment" in fix(world, job_id, conversionValue="8", taken="").text
    other = sent_row(world, "sent-2", delivered=True)
    answer = fix(world, other, conversionValue="7", taken="").text
    assert "A corrected copy was queued as a new revision." in answer
    [new] = re.findall(r'href="/dashboard/jobs/([^"]+)"', answer)
    assert (world.state(other), world.state(new)) == ("COMPLETED", "QUEUED")


def test_a_change_that_masks_hide_is_still_listed(world):
    """Two short masked values look the same: the stored ones say that they differ."""
    job_id = uploaded(world)
    queue = world.service.queues["oci"]
    payload = '{"externalId":"A-1","gclid":"%s","phone":"12%s"}'
    for n in (1, 2):
        change = Change(job_id, payload=payload % (n, n), stamps={"conversion_at": queue.now()}, max_attempts=5)
        [outcome] = apply_changes(queue, "correct", [change], role="operator", actor="user:can")
        assert outcome.result == "moved"
        if n == 1:
            [job] = queue.claim("one", ids=[job_id])
            bad = Change(job.id, job.claim_seq, "UNPARSEABLE_GCLID", "VALIDATION", "no")
            apply_changes(queue, "ack_failed", [bad], actor="one")
    page = read(world, job_id)
    newest = page[page.index('class="changes"') :].partition("</table>")[0]
    assert re.findall(r"<del>(.*?)</del>.*?<ins>(.*?)</ins>", newest) == [("••••", "••••")] * 2
    oldest = page[page.rindex('class="changes"') :].partition("</table>")[0]
    assert oldest.count("missing") == 5  # the name, time, value and currency left, a phone came


def test_a_fix_that_is_refused_stays_in_the_dialog_with_what_was_typed(world):
    job_id = sent_row(world, "refused-1")
    for fields, words in (
        ({"conversionCurrency": "money", "conversionValue": "7"}, 'aria-invalid="true"'),
        ({}, "Nothing was changed"),
    ):
        answer = fix(world, job_id, **fields)
        assert "<dialog" in answer.text
        assert words in answer.text
        assert world.state(job_id) == "FAILED"
    typed = fix(world, job_id, conversionCurrency="money", conversionValue="7").text
    assert 'value="money"' in typed
    assert 'value="7"' in typed
    assert "Cj0KCQiA1234567890" not in typed


def test_the_fix_of_another_sites_row_is_not_found(world):
    queue = world.service.queues["oci"]
    south = world.job("south", queue="oci", payload={"externalId": "s"}, stamps={"conversion_at": queue.now()})
    assert fix(world, south, conversionValue="1").status_code == 404
    assert fix(world, "x" * 36, conversionValue="1").status_code == 404
