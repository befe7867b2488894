"""A command and its line in the audit log: both or neither."""

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import New, Queue
from kesin.foundation.permissions import system_actor
from kesin.foundation.problems import Invalid
from kesin.lifecycle.task import task_lifecycle
from kesin.store.directory import Directory
from kesin.store.records import Filter
from tests.store.conftest import opened

BOSS = system_actor("boss")


class Crash(Exception):
    pass


@pytest.fixture(params=["sqlite-file", "postgres"])
def commands(request):
    with opened(request.param, request) as store:
        queue = Queue("task", task_lifecycle(), store)
        queue.enqueue_many([New({"n": n}) for n in range(3)])
        yield Commands({"task": queue}, Accounts(Directory(store)))


@pytest.fixture
def no_audit(commands, monkeypatch):
    def crash(*_args, **_named):
        raise Crash

    monkeypatch.setattr(commands.accounts.directory, "add_audit", crash)


CALLS = {
    "a bulk action": lambda all_: all_.act(BOSS, "task", "cancel", where=Filter()),
    "a pause": lambda all_: all_.pause(BOSS, "task"),
    "births": lambda all_: all_.enqueue(BOSS, "task", [New({})]),
}


@pytest.mark.parametrize("what", CALLS)
def test_what_cannot_be_noted_is_not_done(what, commands, no_audit):
    with pytest.raises(Crash):
        CALLS[what](commands)
    queue = commands.queues["task"]
    assert queue.stats().states["ready"] == queue.stats().total == 3
    assert queue.store.paused("task") == []


@pytest.mark.parametrize("what", CALLS)
def test_what_is_done_is_noted_once(what, commands):
    CALLS[what](commands)
    (line,) = commands.accounts.directory.audit()
    assert (line.actor, line.allowed, line.queue) == ("boss", True, "task")


def test_an_action_that_meets_no_job_is_noted_too(commands):
    commands.act(BOSS, "task", "cancel", where=Filter(states=("failed",)))
    (line,) = commands.accounts.directory.audit()
    assert line.action == "queue.cancel"


def test_a_call_that_only_its_door_makes_whole_is_neither_offered_nor_taken_elsewhere(commands):
    commands.restricted_actions = {"task": frozenset({"cancel"})}
    queue = commands.queues["task"]
    [job, *_] = queue.jobs().jobs
    assert "cancel" not in commands.offered_actions(queue)
    assert "cancel" not in commands.job(BOSS, job.id).actions
    with pytest.raises(Invalid) as refused:
        commands.act(BOSS, "task", "cancel", ids=[job.id])
    assert refused.value.code == "needs_door"
    assert queue.stats().states["ready"] == 3
    assert commands.act(BOSS, "task", "cancel", ids=[job.id], by_workload=True).moved == 1
