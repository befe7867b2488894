"""A store opens while its server restarts, and says why when it never comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kesin import StoreError, open_store
from kesin.foundation.settings import Settings
from kesin.store.postgres import connections, reachability
from tests.servers import PostgresServer


@pytest.fixture(scope="module")
def server(ready_cluster: Path) -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False, like=ready_cluster) as server:
        yield server


@pytest.fixture
def on_failure(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], list[str]]:
    """Calls a function once the server was asked in vain so often; gives the reasons."""

    def watch(times: int, then: Callable[[], None]) -> list[str]:
        reasons: list[str] = []
        ask = reachability.connection_failure

        def asked(url: str, **how: str) -> str | None:
            why = ask(url, **how)
            if why is not None:
                reasons.append(why)
                if len(reasons) == times:
                    then()
            return why

        monkeypatch.setattr(reachability, "connection_failure", asked)
        return reasons

    monkeypatch.setattr(reachability, "RETRY_S", 0.02)
    monkeypatch.setattr(connections, "RECONNECT_TIMEOUT_S", 0.01)  # it has given up long before
    return watch


def test_a_store_opens_as_soon_as_its_server_is_back(server, on_failure):
    server.stop("immediate")
    reasons = on_failure(3, server.start)
    with closing(open_store(server.url())) as store:
        assert store.health()["store"] == "postgres"
    assert len(reasons) >= 3


def test_a_command_that_runs_for_long_waits_for_its_server(server, on_failure):
    server.stop("immediate")
    on_failure(3, server.start)
    settings = Settings(database_url=server.url())
    reachability.check_reachable(settings, wait_s=30)
    server.stop("immediate")
    with pytest.raises(StoreError, match="KESIN_DATABASE_URL and the server"):
        reachability.check_reachable(settings)
    server.start()


def test_the_last_failure_is_the_reason_of_the_error(tmp_path, on_failure):
    reasons = on_failure(0, lambda: None)
    with pytest.raises(StoreError, match=r"within 0\.2 s: .*No such file or directory"):
        open_store(f"postgresql://nobody@/nothing?host={tmp_path}", wait_s=0.2)
    assert len(reasons) > 1


def test_what_waiting_cannot_mend_is_told_at_once(server, on_failure):
    reasons = on_failure(0, lambda: None)
    with pytest.raises(StoreError, match=r'database: .*"nowhere" does not exist'):
        open_store(server.url("nowhere"))
    assert len(reasons) == 1
