"""The audit log as a chain of hashes: what a line's hash covers, and what anchors the chain.

A line's hash covers the hash of the line before, its number, its columns and a digest of its
details. The hashes are not keyed: an owner of the whole database can write another chain. So
every backup holds the head of the chain, under the backup's signature.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

from kesin.foundation.text import canonical_json
from kesin.store.errors import StoreError

START_HASH: Final = hashlib.sha256(b"kesin audit log v1").hexdigest()  # before the first line
CHAIN_ACTOR: Final = "kesin:audit"  # writes the anchors; no user, key or command has this name
BEGIN_ACTION: Final = "audit.begin"
PRUNE_ACTION: Final = "audit.prune"


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
            raise AuditChainBroken("an anchor line of the audit log cannot be understood") from None

    def as_details(self, **more: Any) -> str:
        """The details of an anchor line."""
        body: dict[str, Any] = {**self.start._asdict(), **more}
        if self.older_lines:
            body["older"] = {"lines": self.older_lines, "digest": self.older_digest}
        return canonical_json(body)


def line_hash(before: str, seq: int, line: AuditLine) -> str:
    """The hash of a line, over the hash of the line before it."""
    return _digest([before, seq, *_hashed_columns(line)])


def digest_older(lines: Iterable[AuditLine], count: int = 0, digest: str = "") -> tuple[int, str]:
    """The number and the digest of lines from before the chain, in their order.

    ``count`` and ``digest`` are those of the lines before them.
    """
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
