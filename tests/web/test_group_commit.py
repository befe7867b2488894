"""Calls that arrive together share a commit, and each has the answer that it would have alone."""

import asyncio
import json
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.access.audit_verification import verify_audit_log
from kesin.engine.access.masking import MASK
from kesin.engine.new_job import NewJob
from kesin.foundation.permissions import system_actor
from kesin.foundation.problems import Forbidden
from kesin.store.errors import StoreUnreachable
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Filter, Outcome
from kesin.web import pools
from kesin.web.pools import MAX_BYTES, MAX_CALLS, GroupCommit
from tests.web.conftest import MakeWorld, World, actor

KINDS = ("job", "job", "job", "job", "bad", "orphan", "masked", "forbidden", "lost", "bug")
ADMIN = system_actor("cli:tests")


def gathered(group: GroupCommit, calls: Sequence[tuple[int, Callable[[], Any]]]) -> list[Any]:
    """What comes of calls that all arrive while an earlier one is under way."""
    began, go = threading.Event(), threading.Event()

    def first() -> None:
        began.set()
        go.wait()

    async def run() -> list[Any]:
        held = asyncio.ensure_future(group.gather(0, first))
        await asyncio.to_thread(began.wait)
        tasks = [asyncio.ensure_future(group.gather(size, call)) for size, call in calls]
        await asyncio.sleep(0)  # each of them is in line now
        go.set()
        await held
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run())


def enqueue(world: World, tenant: str, kind: str, key: str) -> list[Any]:
    new: dict[str, Any] = {"payload": {"n": key}, "key": key, "tenant": tenant}
    wrong: dict[str, dict[str, Any]] = {"bad": {"priority": 9}, "orphan": {"after": ["no id"]}}
    new |= wrong.get(kind, {"payload": {"mail": MASK}} if kind == "masked" else {})
    who = actor() if kind == "forbidden" else ADMIN
    queue = "nowhere" if kind == "lost" else "task"
    outcomes = world.service.commands.enqueue(who, queue, [NewJob(**new)])
    if kind == "bug":
        raise ZeroDivisionError
    return outcomes


def shown(answers: Sequence[Any]) -> list[Any]:
    """The answers with ids as the places where they came up first."""
    ids: dict[str, int] = {}
    readable: list[Any] = []
    for answer in answers:
        if isinstance(answer, Exception):
            readable.append((type(answer), str(answer)))
        elif isinstance(answer[0], Outcome):
            readable.append((answer[0].result, ids.setdefault(answer[0].id, len(ids))))
        else:
            readable.append((type(answer[0]), str(answer[0])))
    return readable


def alone(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as problem:  # noqa: BLE001  # it is the answer
        return problem


@pytest.mark.parametrize("either_world", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 20))])
def test_any_mix_of_enqueues_gets_the_answers_and_leaves_the_jobs_that_each_would_alone(either_world: World, seed: int):
    dice, world = random.Random(seed), either_world
    kinds = KINDS if seed % 2 else KINDS[:-1]
    mix = [(dice.choice(kinds), f"key {dice.randrange(8)}") for _ in range(25)]
    answers, left = [], []
    for tenant in ("north", "south"):
        calls = [partial(enqueue, world, tenant, kind, key) for kind, key in mix]
        if tenant == "north":
            answers.append(shown([alone(call) for call in calls]))
        else:
            answers.append(shown(gathered(world.service.writes, [(1, call) for call in calls])))
        jobs = world.task.jobs(Filter(tenants=(tenant,)), limit=100).jobs
        left.append([(job.payload, job.dedup_key) for job in jobs])
    assert answers[0] == answers[1]
    assert left[0] == left[1]
    assert not verify_audit_log(world.accounts.directory).problems


def test_enqueues_that_arrive_together_are_one_transaction(world: World, monkeypatch: pytest.MonkeyPatch):
    commits: list[None] = []
    begin = world.service.store._begin  # type: ignore[attr-defined]
    monkeypatch.setattr(world.service.store, "_begin", lambda: commits.append(begin()))
    calls = [partial(enqueue, world, "north", "job", str(n)) for n in range(50)]
    answers = gathered(world.service.writes, [(1, call) for call in calls])
    assert [answer[0].result for answer in answers] == ["inserted"] * 50
    assert len(commits) == 1
    lines = [line for line in world.audit() if line.action == "queue.enqueue"]
    assert len(lines) == 50


