"""The errors a store raises: each message says what happened and what to do."""

from collections.abc import Collection

from kesin.foundation.messages import Message


class StoreError(Exception):
    """The store refused a call or failed; the message says what happened and what to do.

    ``values`` fill the placeholders of its message.
    """

    def __init__(self, message: str, **values: object) -> None:
        super().__init__(Message(message, **values) if values else message)


class StoreUnreachable(StoreError):
    """The database is not reachable; whether the last call was carried out is unknown."""


class StoreTrouble(StoreUnreachable):
    """The database's disk or file has failed; nothing was written.

    Restarting does not help. ``code`` is ``disk_full``, ``disk_failing``, ``read_only`` or
    ``damaged``.
    """

    def __init__(self, what: str, remedy: str, code: str) -> None:
        super().__init__(f"{what}: {remedy}")
        self.what = what
        self.remedy = remedy
        self.code = code


class GuardRefused(StoreError):
    """The database's guard refused a change, and nothing of the transaction was written."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the database refused the change: {why.removeprefix('kesin: ')}. A process that started"
            " before an upgrade may have older rules than its queue: restart it"
        )


class UnknownParents(StoreError):
    """Jobs that a new job was to come after are not in this store."""

    def __init__(self, ids: Collection[str]) -> None:
        super().__init__(f"after names jobs that are not in this store: {', '.join(sorted(ids))}"[:200])
        self.ids = frozenset(ids)


class UnknownQueue(StoreError):
    """The queue was never opened on this store."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the queue {queue!r} is not open on this store: open it first")
