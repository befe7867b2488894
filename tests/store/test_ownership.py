"""A transaction belongs to one task of one thread; anybody else is refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kesin.store.errors import StoreError
from kesin.store.postgres.store import PostgresStore
from tests.store.scene import Scene, rolled_back

OTHERS_TASK = "belongs to the task that opened it"
ONE_AT_A_TIME = "one at a time"


@pytest.fixture
def enqueue(task: Scene) -> Callable[[], str]:
    """Enqueue one job; return its result."""
    return lambda: task.enqueue(task.new())[0].result


def number_of_jobs(task: Scene) -> int:
    return sum(task.store.stats(task.queue, now=task.now).states.values())


def run(coroutine):
    """Run a test's coroutine; a call that waits for its own thread would hang here forever."""
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def _answer(call: Callable[[], object]) -> object:
    try:
        return call()
    except StoreError as refused:
        return refused


async def with_a_transaction_open(task, enqueue, *, while_open, undo):
    """One task enqueues in a transaction and awaits another, then commits or rolls back."""
    opened, done = asyncio.Event(), asyncio.Event()

    async def owner():
        with rolled_back(task.store) if undo else task.store.transaction():
            enqueue()
            opened.set()
            await done.wait()

    async def other():
        await opened.wait()
        try:
            return [_answer(call) for call in while_open]
        finally:
            done.set()

    # Both are made here, so neither inherits the other's context.
    return (await asyncio.gather(owner(), other()))[1]


@pytest.mark.parametrize("undo", [False, True], ids=["commit", "roll back"])
def test_another_task_is_not_drawn_into_the_transaction_and_reads_only_what_is_committed(task, enqueue, undo):
    calls = (lambda: number_of_jobs(task)), enqueue
    read, answer = run(with_a_transaction_open(task, enqueue, while_open=calls, undo=undo))
    assert read == 0 or ONE_AT_A_TIME in str(read)
    if isinstance(task.store, PostgresStore):  # it has a connection of its own
        assert answer == "inserted"
    else:
        assert ONE_AT_A_TIME in str(answer)
    assert number_of_jobs(task) == (not undo) + (answer == "inserted")


def test_overlapping_transactions_leave_the_store_in_order(task, enqueue):
    async def overlap():
        first_is_open, second_was_tried, first_is_closed = (asyncio.Event() for _ in range(3))

        async def first():
            with task.store.transaction():
                enqueue()
                first_is_open.set()
                await second_was_tried.wait()
            first_is_closed.set()

        async def second():
            await first_is_open.wait()
            try:
                with task.store.transaction():
                    enqueue()
                    second_was_tried.set()
                    await first_is_closed.wait()
            finally:
                second_was_tried.set()

        return await asyncio.gather(first(), second(), return_exceptions=True)

    answers = run(overlap())
    refused = [answer for answer in answers if answer is not None]
    assert len(refused) == (0 if isinstance(task.store, PostgresStore) else 1)
    assert all(ONE_AT_A_TIME in str(problem) for problem in refused)
    assert enqueue() == "inserted"  # the thread's later calls are as ever
    assert number_of_jobs(task) == 3 - len(refused)


async def _in_a_child_task(call):
    async def child():
        return call()

    return await asyncio.create_task(child())


async def _in_to_thread(call):
    return await asyncio.to_thread(call)


def test_who_is_started_inside_is_refused(task, enqueue):
    task_id = task.create_job()

    async def owner():
        with task.store.transaction():
            enqueue()
            for start in (_in_a_child_task, _in_to_thread):
                for call in (lambda: task.job(task_id), enqueue):
                    with pytest.raises(StoreError, match=OTHERS_TASK):
                        await start(call)
            enqueue()  # the owner goes on

    run(owner())
    assert number_of_jobs(task) == 3


def test_a_child_task_that_outlives_the_block_is_free(task, enqueue):
    async def owner():
        over = asyncio.Event()

        async def child():
            await over.wait()
            return enqueue()

        with rolled_back(task.store):
            enqueue()
            child_task = asyncio.create_task(child())
            await asyncio.sleep(0)
        over.set()
        return await child_task

    assert run(owner()) == "inserted"
    assert number_of_jobs(task) == 1


def test_a_block_ended_in_another_context_still_ends(task, enqueue):
    """An asynchronous fixture enters a block in one context and leaves it in another."""

    async def fixture():
        with task.store.transaction():
            enqueue()
            yield

    async def owner():
        steps = fixture()
        await asyncio.create_task(_next(steps))

        async def rest():
            with pytest.raises(StopAsyncIteration):
                await _next(steps)

        await rest()
        return enqueue()

    async def _next(steps):
        return await anext(steps)

    assert run(owner()) == "inserted"
    assert number_of_jobs(task) == 2
