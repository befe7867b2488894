"""The audit log in the database, a chain of hashes: lines are added to it, searched and pruned.

A line's hash covers the hash of the line before, its number, its columns and a digest of its
details. The hashes are not keyed: an owner of the whole database can write another chain. So
every backup holds the head of the chain, under the backup's signature.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import chain, takewhile
from typing import Any, Final, NamedTuple, Self

from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.store.contract import Store
from kesin.store.errors import StoreError
from kesin.store.sql.dialect import shared_statements
from kesin.store.sql.reader import escape_like
from kesin.store.sql.store import SqlStore

Row = tuple[Any, ...]

START_HASH: Final = hashlib.sha256(b"kesin audit log v1").hexdigest()  # before the first line
CHAIN_ACTOR: Final = "kesin:audit"  # writes the anchors; no user, key or command has this name
BEGIN_ACTION: Final = "audit.begin"
PRUNE_ACTION: Final = "audit.prune"
LAST_AUDIT_ID: Final = (1 << 63) - 1
PRUNE_BATCH: Final = 10_000
CHAIN_BATCH: Final = 1_000  # lines of the chain that are read at a time
MAX_SEARCHED_LINES: Final = 100_000  # audit lines that one substring search reads


class AuditChainBroken(StoreError):
    """The audit log is not what was written; `kesin audit verify` says where."""


class AuditLine(NamedTuple):
    """One request of an actor, and whether it was allowed."""

    id: int
    at: int
    actor: str
    action: str
    allowed: bool
    queue: str | None = None
    site: str | None = None
    target: str | None = None
    details: str | None = None  # JSON
    request_id: str | None = None
    address: str | None = None


class ChainedLine(NamedTuple):
    """A line with its number in the chain and its hash; older lines have neither."""

    line: AuditLine
    seq: int | None
    hash: str | None


class AuditHead(NamedTuple):
    """The number and the hash of a line: of the newest one, or of the last that was pruned."""

    seq: int
    hash: str


class AuditAnchor(NamedTuple):
    """What an anchor line says: where the chain begins, and which lines are older than it."""

    start: AuditHead = AuditHead(0, START_HASH)
    older_lines: int = 0
    older_digest: str = ""

    @classmethod
    def from_details(cls, details: str | None) -> Self:
        """Read the details of an anchor line; raises AuditChainBroken."""
        try:
            body = json.loads(details or "")
            older = body.get("older", {"lines": 0, "digest": ""})
            start = AuditHead(int(body["seq"]), str(body["hash"]))
            return cls(start, int(older["lines"]), str(older["digest"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AuditChainBroken("an anchor line of the audit log cannot be read") from None

    def as_details(self, **more: Any) -> str:
        body: dict[str, Any] = {**self.start._asdict(), **more}
        if self.older_lines:
            body["older"] = {"lines": self.older_lines, "digest": self.older_digest}
        return canonical_json(body)


class _Gathered(NamedTuple):
    lines: list[AuditLine]
    undo: list[Callable[[], None]]  # called if the lines are not added


_GATHERED: ContextVar[_Gathered | None] = ContextVar("kesin_audit_lines", default=None)


def kept_since(days: int, now: int) -> int:
    """When the lines that are kept begin; whole days, since each pruning leaves a line."""
    day_us = DAY_S * SECOND_US
    return (now // day_us - days) * day_us


class AuditPage(NamedTuple):
    """The lines a search found, and where the next search continues; None at the end."""

    lines: list[AuditLine]
    before: int | None


class AuditLog:
    """The audit log of a store. A line locks the chain's head: a transaction adds its line last."""

    def __init__(self, store: Store) -> None:
        store = store.store_for("")
        if not isinstance(store, SqlStore):
            raise StoreError("users and keys are kept in SQLite or PostgreSQL")
        self._store = store
        statements, write = shared_statements("directory"), store.dialect.write
        self._sql = cache(lambda statement: write(statements[statement]))

    def transaction(self) -> AbstractContextManager[Any]:
        """Commit all calls inside the block together, or none of them."""
        return self._store.transaction()

    def _read(self, statement: str, **params: Any) -> list[Row]:
        texts = [value for value in params.values() if isinstance(value, str)]
        if any(storable(text) != text for text in texts):  # PostgreSQL would refuse the query
            return []
        return self._store._read(self._sql(statement), params)  # noqa: SLF001  # same package

    def _rows(self, statement: str, **params: Any) -> list[Row]:
        return self._store._rows(self._sql(statement), params)  # noqa: SLF001

    def add_audit(self, line: AuditLine) -> None:
        gathered = _GATHERED.get()
        if gathered is not None:
            gathered.lines.append(line)
        else:
            self._add_lines([line])

    @contextmanager
    def gathered_audit(self) -> Iterator[None]:
        """Add the lines of the block at its end, where a group of calls shares a transaction."""
        gathered = _Gathered([], [])
        token = _GATHERED.set(gathered)
        try:
            try:
                yield
            finally:
                _GATHERED.reset(token)
            if gathered.lines:
                self._add_lines(gathered.lines)
        except BaseException:
            for undo in reversed(gathered.undo):
                undo()
            raise

    def if_undone(self, undo: Callable[[], None]) -> None:
        """Call this if the block that gathers lines now fails: they are not added."""
        if (gathered := _GATHERED.get()) is not None:
            gathered.undo.append(undo)

    def _add_lines(self, lines: Sequence[AuditLine]) -> None:
        with self.transaction():
            head = self._lock_chain(lines[0].at)
            for line in lines:
                head = self._append(head, line)

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        queue: str | None = None,
        site: str | None = None,
        target: str | None = None,
        before: int = LAST_AUDIT_ID,
        limit: int = 100,
    ) -> list[AuditLine]:
        """The newest matching lines with ids below ``before``."""
        wanted = {"actor": actor, "action": action, "queue": queue, "site": site, "target": target}
        rows = self._read("audit", **wanted, before=before, limit=limit)
        return [_audit_line_from_row(row) for row in rows]

    def search_audit(
        self, *, queue: str | None = None, before: int = LAST_AUDIT_ID, limit: int = 100, **parts: str
    ) -> AuditPage:
        """The newest lines with these parts; reads up to a limit, as no index finds substrings."""
        newest = self._read("newest_audit", before=before)[0][0]
        if newest is None:
            return AuditPage([], None)
        since = max(newest - MAX_SEARCHED_LINES + 1, 0)
        patterns: dict[str, str | None] = dict.fromkeys(("actor", "action", "site", "target"))
        patterns |= {name: f"%{escape_like(part.lower())}%" for name, part in parts.items()}
        rows = self._read("search_audit", **patterns, queue=queue, before=before, since=since, limit=limit + 1)
        lines = [_audit_line_from_row(row) for row in rows[:limit]]
        if len(rows) > limit:
            return AuditPage(lines, lines[-1].id)
        older = self._read("newest_audit", before=since)[0][0]
        return AuditPage(lines, since if older is not None else None)

    def prune_audit(self, before: int, now: int) -> int:
        """Delete a batch of the oldest lines, of times before this; return how many.

        It ends at the first line that is newer, even if a clock went back after it. What is left
        begins at an anchor: a line with the number and the hash of the last one that is gone.
        Raises AuditChainBroken, and deletes nothing, if those lines are not what was written.
        """
        with self.transaction():
            head = self._lock_chain(now)
            anchor = self.audit_anchor()
            rows = self._rows("prune_audit", before=before, end=LAST_AUDIT_ID, limit=PRUNE_BATCH)
            if not rows:
                return 0
            lines = sorted(map(_chained_line, rows), key=lambda chained: chained.line.id)
            older = [chained.line for chained in lines if chained.seq is None]
            if digest_older(chain(older, self._older_lines())) != anchor[1:]:
                raise AuditChainBroken("the audit lines from before the chain were changed")
            start = require_unbroken(anchor.start, lines[len(older) :])
            left = AuditAnchor(start, *digest_older(self._older_lines()))
            self._append(head, _anchor_line(PRUNE_ACTION, now, left, lines=len(lines), before=before))
            return len(lines)

    # The chain

    def audit_head(self) -> AuditHead | None:
        """The head of the chain; None before its first line."""
        rows = self._read("audit_head")
        return AuditHead._make(rows[0]) if rows else None

    def audit_anchor(self) -> AuditAnchor:
        """Where the chain begins, by its newest anchor line."""
        lines = self.audit(actor=CHAIN_ACTOR, limit=1)
        return AuditAnchor.from_details(lines[0].details) if lines else AuditAnchor()

    def audit_chain(self) -> Iterator[ChainedLine]:
        """All lines in the order of the chain; those from before it come first."""
        after = 0
        while rows := self._read("audit_chain", after=after, limit=CHAIN_BATCH):
            yield from map(_chained_line, rows)
            after = rows[-1][0]

    def _lock_chain(self, now: int) -> AuditHead:
        """Lock the head until the transaction ends; a new chain begins with what is older."""
        rows = self._rows("hold_audit_head")
        if not rows:
            self._rows("begin_audit_head", hash=START_HASH)
            rows = self._rows("hold_audit_head")
        head = AuditHead._make(rows[0])
        if head.seq:
            return head
        lines, digest = digest_older(self._older_lines())
        if not lines:
            return head
        return self._append(head, _anchor_line(BEGIN_ACTION, now, AuditAnchor(head, lines, digest)))

    def _append(self, head: AuditHead, line: AuditLine) -> AuditHead:
        new = AuditHead(head.seq + 1, line_hash(head.hash, head.seq + 1, line))
        columns = {**line._asdict(), **new._asdict(), "allowed": int(line.allowed)}
        del columns["id"]
        self._rows("add_audit", **columns)
        self._rows("move_audit_head", **new._asdict())
        return new

    def _older_lines(self) -> Iterator[AuditLine]:
        """The lines from before the chain: they come first."""
        chained_lines = takewhile(lambda chained: chained.seq is None, self.audit_chain())
        return (chained.line for chained in chained_lines)


