"""Verifies the chain of the audit log up to its head; it reads again if lines were pruned."""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kesin.store.audit_log import AuditAnchor, AuditChainBroken, AuditHead, AuditLine, AuditLog, digest_older, line_hash

_MAX_READINGS: Final = 3  # pruning runs once a day


@dataclass(slots=True)
class AuditVerification:
    """What was found. Without ``problems``, the audit log is what was written."""

    lines: int = 0  # in the chain
    older: int = 0  # from before the chain
    missing: int = 0
    pruned_to: int = 0  # the number of the last line that was pruned
    head: AuditHead | None = None
    first_broken: int | None = None  # the id of a line
    problems: list[str] = field(default_factory=list)

    def add_problem(self, text: str, line: AuditLine | None = None, missing: int = 0) -> None:
        """Add a problem; of the lines, the first one is kept."""
        self.problems.append(text)
        self.missing += max(missing, 0)
        if line is not None and self.first_broken is None:
            self.first_broken = line.id

    def verify_line(self, before: AuditHead, line: AuditLine, seq: int, stored: str) -> None:
        if gap := seq - before.seq - 1:
            self.add_problem(f"{lines_missing(gap)} before the line {line.id}", line, gap)
        elif line_hash(before.hash, seq, line) != stored:
            self.add_problem(f"the line {line.id} or the one before it was changed", line)

    def add_older_problem(self, anchor: AuditAnchor, oldest: AuditLine | None) -> None:
        missing = anchor.older_lines - self.older
        what = f"{missing} missing" if missing > 0 else "one was changed or added"
        text = f"of {anchor.older_lines} lines from before the chain, {what}"
        self.add_problem(text, oldest, missing)

    def verify_head(self, end: AuditHead, head: AuditHead, last: AuditLine | None) -> None:
        if gap := max(head.seq - end.seq, 0):
            after = f"after the line {last.id}" if last else "and no line is left"
            self.add_problem(f"{lines_missing(gap)} {after}", last, gap)
        elif end.hash != head.hash and head.seq:
            self.add_problem("the newest line is not the head of the chain", last)

    def verify_known(self, known: AuditHead, found: str | None) -> None:
        head_seq = self.head.seq if self.head else 0
        if known.seq > head_seq:
            self.missing += known.seq - head_seq
            self.add_problem(f"the log ends at line number {head_seq}, but the backup at {known.seq}")
        elif known.seq > self.pruned_to and found is None:
            self.add_problem(f"line number {known.seq}, at which the backup ended, is missing")
        elif found is not None and found != known.hash:
            self.add_problem(f"line number {known.seq} differs from the one in the backup")

    def as_record(self) -> dict[str, Any]:
        return asdict(self) | {"head": self.head and self.head._asdict()}


def verify_audit_log(
    log: AuditLog, known: AuditHead | None = None, *, known_is_kept: bool = False
) -> AuditVerification:
    """Verify the chain and an earlier head; ``known_is_kept``: too young to have been pruned."""
    result = AuditVerification()
    for _ in range(_MAX_READINGS):
        result = AuditVerification(head=log.audit_head())
        try:
            anchor = log.audit_anchor()
            _verify(log, result, anchor, known)
            if known_is_kept and known is not None and known.seq <= result.pruned_to:
                result.add_problem(
                    f"line number {known.seq}, at which the backup ended, was pruned although lines of its age are kept"
                )
            if not result.problems or log.audit_anchor() == anchor:
                break
        except AuditChainBroken as problem:
            result.add_problem(str(problem))
    return result


def _verify(log: AuditLog, result: AuditVerification, anchor: AuditAnchor, known: AuditHead | None) -> None:
    head = result.head or AuditHead(0, "")
    result.pruned_to = anchor.start.seq
    older, oldest = (0, ""), None
    before, last, known_hash = anchor.start, None, _hash_at(anchor.start, known)
    for line, seq, stored in log.audit_chain():
        if seq is None and last is None:
            older, oldest = digest_older([line], *older), oldest or line
            continue
        if seq is None:
            result.add_problem(f"the line {line.id} is outside the chain", line)
            continue
        if seq > head.seq:  # added meanwhile, or the head was put back
            break
        result.verify_line(before, line, seq, stored or "")
        before, last = AuditHead(seq, stored or ""), line
        known_hash = known_hash or _hash_at(before, known)
        result.lines += 1
    result.older = older[0]
    if result.head is not None and older != anchor[1:]:
        result.add_older_problem(anchor, oldest)
    result.verify_head(before, head, last)
    if known is not None:
        result.verify_known(known, known_hash)


def lines_missing(n: int) -> str:
    return "1 line is missing" if n == 1 else f"{n} lines are missing"


def _hash_at(place: AuditHead, known: AuditHead | None) -> str | None:
    return place.hash if known is not None and place.seq == known.seq else None
