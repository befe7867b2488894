"""A process that forks with a store open: `python -m tests.store.forked STORES`.

Parent and child then use the store at the same time. STORES is JSON, one list for each store: its
name in the report, what is done with it, its URL and, in PostgreSQL, its schema. The parent prints
what both got as JSON.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from kesin import ManualClock, Queue, StoreError, task_lifecycle
from kesin.engine.replay import verify
from kesin.foundation.ids import IdMaker
from kesin.store.open import open_store
from kesin.store.postgres.store import PostgresStore
from kesin.store.redis.store import RedisStore

JOBS = 5
THREADS = 2


def opened(url: str, schema: str | None) -> Any:
    if schema:
        return PostgresStore(url, schema=schema, migrate=True)
    store = open_store(url)
    if isinstance(store, RedisStore):
        store.migrate()
    return store


def forked(child: Callable[[], Any], parent: Callable[[], Any]) -> tuple[Any, Any]:
    """What both return. The child ends as a program does, with all that runs at the end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            json.dump(child(), pipe)
        sys.exit(0)
    os.close(writer)
    result = parent()
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, f"the child ended with {status}"
    return result, json.loads(text)


def use(queue: Queue, ids: IdMaker, name: str) -> dict[str, Any]:
    """Enqueue and claim in several threads until nothing is left."""
    enqueued: list[str] = []
    claimed: list[str] = []

    def run() -> None:
        for number in range(JOBS):
            enqueued.append(queue.enqueue({"by": name, "n": number}).id)
            for job in queue.claim(name, limit=3):
                assert queue.job(job.id) is not None
                claimed.append(job.id)
                queue.move(job, "complete")

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"made": ids.make(100), "enqueued": enqueued, "claimed": claimed}


@contextmanager
def held_by_another_thread(store: Any) -> Iterator[None]:
    """Let a thread hold the lock of the Redis client's pool at the fork, as any call does at times.

    The parent's thread releases it after the fork; the child has no such thread.
    """
    if not isinstance(store, RedisStore):
        yield
        return
    pool: Any = store.client.connection_pool
    holding, has_forked = threading.Event(), threading.Event()

    def hold() -> None:
        with pool._lock:
            holding.set()
            has_forked.wait()

    threading.Thread(target=hold).start()
    holding.wait()
    os.register_at_fork(after_in_parent=has_forked.set)
    yield


def together(store: Any) -> dict[str, Any]:
    queue = Queue("work", task_lifecycle(), store)
    ids = IdMaker(ManualClock())
    ids.make(1)
    queue.enqueue({"n": 0})
    store.wait("work", store.notification_count("work") - 1, 0.0)  # starts the listener
    threading.Thread(target=queue.stats).start()
    with held_by_another_thread(store):
        parent, child = forked(lambda: use(queue, ids, "child"), lambda: use(queue, ids, "parent"))
    rest = [job.id for job in queue.claim("rest", limit=1_000)]
    differences = [str(difference) for difference in verify(store, "work").differences]
    return {"parent": parent, "child": child, "rest": rest, "differences": differences}


def inside(store: Any) -> dict[str, Any]:
    """Fork inside a transaction: it stays the parent's."""
    queue = Queue("inside", task_lifecycle(), store)
    refused: list[str] = []
    reader, writer = os.pipe()
    try:
        with store.transaction():
            first = queue.enqueue({"n": 1}).id
            pid = os.fork()
            if pid == 0:
                try:
                    queue.enqueue({"n": 2})
                except StoreError as problem:
                    refused.append(str(problem))
            else:
                os.waitpid(pid, 0)
                second = queue.enqueue({"n": 3}).id
    except BaseException as problem:  # noqa: BLE001  # the child's end of the block
        refused.append(type(problem).__name__)
    if pid == 0:
        os.write(writer, json.dumps(refused).encode())
        os._exit(0)
    jobs = sorted(job.id for job in queue.jobs().jobs)
    return {"jobs": jobs, "wanted": [first, second], "refused": json.loads(os.read(reader, 9_999))}


def left_alone(store: Any) -> dict[str, Any]:
    """The parent closes its store while the child still writes."""
    queue = Queue("work", task_lifecycle(), store)
    to_child, to_parent = os.pipe(), os.pipe()

    def child() -> list[str]:
        ids = [queue.enqueue({"n": 1}).id]
        os.write(to_parent[1], b".")
        os.read(to_child[0], 1)
        return [*ids, queue.enqueue({"n": 2}).id]

    def parent() -> None:
        os.read(to_parent[0], 1)
        store.close()
        os.write(to_child[1], b".")

    _, ids = forked(child, parent)
    return {"ids": ids}


def main(stores: str) -> None:
    modes = {"together": together, "inside": inside, "left_alone": left_alone}
    reports: dict[str, dict[str, Any]] = {}
    for name, wanted, url, schema in json.loads(stores):
        with closing(opened(url, schema)) as store:
            reports[name] = {mode: modes[mode](store) for mode in wanted}
    sys.stdout.write(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
