"""Redis comes back without the end of its file: a power cut with ``everysec``, cut at any byte.

Every call is one script, and Redis reads a script of its file whole or not at all. So it is as it
was after some call, whatever was cut, and a transaction that was under way is undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.engine.sweeper import Sweeper
from kesin.store.contract import Store
from kesin.store.redis.store import RedisStore
from tests.faults.cast import Address
from tests.faults.conftest import Place, bring_to_rest, end_of_leases, fill
from tests.redis_server import RedisServer

Step = tuple[int, list[Any]]  # the size of the file, and what must be there with that much of it


def everything(store: Store) -> list[Any]:
    return list(store.scan("work"))


def lived(queue: Queue, file: Path) -> Iterator[Step]:
    """A short life of a queue, in steps."""

    def step() -> Step:
        return file.stat().st_size, everything(store)

    store = queue.store
    fill(queue, 4)
    yield step()
    [job] = queue.claim("w")
    yield step()
    queue.move(job, "complete", result="made")
    yield step()
    before = everything(store)
    with store.transaction():
        [held, _] = queue.claim("w", limit=2)
        yield file.stat().st_size, before
        queue.move(held, "complete")
        fill(queue, 2)
        yield file.stat().st_size, before
    yield step()
    end_of_leases(queue)
    Sweeper([queue]).sweep(("recover",))
    yield step()


def test_redis_is_as_it_was_after_the_last_call_that_is_whole(request: pytest.FixtureRequest):
    """In the short form each step is tried with its last byte or without, by turns."""
    long = request.config.getoption("--long")
    with RedisServer(durable=True) as server:
        address = Address("redis", server.url())
        with closing(address.open()) as store:
            [file] = server.folder.glob("appendonlydir/*.incr.aof")
            steps = list(lived(address.queue(store), file))
        server.kill()
        whole = file.read_bytes()
        for number, ((_, before), (size, now)) in enumerate(zip([(0, []), *steps], steps, strict=False)):
            for missing in (0, 1, 40) if long else (number % 2,):
                file.write_bytes(whole[: size - missing])
                server.start()
                with closing(address.open()) as store:
                    assert isinstance(store, RedisStore)
                    place = Place(address, store)
                    place.bury()
                    queue = address.queue(store)
                    assert everything(store) == (before if missing else now)
                    assert [str(difference) for difference in verify(store, "work").differences] == []
                    bring_to_rest(queue, [])
                server.kill()