def _anchor_line(action: str, now: int, anchor: AuditAnchor, **more: int) -> AuditLine:
    return AuditLine(0, now, CHAIN_ACTOR, action, allowed=True, details=anchor.as_details(**more))


def _audit_line_from_row(row: tuple[Any, ...]) -> AuditLine:
    return AuditLine._make((*row[:4], bool(row[4]), *row[5:]))


def _chained_line(row: tuple[Any, ...]) -> ChainedLine:
    return ChainedLine(_audit_line_from_row(row[:-2]), *row[-2:])


def line_hash(before: str, seq: int, line: AuditLine) -> str:
    """The hash of a line, over the hash of the line before it."""
    return _digest([before, seq, *_hashed_columns(line)])


def digest_older(lines: Iterable[AuditLine], count: int = 0, digest: str = "") -> tuple[int, str]:
    """The number and digest of older lines in their order, after ``count`` lines of ``digest``."""
    for line in lines:
        count, digest = count + 1, _digest([digest, *_hashed_columns(line)])
    return count, digest


def require_unbroken(start: AuditHead, lines: Iterable[ChainedLine]) -> AuditHead:
    """The head after these lines; raises AuditChainBroken unless each continues the one before."""
    head = start
    for line, seq, stored in lines:
        if seq != head.seq + 1:
            raise AuditChainBroken(f"lines of the audit log are missing after number {head.seq}")
        head = AuditHead(seq, line_hash(head.hash, seq, line))
        if stored != head.hash:
            raise AuditChainBroken(f"the audit line {line.id} (number {seq}) was changed")
    return head


def _hashed_columns(line: AuditLine) -> list[Any]:
    """All columns but the id, which a copy assigns; of the details, the digest."""
    digest = None if line.details is None else hashlib.sha256(line.details.encode()).hexdigest()
    return [
        *(line.at, line.actor, line.action, int(line.allowed), line.queue, line.site, line.target),
        *(digest, line.request_id, line.address),
    ]


def _digest(values: list[Any]) -> str:
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
