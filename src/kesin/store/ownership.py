"""Who owns an open transaction: one task of one thread.

A transaction is found through a context variable, so tasks of one event loop do not meet in it.
The variable alone is not enough: child tasks and ``asyncio.to_thread`` inherit it, and would write
through a connection that is returned to the pool under them. So the owner is written down beside
it, and anybody else is refused at once.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kesin.foundation.forks import ForkAware
from kesin.store.errors import StoreError

Handle = TypeVar("Handle")
NO_THREAD: Final = 0  # no thread has this number


@dataclass(slots=True, eq=False)
class OpenTransaction(Generic[Handle]):
    """A transaction, the thread and task it belongs to, and whether its block has ended."""

    handle: Handle
    thread: int
    task: object | None
    is_open: bool = True


class Ownership(ForkAware, Generic[Handle]):
    """The open transactions of one store; a ``Handle`` is what its calls run on."""

    def __init__(self) -> None:
        self._inherited: ContextVar[OpenTransaction[Handle] | None] = ContextVar("kesin_transaction", default=None)
        self._newest: OpenTransaction[Handle] | None = None
        self.watch_forks()

    def joined(self) -> Handle | None:
        """The handle of the caller's transaction, None outside of one; refuses another's."""
        transaction = self._inherited.get()
        if transaction is None or not transaction.is_open:
            return None
        if transaction.thread != threading.get_ident() or transaction.task is not _current_task():
            raise StoreError(
                "this code was started inside a transaction of another task, thread or process: a"
                " transaction belongs to the task that opened it; finish it first, or make this"
                " call there"
            )
        return transaction.handle

    def require_free(self) -> None:
        """For stores with one transaction at a time: refuse to wait for a task of this thread."""
        newest = self._newest
        if newest is not None and newest.is_open and newest.thread == threading.get_ident():
            raise StoreError(
                "another task in this thread has an open transaction on this store, which allows one at a"
                " time: do not await inside the block, or make this call in asyncio.to_thread"
            )

    def after_fork_in_child(self) -> None:
        """A transaction stays with the parent; a child forked inside its block is refused."""
        self._newest = None
        transaction = self._inherited.get()
        if transaction is not None:
            transaction.thread = NO_THREAD

    @contextmanager
    def held(self, handle: Handle, *, callers: bool = False) -> Iterator[None]:
        """Let the caller own a transaction until the block ends: the store's, or the caller's."""
        transaction = OpenTransaction(handle, threading.get_ident(), _current_task())
        previous = self._newest
        if not callers:
            self._newest = transaction
        token = self._inherited.set(transaction)
        try:
            yield
        finally:
            transaction.is_open = False
            if not callers:
                self._newest = previous
            with suppress(ValueError):  # ended from another context, where nothing is to be reset
                self._inherited.reset(token)


def _current_task() -> object | None:
    asyncio = sys.modules.get("asyncio")  # without it there are no tasks
    if asyncio is None or asyncio._get_running_loop() is None:  # noqa: SLF001  # it raises nothing
        return None
    task: object | None = asyncio.current_task()
    return task


def driver_connection(given: Any) -> Any:
    """The psycopg or sqlite3 connection; StoreError if it is asynchronous or in no transaction."""
    if hasattr(given, "sync_session") or hasattr(given, "sync_connection"):
        raise StoreError("within: this connection is asynchronous: await queue.aio.enqueue(…, within=…)")
    if hasattr(given, "get_bind"):  # a session of SQLAlchemy
        given = given.connection()
    if hasattr(given, "exec_driver_sql"):  # a connection of SQLAlchemy
        driver = given.connection.driver_connection
        commits_itself = getattr(driver, "autocommit", None)
        if commits_itself is True or (commits_itself is None and getattr(driver, "isolation_level", "") is None):
            raise no_transaction("use an isolation level other than AUTOCOMMIT")
        if not given.in_transaction():
            given.begin()  # as its first statement would
        return driver
    if hasattr(given, "in_atomic_block"):  # Django
        if not given.in_atomic_block and given.get_autocommit():
            raise no_transaction("enqueue inside transaction.atomic()")
        given.ensure_connection()
        return given.connection
    return given


def no_transaction(remedy: str) -> StoreError:
    return StoreError(f"within: the connection is in autocommit mode, outside a transaction: {remedy}")


def not_ours(given: Any, wanted: str) -> StoreError:
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    return StoreError(f"within: {wanted}, not {kind}")
