"""Pools: sign-ins and imports wait for each other, not others for them, and not without bound."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kesin.foundation import passwords
from kesin.foundation.problems import Invalid, TooManyRequests
from kesin.web.pools import WorkPool
from kesin.workloads.optiplan.api import routes
from tests.cli.programs import wait_until
from tests.web.client import Client
from tests.web.conftest import SAME_ORIGIN, World, error_of

PATIENCE_S = 20
REFUSED = 5  # of those that come while two run and eight wait


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Closed until the test is over, or opens it."""
    event = threading.Event()
    yield event
    event.set()


def test_a_call_runs_in_a_thread_of_the_pool_and_its_result_comes_back():
    pool = WorkPool("test", "tests", threads=1, waiting=0)
    name, total = asyncio.run(pool.run(lambda *n: (threading.current_thread().name, sum(n)), 1, 2))
    assert (name.startswith("kesin-test"), total) == (True, 3)


def test_an_exception_comes_back_and_frees_its_place():
    pool = WorkPool("test", "tests", threads=1, waiting=0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(pool.run(divmod, 1, 0))


def test_only_so_many_calls_wait_and_the_next_is_told_when_to_come_back(gate):
    pool = WorkPool("test", "tests", threads=1, waiting=2)

    async def crowd() -> list[Any]:
        calls = [asyncio.ensure_future(pool.run(gate.wait, PATIENCE_S)) for _ in range(3)]
        await asyncio.sleep(0)  # all of them have their places
        with pytest.raises(TooManyRequests) as refused:
            await pool.run(gate.wait)
        gate.set()
        assert refused.value.retry_after_s == 2
        done = await asyncio.gather(*calls)
        return [*done, await pool.run(gate.wait)]

    assert asyncio.run(crowd()) == [True] * 4


def test_a_call_that_nobody_waits_for_any_more_frees_its_place(gate):
    pool = WorkPool("test", "tests", threads=1, waiting=1)

    async def leave() -> bool:
        running = asyncio.ensure_future(pool.run(gate.wait, PATIENCE_S))
        waiting = asyncio.ensure_future(pool.run(gate.wait, PATIENCE_S))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        again = asyncio.ensure_future(pool.run(gate.wait, PATIENCE_S))
        await asyncio.sleep(0)
        gate.set()
        return await running and await again

    assert asyncio.run(leave())


def crowd_out(
    world: World, ask: Callable[[Client, int], Any], started: threading.Semaphore, gate: threading.Event
) -> list[Any]:
    """Answers to more requests than run and wait; meanwhile somebody else is served."""
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(ask(Client(world.app, address=f"198.51.100.{n}"), n)))
        for n in range(10 + REFUSED)
    ]
    for thread in threads:
        thread.start()
    for _ in range(2):  # run
        assert started.acquire(timeout=PATIENCE_S)
    listed = world.client.get("/api/queues", headers=world.key("read"))
    assert listed.status_code == 200
    wait_until(lambda: len(answers) == REFUSED)
    gate.set()
    for thread in threads:
        thread.join()
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == REFUSED
    assert {answer.headers["retry-after"] for answer in refused} == {"2"}
    return answers


def test_sign_ins_do_not_hold_up_others_and_too_many_at_once_are_refused(ayse, gate, monkeypatch):
    started = threading.Semaphore(0)

    def slow(*_: Any) -> bool:
        started.release()
        return not gate.wait(PATIENCE_S)

    monkeypatch.setattr(passwords, "password_matches", slow)
    credentials = {"name": "ayse", "password": "wrong"}

    def ask(client: Client, n: int) -> Any:
        if n % 2:
            return client.post("/api/session", json=credentials)
        return client.post("/sign-in", data=credentials, headers=SAME_ORIGIN)

    answers = crowd_out(ayse, ask, started, gate)
    assert {answer.status_code for answer in answers} == {401, 429}


def test_imports_do_not_hold_up_others_and_too_many_at_once_are_refused(world, gate, monkeypatch):
    started = threading.Semaphore(0)

    def slow(*_: Any, **__: Any) -> Any:
        started.release()
        gate.wait(PATIENCE_S)
        raise Invalid("no list")

    monkeypatch.setattr(routes, "read_order_list", slow)
    headers = world.key("optiplan") | {"content-type": "text/csv"}

    def ask(client: Client, n: int) -> Any:
        return client.post(f"/orders/o{n}/import/xlsx", content=b"x", headers=headers)

    answers = crowd_out(world, ask, started, gate)
    codes = {error_of(answer)["code"] for answer in answers if answer.status_code == 429}
    assert codes == {"busy"}


def test_the_schema_is_built_outside_the_event_loop(world, monkeypatch):
    loops: list[bool] = []

    def openapi() -> dict[str, Any]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loops.append(False)
        else:
            loops.append(True)
        return {}

    monkeypatch.setattr(world.app, "openapi", openapi)
    assert world.client.get("/openapi.json").status_code == 200
    assert loops == [False]
