"""A job's page says how far it is, which jobs it waits for, and which wait for it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kesin.engine.access import companions
from kesin.engine.queue import Queue, apply_changes
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.task import task_lifecycle
from kesin.web.dashboard.jobs import page
from tests.web.conftest import World

_numbers = itertools.count(1)
Open = Callable[..., Queue]


@pytest.fixture
def open_queue(shared_world: World) -> Iterator[Open]:
    queues, opened = shared_world.service.queues, []

    def open_one(**limits: Any) -> Queue:
        name = f"steps{next(_numbers)}"
        rules = task_lifecycle(name, **limits)
        queues[name] = Queue(name, rules, shared_world.store, clock=shared_world.clock)
        opened.append(name)
        return queues[name]

    yield open_one
    for name in opened:
        del queues[name]


@pytest.fixture
def steps(open_queue: Open) -> Queue:
    return open_queue(parents=True)


def read(world: World, job_id: str, who: str = "the-admin", **headers: str) -> str:
    """The page in one line, without its pictures."""
    world.known("the-admin", "admin")
    answer = world.client.get(f"/dashboard/jobs/{job_id}", headers=world.cookie(who) | headers)
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", re.sub(r"<svg.*?</svg>", "", answer.text, flags=re.DOTALL))


def section(text: str, title: str) -> str:
    """The panel with this title."""
    [found] = [one for one in text.split("<section") if f">{title}</h2>" in one]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found.split(">", 1)[1])).strip()


def complete(queue: Queue, job: Job, result: str | None = None) -> None:
    apply_changes(queue, "complete", [Change(job.id, job.claim_seq, result=result)], actor="one")


# Before and after


def test_a_blocked_job_says_what_it_waits_for(shared_world, steps):
    first = [steps.enqueue(n, key=f"page-{n}").id for n in range(3)]
    [job] = steps.claim("one", ids=[first[0]])
    complete(steps, job, '{"rows": 48211}')
    child = steps.enqueue("merge", key="merge", after=first).id
    text = read(shared_world, child)
    assert section(text, "Next") == "Next Waiting for 2 of 3 jobs: page-1 , page-2"
    before = section(text, "Depends on")
    assert before.startswith(f"Depends on page-1 ready {steps.name} page-2 ready")
    assert before.endswith(f"page-0 done {steps.name} {{&#34;rows&#34;: 48211}}")
    assert f'href="/dashboard/jobs/{first[1]}"' in text
    assert ">Needed by<" not in text
    assert section(read(shared_world, first[0]), "Needed by") == (f"Needed by merge blocked {steps.name}")
    turkish = read(shared_world, child, **{"accept-language": "tr"})
    assert "3 işten 2 tanesini bekliyor:" in turkish


def test_a_sentence_names_three_jobs_and_the_panel_all(shared_world, steps):
    first = [steps.enqueue(n, key=f"page-{n}").id for n in range(5)]
    text = read(shared_world, steps.enqueue(9, after=first).id)
    said = section(text, "Next")
    assert said == "Next Waiting for 5 of 5 jobs: page-0 , page-1 , page-2 …"
    assert "page-4" in section(text, "Depends on")


def test_a_job_that_waits_for_more_than_are_listed_says_so(shared_world, steps, monkeypatch):
    monkeypatch.setattr(companions, "MAX_RELATIVES", 2)
    first = [steps.enqueue(n, key=f"page-{n}").id for n in range(4)]
    child = steps.enqueue(9, after=first).id
    assert "Waiting for 2+ of 2+ jobs:" in section(read(shared_world, child), "Next")
    for job in steps.claim("one", limit=3):
        complete(steps, job)
    assert "Waiting for 1 of 2+ jobs: page-3" in section(read(shared_world, child), "Next")


def test_jobs_of_other_sites_are_counted_and_not_named(shared_world, steps):
    shared_world.known("ece", "viewer", sites=["north"])
    hidden = steps.enqueue(1, tenant="south", key="secret-page").id
    child = steps.enqueue(2, tenant="north", after=[hidden]).id
    text = read(shared_world, child, "ece")
    assert section(text, "Next") == "Next Waiting for jobs that you do not have permission to see."
    assert section(text, "Depends on").endswith("you have no access to them: 1")
    assert hidden not in text
    assert "secret-page" not in text


def test_a_job_whose_parents_are_over_moves_on_by_itself(shared_world, steps):
    first = steps.enqueue(1).id
    child = steps.enqueue(2, after=[first]).id
    [job] = steps.claim("one", ids=[first])
    complete(steps, job)
    assert "moves on within a second" in section(read(shared_world, child), "Next")
    steps.settle()
    assert "first in line" in section(read(shared_world, child), "Next")


def test_a_job_that_failed_because_another_did_says_so_in_turkish_too(shared_world, steps):
    first = steps.enqueue(1).id
    child = steps.enqueue(2, after=[first]).id
    steps.act("cancel", actor="tests", ids=[first])
    steps.settle()
    text = read(shared_world, child)
    assert "a job that it depends on did not succeed" in text
    assert "failed CANCELLED" in section(text, "Depends on").replace(steps.name + " ", "")
    turkish = read(shared_world, child, **{"accept-language": "tr"})
    assert "beklediği işlerden biri başarıyla tamamlanmadı" in turkish


def test_long_results_are_cut_and_private_ones_masked(shared_world, steps):
    [job] = steps.claim("one", ids=[steps.enqueue(1, key="k" * 99).id])
    complete(steps, job, '{"email": "ada@example.org", "text": "' + "x" * 999 + '"}')
    said = section(read(shared_world, steps.enqueue(2, after=[job.id]).id), "Depends on")
    assert "ada@example.org" not in said
    assert said.endswith("x…")
    assert len(said) < page.MAX_GIST + page.MAX_KEY_IN_TITLE + 100


# Slots


def test_a_due_job_waits_for_one_of_the_slots(shared_world, open_queue):
    queue = open_queue(concurrency=2)
    ids = [queue.enqueue(n).id for n in range(3)]
    assert "waiting for one of" not in read(shared_world, ids[2])
    queue.claim("one", limit=3)
    said = section(read(shared_world, ids[2]), "Next")
    full = "waiting for one of the 2 slots of running: all are in use."
    assert said == f"Next It is due and is {full}"
    later = queue.enqueue(4, run_at=queue.now() + 60 * SECOND_US).id
    assert "Starts automatically at" in section(read(shared_world, later), "Next")


def test_the_only_slot_of_another_tenant_is_free(shared_world, open_queue):
    queue = open_queue(concurrency=1, per="tenant")
    queue.enqueue(1, tenant="north")
    queue.claim("one")
    north, south = (queue.enqueue(2, tenant=site).id for site in ("north", "south"))
    said = section(read(shared_world, north), "Next")
    assert said == "Next It is due, but running allows only one job at a time, and another job is in it."
    assert "slot" not in section(read(shared_world, south), "Next")


def test_that_others_use_all_slots_is_not_told(shared_world, open_queue):
    shared_world.known("ece", "viewer", sites=["north"])
    queue = open_queue(concurrency=1)
    queue.enqueue(1, tenant="south")
    queue.claim("one")
    job_id = queue.enqueue(2, tenant="north").id
    assert "the next free worker will claim it" in section(read(shared_world, job_id, "ece"), "Next")
    assert "one job at a time" in section(read(shared_world, job_id), "Next")


# Progress


def test_progress_is_a_bar_with_its_message_and_renews_itself_sooner(shared_world, steps):
    job_id = steps.enqueue(1).id
    [job] = steps.claim("one", ids=[job_id])
    assert "<progress" not in read(shared_world, job_id)
    claim = (job.id, job.token)
    steps.store.report_progress(steps.name, claim, 0.4, "page <12>", now=steps.now())
    shared_world.clock.advance(5)
    for headers in ({}, {"hx-request": "true"}):
        text = read(shared_world, job_id, **headers)
        assert '<progress max="1" value="0.4" aria-label="Progress">' in text
        assert "<strong>40%</strong> · page &lt;12&gt; · <span" in text
        assert "5 sec ago" in section(text, "Next")
        assert 'id="job-story" class="stack" data-most="2"' in text
    complete(steps, job)
    text = read(shared_world, job_id)
    assert "<progress" not in text
    assert "data-most" not in text.split('id="job-story"')[1]


def test_progress_without_a_share_is_its_message(shared_world, steps):
    [job] = steps.claim("one", ids=[steps.enqueue(1).id])
    claim = (job.id, job.token)
    steps.store.report_progress(steps.name, claim, None, "reading the plan", now=steps.now())
    text = read(shared_world, job.id)
    assert "<progress" not in text
    assert "reading the plan" in section(text, "Next")
