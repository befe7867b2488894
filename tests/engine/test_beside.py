"""What is written beside an answer, in the transaction that writes it."""

from typing import Any

import pytest

from kesin import Failed, Queue, Worker
from kesin.store.errors import StoreUnreachable
from tests.engine.conftest import only, states


class Beside:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def __call__(self, call: str, changes: Any, outcomes: Any) -> None:
        assert [one.id for one in changes] == [one.id for one in outcomes]
        self.told += [(call, one.id, one.result) for one in outcomes]


def odd_ones_fail(job: Any) -> None:
    if job.data["n"] % 2:
        raise Failed("ODD")


def test_it_is_told_of_every_answer_and_what_became_of_it(queue: Queue) -> None:
    ids = [queue.enqueue({"n": n}).id for n in range(4)]
    beside = Beside()
    Worker(queue, odd_ones_fail, beside=beside).drain()
    assert sorted(beside.told) == sorted(
        ("retry" if n % 2 else "complete", one, "moved") for n, one in enumerate(ids)
    )


def test_what_it_writes_is_kept_with_the_answer(queue: Queue) -> None:
    queue.enqueue({"n": 0})
    told = Worker(
        queue,
        odd_ones_fail,
        beside=lambda _call, changes, _outcomes: queue.store.add_note(
            queue.name, kind="beside", actor="w", job_id=changes[0].id
        ),
    )
    told.drain()
    job = only(queue)
    assert [one.kind for one in queue.notes(job.id)] == ["beside"]


def test_when_it_fails_neither_is_kept(queue: Queue) -> None:
    queue.enqueue({"n": 0})

    def refuse(_call: str, changes: Any, _outcomes: Any) -> None:
        queue.store.add_note(queue.name, kind="beside", actor="w", job_id=changes[0].id)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        Worker(queue, odd_ones_fail, beside=refuse).drain()
    job = only(queue)
    assert job.state == "running"
    assert queue.notes(job.id) == []


def test_an_answer_that_got_through_is_not_told_as_moved_again(queue: Queue) -> None:
    """The store was away after the commit: the second try meets what the first one did."""
    queue.enqueue({"n": 0})
    beside = Beside()
    worker = Worker(queue, odd_ones_fail, beside=beside)
    worker.pause = lambda seconds: None  # type: ignore[method-assign]
    transaction, away = queue.store.transaction, iter([True])

    class Cut:
        """Commits, and says that it did not hear of it."""

        def __enter__(self) -> Any:
            self._real = transaction()
            return self._real.__enter__()

        def __exit__(self, *why: Any) -> Any:  # noqa: PYI036  # handed on
            done = self._real.__exit__(*why)
            if why[0] is None and len(beside.told) == 1 and next(away, False):
                raise StoreUnreachable("cut after the commit")
            return done

    queue.store.transaction = Cut  # type: ignore[method-assign,assignment]
    worker.drain()
    assert [result for _, _, result in beside.told] == ["moved", "already"]
    assert states(queue) == {"done": 1}
