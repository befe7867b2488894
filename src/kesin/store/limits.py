"""The limits of a call to a store, and the checks that every store makes first."""

import re
from collections.abc import Iterable, Sequence

from kesin.foundation.ids import all_ids, is_id
from kesin.foundation.messages import Message
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change
from kesin.lifecycle.vocabulary import PRIORITIES, Role
from kesin.store.errors import StoreError
from kesin.store.records import AgedSince

QUEUE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
MAX_BATCH = 10_000  # jobs in one call
MAX_PAGE = 1_000  # rows in one page
FAILURE_PERIOD_US = 1_800_000_000  # of the trend of failures
MAX_FAILURES_READ = 1_000_000  # jobs with an error that one call counts
MAX_KEY = 512  # characters of a dedup key
MAX_TENANT = 128
MAX_PARENTS = 10_000  # jobs that one job comes after
MAX_MESSAGE = 1_000
MAX_CODE = 64
MAX_SQL_PAYLOAD_BYTES = 262_144  # of the SQL function kesin.enqueue, as its migration has it
FIRST_ID = "00000000-0000-0000-0000-000000000000"
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def check_batch_size(batch: Sequence[object]) -> None:
    if len(batch) > MAX_BATCH:
        raise StoreError("an action can apply to at most %(most)s jobs, got %(n)s", most=MAX_BATCH, n=len(batch))


def valid_ids(ids: Sequence[str]) -> list[str]:
    """The well-formed ids among these, each once; raises StoreError for too many ids."""
    check_batch_size(ids)
    return [job_id for job_id in dict.fromkeys(ids) if is_id(job_id)]


def check_queue_name(queue: str, *, reserved: tuple[str, ...] = ()) -> None:
    if not QUEUE_NAME.fullmatch(queue) or queue in reserved:
        raise StoreError(f"{queue!r} is not a queue name: use at most 63 lower-case letters, digits, - and _")


def check_page(limit: int, cursor: str | None) -> None:
    """Raise StoreError for a page of no jobs or too many, and for an invalid cursor."""
    if not 1 <= limit <= MAX_PAGE:
        raise StoreError("a page can have 1…%(most)s jobs, got %(n)s", most=MAX_PAGE, n=limit)
    if cursor is not None and not is_id(cursor):
        raise StoreError("%(cursor)s is not a cursor: use the cursor of the previous page", cursor=repr(cursor))


def moves_for(lifecycle: Lifecycle, action: str, role: Role, queue: str) -> tuple[Move, ...]:
    """The moves of an action that this role may ask for; raises StoreError if there are none."""
    declared = lifecycle.actions.get(action, ())
    moves = tuple(move for move in declared if role in move.by and move.callable)
    if not moves:
        raise StoreError(
            "%(call)s is not an action that the %(role)s can take on the queue %(queue)s",
            call=repr(action),
            role=role,
            queue=repr(queue),
        )
    return moves


def prepare_changes(action: str, moves: Iterable[Move], changes: Sequence[Change]) -> list[Change]:
    """The changes to send to the database: the first one for each job, ordered by id."""
    check_batch_size(changes)
    replaces = any(move.payload == "replace" for move in moves)
    if replaces and any(change.payload is None for change in changes):
        raise StoreError("%(call)s replaces the payload: give a payload for each job", call=action)
    sets_priority = any(move.priority == "input" for move in moves)
    if sets_priority and any(change.priority not in PRIORITIES for change in changes):
        raise StoreError("%(call)s sets the priority: give -1, 0, 1 or 2 for each job", call=action)
    first_changes = {change.id: change for change in reversed(changes)}
    ids = first_changes if all_ids(first_changes) else filter(is_id, first_changes)
    return [first_changes[job_id] for job_id in sorted(ids)]


def check_age_stamp(lifecycle: Lifecycle, queue: str, aged: AgedSince | None) -> None:
    """Raise StoreError unless the stamp is the first: only that one counts a tenant's backlog."""
    if aged is not None and lifecycle.stamps[:1] != aged[:1]:
        raise StoreError(
            "%(stamp)s is not the first stamp of the queue %(queue)s: a filter by age can use only the first stamp",
            stamp=repr(aged[0]),
            queue=repr(queue),
        )


def option_params(moves: tuple[Move, ...], options: frozenset[str]) -> dict[str, bool]:
    """The options of these moves as parameters; raises StoreError for an unknown option."""
    known = {guard.names[0] for move in moves for guard in move.when if guard.kind == "option"}
    unknown = sorted(options - known)
    if unknown:
        names = ", ".join(sorted(known))
        choice = Message("it has %(options)s", options=names) if known else Message("it has none")
        why = "%(call)s has no option %(option)s: %(choice)s"
        raise StoreError(why, call=moves[0].action, option=repr(unknown[0]), choice=choice)
    return {f"option_{name}": name in options for name in known}
