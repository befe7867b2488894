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

    def __call__(self, action: str, changes: Any, outcomes: Any) -> None:
        assert [change.id for change in changes] == [outcome.id for outcome in outcomes]
        self.calls += [(action, outcome.id, outcome.result) for outcome in outcomes]


def fail_odd(job: Any) -> None:
    if job.payload["n"] % 2:
        raise Failed("ODD")


def test_the_hook_gets_every_result_with_its_outcome(queue: Queue) -> None:
    ids = [queue.enqueue({"n": n}).id for n in range(4)]
    hook = RecordingHook()
    Worker(queue, fail_odd, in_transaction=hook).drain()
    assert sorted(hook.calls) == sorted(
        ("retry" if n % 2 else "complete", job_id, "moved") for n, job_id in enumerate(ids)
    )


def test_what_the_hook_writes_is_committed_or_rolled_back_with_the_result(queue: Queue) -> None:
    fails = True

    def write(_action: str, changes: Any, _outcomes: Any) -> None:
        queue.store.add_note(queue.name, kind="beside", actor="w", job_id=changes[0].id)
        if fails:
            raise RuntimeError("no")

    lost = queue.enqueue({"n": 0}).id
    with pytest.raises(RuntimeError, match="no"):
        Worker(queue, fail_odd, in_transaction=write).drain()
    assert (only(queue).state, queue.notes(lost)) == ("running", [])
    fails = False
    kept = queue.enqueue({"n": 0}).id
    Worker(queue, fail_odd, in_transaction=write).drain()
    assert [note.kind for note in queue.notes(kept)] == ["beside"]


def test_a_committed_result_is_not_reported_as_moved_again(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store was unreachable after the commit, so the result is written twice."""
    queue.enqueue({"n": 0})
    hook = RecordingHook()
    worker = Worker(queue, fail_odd, in_transaction=hook)
    monkeypatch.setattr(worker, "pause", lambda _seconds: None)
    transaction, cuts = queue.store.transaction, iter([True])

    class Cut:
        """Commits, and then loses the connection."""

        def __enter__(self) -> Any:
            self._real = transaction()
            return self._real.__enter__()

        def __exit__(self, *why: Any) -> Any:  # noqa: PYI036  # handed on
            done = self._real.__exit__(*why)
            if why[0] is None and len(hook.calls) == 1 and next(cuts, False):
                raise StoreUnreachable("cut after the commit")
            return done

    monkeypatch.setattr(queue.store, "transaction", Cut)
    worker.drain()
    assert [result for _, _, result in hook.calls] == ["moved", "already"]
    assert states(queue) == {"done": 1}
