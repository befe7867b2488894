"""The result hook: it runs in the transaction that writes results."""

from typing import Any

import pytest

from kesin import Failed, Queue, Worker
from kesin.store.errors import StoreUnreachable
from tests.engine.conftest import only, states


class RecordingHook:
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []

    def __call__(self, call: str, changes: Any, outcomes: Any) -> None:
        assert [one.id for one in changes] == [one.id for one in outcomes]
        self.calls += [(call, one.id, one.result) for one in outcomes]


def odd_ones_fail(job: Any) -> None:
    if job.data["n"] % 2:
        raise Failed("ODD")


def test_it_is_told_of_every_answer_and_what_became_of_it(queue: Queue) -> None:
    ids = [queue.enqueue({"n": n}).id for n in range(4)]
    hook = RecordingHook()
    Worker(queue, odd_ones_fail, on_results=hook).drain()
    assert sorted(hook.calls) == sorted(
        ("retry" if n % 2 else "complete", job_id, "moved") for n, job_id in enumerate(ids)
    )


def test_what_it_writes_is_kept_with_the_answer(queue: Queue) -> None:
    queue.enqueue({"n": 0})
    worker = Worker(
        queue,
        odd_ones_fail,
        on_results=lambda _call, changes, _outcomes: queue.store.add_note(
            queue.name, kind="beside", actor="w", job_id=changes[0].id
        ),
    )
    worker.drain()
    job = only(queue)
    assert [note.kind for note in queue.notes(job.id)] == ["beside"]


def test_when_it_fails_neither_is_kept(queue: Queue) -> None:
    queue.enqueue({"n": 0})

    def refuse(_call: str, changes: Any, _outcomes: Any) -> None:
        queue.store.add_note(queue.name, kind="beside", actor="w", job_id=changes[0].id)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        Worker(queue, odd_ones_fail, on_results=refuse).drain()
    job = only(queue)
    assert job.state == "running"
    assert queue.notes(job.id) == []


def test_an_answer_that_got_through_is_not_told_as_moved_again(queue: Queue) -> None:
    """The store was away after the commit: the second try meets what the first one did."""
    queue.enqueue({"n": 0})
    hook = RecordingHook()
    worker = Worker(queue, odd_ones_fail, on_results=hook)
    worker.pause = lambda seconds: None  # type: ignore[method-assign]
    transaction, away = queue.store.transaction, iter([True])

    class Cut:
        """Commits, and says that it did not hear of it."""

        def __enter__(self) -> Any:
            self._real = transaction()
            return self._real.__enter__()

        def __exit__(self, *why: Any) -> Any:  # noqa: PYI036  # handed on
            done = self._real.__exit__(*why)
            if why[0] is None and len(hook.calls) == 1 and next(away, False):
                raise StoreUnreachable("cut after the commit")
            return done

    queue.store.transaction = Cut  # type: ignore[method-assign,assignment]
    worker.drain()
    assert [result for _, _, result in hook.calls] == ["moved", "already"]
    assert states(queue) == {"done": 1}
