"""A command and its audit line are written both or neither."""

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.workload import Workload
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
        queue.enqueue_many([NewJob({"n": n}) for n in range(3)])
        yield Commands({"task": queue}, Accounts(Directory(store)))


@pytest.fixture
def no_audit(commands, monkeypatch):
    def crash(*_args, **_named):
        raise Crash

    monkeypatch.setattr(commands.accounts.directory, "add_audit", crash)


COMMANDS = {
    "a bulk action": lambda commands: commands.act(BOSS, "task", "cancel", where=Filter()),
    "a pause": lambda commands: commands.pause(BOSS, "task"),
    "an enqueue": lambda commands: commands.enqueue(BOSS, "task", [NewJob({})]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_audit_line_fails_is_not_executed(name, commands, no_audit):
    with pytest.raises(Crash):
        COMMANDS[name](commands)
    queue = commands.queues["task"]
    assert queue.stats().states["ready"] == queue.stats().total == 3
    assert queue.store.paused("task") == []


def test_an_action_on_no_job_has_an_audit_line_too(commands):
    commands.act(BOSS, "task", "cancel", where=Filter(states=("failed",)))
    (line,) = commands.accounts.directory.audit()
    assert line.action == "queue.cancel"


def test_a_restricted_action_is_neither_offered_nor_accepted_from_others(commands):
    restricted = frozenset({"cancel"})
    commands.workloads = {"task": Workload("task", task_lifecycle, restricted_actions=restricted)}
    queue = commands.queues["task"]
    [job, *_] = queue.jobs().jobs
    assert "cancel" not in commands.offered_actions(queue)
    assert "cancel" not in commands.job(BOSS, job.id).actions
    with pytest.raises(Invalid) as refused:
        commands.act(BOSS, "task", "cancel", ids=[job.id])
    assert refused.value.code == "needs_workload"
    with pytest.raises(Invalid, match="use the page, API or command of"):
        commands.preview(BOSS, "task", "cancel", ids=[job.id])
    assert queue.stats().states["ready"] == 3
    assert commands.act(BOSS, "task", "cancel", ids=[job.id], by_workload=True).moved == 1
