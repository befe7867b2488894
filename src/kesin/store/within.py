"""The driver's connection behind a caller's own; neither SQLAlchemy nor Django is imported."""

from typing import Any

from kesin.store.errors import StoreError


def driver_connection(given: Any) -> Any:
    """The psycopg or sqlite3 connection; StoreError if it is asynchronous or in no transaction."""
    if hasattr(given, "sync_session") or hasattr(given, "sync_connection"):
        raise StoreError("within: this is asynchronous: await queue.aio.enqueue(…, within=…)")
    if hasattr(given, "get_bind"):  # a session of SQLAlchemy
        given = given.connection()
    if hasattr(given, "exec_driver_sql"):  # a connection of SQLAlchemy
        driver = given.connection.driver_connection
        commits_itself = getattr(driver, "autocommit", None)
        if commits_itself is True or (
            commits_itself is None and getattr(driver, "isolation_level", "") is None
        ):
            raise no_transaction("use another isolation level than AUTOCOMMIT")
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
    """The refusal of a connection that would commit the job at once, and by itself."""
    return StoreError(f"within: the connection is in autocommit, outside a transaction: {remedy}")


def not_ours(given: Any, wanted: str) -> StoreError:
    """The refusal of something that is no connection to this store's database."""
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    return StoreError(f"within: {wanted}, not {kind}")