def test_a_commit_is_bounded_in_calls_and_bytes_and_keeps_the_order(world: World, monkeypatch: pytest.MonkeyPatch):
    group, ran, sizes = world.service.writes, list[int](), list[int]()
    together = group._run_together

    def counted(calls: Sequence[Any]) -> list[Any]:
        sizes.append(len(calls))
        return together(calls)

    monkeypatch.setattr(group, "_run_together", counted)
    calls = [(1, partial(ran.append, n)) for n in range(2 * MAX_CALLS)]
    calls += [(MAX_BYTES // 2, partial(ran.append, n)) for n in range(1_000, 1_004)]
    gathered(group, calls)
    assert ran == [*range(2 * MAX_CALLS), *range(1_000, 1_004)]
    assert sizes == [MAX_CALLS, MAX_CALLS, 2, 2]


def test_no_call_is_answered_as_done_if_the_commit_fails(world: World, monkeypatch: pytest.MonkeyPatch):
    transaction = world.accounts.directory.transaction
    ran: list[int] = []

    class Failing:
        def __enter__(self) -> None:
            self._inner = transaction()
            self._inner.__enter__()

        def __exit__(self, *_: object) -> None:
            away = StoreUnreachable("away")
            self._inner.__exit__(StoreUnreachable, away, None)
            raise away

    group = world.service.writes
    monkeypatch.setattr(group._directory, "transaction", Failing)
    answers = gathered(group, [(1, partial(ran.append, n)) for n in range(3)])
    assert [type(answer) for answer in answers] == [StoreUnreachable] * 3
    assert ran == [0, 1, 2]  # and none a second time: it may have been committed


def test_what_no_answer_waits_for_runs_too_and_its_failure_harms_no_other(world: World):
    group, ran = world.service.writes, threading.Event()

    def fail() -> None:
        ran.set()
        raise OSError

    def enqueue_later() -> list[Any]:
        group.run_later(fail)
        return enqueue(world, "north", "job", "a")

    answers = gathered(group, [(1, enqueue_later), (1, lambda: enqueue(world, "north", "job", "b"))])
    assert [answer[0].result for answer in answers] == ["inserted", "inserted"]
    assert ran.wait(30)


def test_a_group_that_is_undone_leaves_each_refusal_in_the_audit_log_once(either_world: World):
    world, who = either_world, actor()
    kinds = ("forbidden", "forbidden", "forbidden", "bug")
    calls = [partial(enqueue, world, "north", kind, "a") for kind in kinds]
    answers = gathered(world.service.writes, [(1, call) for call in calls])
    assert [type(answer) for answer in answers] == [*[Forbidden] * 3, ZeroDivisionError]
    world.accounts.write_counted_refusals(unfinished=True)
    lines = [line for line in world.audit() if line.actor == who.name]
    assert [(line.action, json.loads(line.details or "{}").get("refused")) for line in lines] == [
        ("queue.enqueue", None),
        ("access.refused", 2),
    ]


def test_refusals_of_an_earlier_minute_are_written_once_after_a_group_is_undone(world: World):
    refused = partial(enqueue, world, "north", "forbidden", "a")
    for _ in range(3):
        alone(refused)
    world.clock.advance(61)
    gathered(world.service.writes, [(1, refused), (1, partial(enqueue, world, "n", "bug", "b"))])
    world.accounts.write_counted_refusals(unfinished=True)
    lines = [line for line in world.audit() if line.actor == actor().name]
    assert [line.action for line in lines] == ["queue.enqueue", "access.refused", "queue.enqueue"]
    assert json.loads(lines[1].details or "")["refused"] == 2


def test_of_two_services_whose_groups_take_keys_in_opposite_order_the_victim_runs_again(
    make_world: MakeWorld, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = make_world("postgres")
    assert isinstance(first.store, PostgresStore)
    quick = f"{postgres_url}&" if "?" in postgres_url else f"{postgres_url}?"
    quick += "options=-c%20deadlock_timeout%3D20ms"
    store = PostgresStore(quick, schema=first.store.schema, listen=False)
    try:
        worlds = (first, World(store, tmp_path))
        both = threading.Barrier(2)
        undone: list[Sequence[Any]] = []
        run_alone = pools._run_alone

        def noted(calls: Sequence[Any]) -> list[Any]:
            undone.append(calls)
            return run_alone(calls)

        monkeypatch.setattr(pools, "_run_alone", noted)

        def meet(met: list[None] = []) -> None:  # noqa: B006  # shared by both, and by a second run
            if len(met) < 2:
                met.append(None)
                both.wait(30)

        def group(world: World, *keys: str) -> list[Any]:
            calls = [partial(enqueue, world, "north", "job", key) for key in keys]
            return gathered(world.service.writes, [(1, calls[0]), (1, meet), (1, calls[1])])

        with ThreadPoolExecutor(2) as threads:
            running = [
                threads.submit(group, world, *keys)
                for world, keys in zip(worlds, (("a", "b"), ("b", "a")), strict=True)
            ]
            (a1, _, b1), (b2, _, a2) = (each.result(60) for each in running)
        assert {a1[0].result, a2[0].result} == {b1[0].result, b2[0].result}
        assert sorted(each[0].result for each in (a1, b1, a2, b2)) == [*["duplicate"] * 2, *["inserted"] * 2]
        assert (a1[0].id, b1[0].id) == (a2[0].id, b2[0].id)
        assert [len(calls) for calls in undone if len(calls) > 1] == [3]
        assert len(first.task.jobs(Filter(), limit=10).jobs) == 2
        assert not verify_audit_log(first.accounts.directory).problems
    finally:
        store.close()
