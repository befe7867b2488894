"""The calls whose plans are checked: each action, sweep, listing and read of a store."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from kesin.lifecycle.declare import Move
from kesin.lifecycle.model import Change, Job, MoveContext, failing_guard
from kesin.store.contract import Store
from kesin.store.records import Filter, NewJobRow
from tests.store.crowd import DAY, NOW, QUEUES, TENANTS
from tests.store.scene import rolled_back

BATCH = 50
SMALL = 10_000


@dataclass(frozen=True)
class Rows:
    """The jobs that calls are made of, looked up once."""

    held: dict[str, list[Job]]  # queue → jobs under a live claim, of each state enough for a batch
    at_rest: dict[str, list[Job]]


def read_rows(store: Store) -> Rows:
    held: dict[str, list[Job]] = {}
    at_rest: dict[str, list[Job]] = {}
    for queue, lifecycle in QUEUES.items():
        working = [state.name for state in lifecycle.states if state.working]
        pages = [store.jobs(queue, Filter(states=(name,)), limit=1_000).jobs for name in working]
        held[queue] = [job for page in pages for job in page if (job.lease_until or 0) > NOW]
        resting = [state.name for state in lifecycle.states if state.resting]
        filters = [
            Filter(states=(name,), categories=(category,))
            for name in resting
            for category in ("VALIDATION", "TRANSIENT")
        ]
        pages = [store.jobs(queue, where, limit=BATCH).jobs for where in filters]
        at_rest[queue] = [job for page in pages for job in page]
    return Rows(held, at_rest)


@dataclass(frozen=True)
class Call:
    """One thing to ask of a store; ``size`` is how many jobs it is about, ``uses`` its way in."""

    name: str
    uses: frozenset[str]
    make: Callable[[Store, int], Any]
    moves: int = BATCH  # jobs that it must find when it is asked for a batch
    visits: int = 20 * BATCH  # rows that any step of its plan may touch


def calls(rows: Rows, *, listed: Collection[str] = ("oci", "optiplan")) -> Iterator[Call]:
    """Pages of every queue are read by the same statements: those of two queues say what all say."""
    for queue, lifecycle in QUEUES.items():
        yield from _claims(queue)
        yield from _finishes(queue, rows)
        if queue in listed:
            yield from _listings(queue, rows)
        yield from _reads(queue, rows)
        for number, move in enumerate(lifecycle.scheduled_moves):
            yield _sweep(queue, number, move)
    yield from _new_jobs()


def _claims(queue: str) -> Iterator[Call]:
    for what, tenants in (("named", ["t1"]), ("three", ["t0", "t1", "nowhere"]), ("shared", None)):
        yield Call(
            f"{queue} claim {what}",
            frozenset({"job_ready", "job_pkey", "job_body_pkey"}),
            lambda store, size, tenants=tenants: store.claim(  # type: ignore[misc]
                queue, worker="w", limit=size, lease_us=60_000_000, tenants=tenants, now=NOW
            ),
        )


BY_ID = frozenset({"job_pkey"})


def _finishes(queue: str, rows: Rows) -> Iterator[Call]:
    lifecycle = QUEUES[queue]

    def apply(
        call: str, jobs: list[Job], role: Any, *, apart: bool = False, **values: Any
    ) -> Callable[[Store, int], Any]:
        fenced = role == "worker" and jobs and jobs[0].worker
        changes = [Change(job.id, job.claim_seq if fenced else None, **values) for job in jobs]
        if apart:
            changes = [change._replace(note=str(n)) for n, change in enumerate(changes)]
        return lambda store, size: store.apply(queue, call, changes[:size], role=role, actor="w", now=NOW)

    for call in lifecycle.actions_of("worker"):
        moves = lifecycle.actions[call]
        sources = {source for move in moves for source in move.sources}
        jobs = [job for job in rows.held[queue] if job.state in sources]
        if jobs and not moves[0].claims:
            values = {"error_code": "E", "error_category": "TRANSIENT", "result": "1"}
            slot = any(lifecycle.state[m.to].exclusive for m in moves if m.to in lifecycle.state)
            for how, apart in (("alike", False), ("apart", True)):
                made = apply(call, jobs, "worker", apart=apart, **values)
                yield Call(f"{queue} {call} with values {how}", BY_ID, made, 1 if slot else BATCH)
    context = MoveContext(NOW, "operator")
    for call in lifecycle.actions_of("operator"):
        jobs = [
            job
            for job in rows.at_rest[queue]
            for move in lifecycle.actions[call]
            if job.state in move.sources and not failing_guard(move, job, lifecycle, context, None)
        ]
        if jobs:
            made = apply(call, jobs, "operator", payload='{"new":1}')
            yield Call(f"{queue} {call} by people", BY_ID, made)
    held = rows.held[queue]
    wrong = [job._replace(claim_seq=1) for job in held]
    first = next(call for call in lifecycle.actions_of("worker") if _fenced(lifecycle.actions[call]))
    yield Call(f"{queue} {first} of lost claims", BY_ID, apply(first, wrong, "worker"), 0)
    yield Call(
        f"{queue} renew",
        BY_ID,
        lambda store, size: store.renew(
            queue, [(job.id, 2) for job in held[:size]], lease_us=2 * 3_600_000_000, now=NOW
        ),
    )


def _fenced(moves: tuple[Move, ...]) -> bool:
    return any(move.guard("holds_claim") for move in moves)


def _sweep(queue: str, number: int, move: Move) -> Call:
    aged = move.guard("age_over")
    way = "job_state"
    if move.guard("lease_over"):
        way = "job_owned"
    elif move.guard("timer_over"):
        way = "job_timer"
    elif move.guard("budget_spent"):
        way = "job_spent"
    elif aged and aged.names[0] in QUEUES[queue].stamps:
        way = "job_aged" if aged.names[0] == QUEUES[queue].stamps[0] else "job_ended"
    none_due = move.name == "xml_timeout" or _too_young(queue, move)
    return Call(
        f"{queue} sweep {number} {move.name} {'/'.join(move.sources)}",
        BY_ID if none_due else frozenset({way, "job_pkey"}),
        lambda store, size: store.sweep(queue, move, limit=size, now=NOW),
        moves=0 if none_due else BATCH,
    )


def _too_young(queue: str, move: Move) -> bool:
    """Retention longer than the crowd's sixty days."""
    aged = move.guard("age_over")
    return move.prunes and aged is not None and aged.number > 60 * 86_400


def _listings(queue: str, rows: Rows) -> Iterator[Call]:
    ways = frozenset({"job_state", "job_pkey", "job_body_pkey"})
    ended = tuple(state.name for state in QUEUES[queue].states if state.terminal)
    filters = {
        "everything": Filter(),
        "one state": Filter(states=ended),
        "a tenant": Filter(tenants=("t1", "nowhere")),
        "a state of a tenant": Filter(states=ended, tenants=("t1",)),
        "since": Filter(created_before=NOW),
        "the oldest": Filter(oldest_first=True),
        "the oldest of a tenant": Filter(tenants=("t1",), oldest_first=True),
    }
    middle = rows.at_rest[queue][-1].id
    for name, where in filters.items():
        for cursor in (None, middle):
            yield Call(
                f"{queue} list {name}{' from the middle' if cursor else ''}",
                ways,
                lambda store, size, where=where, cursor=cursor: store.jobs(  # type: ignore[misc]
                    queue, where, limit=size, cursor=cursor
                ),
                moves=0,
                visits=SMALL // 2,  # among few jobs, sorting them is the cheaper way
            )
    yield Call(
        f"{queue} list a rare code",
        frozenset({"job_error", "job_pkey", "job_body_pkey"}),
        lambda store, size: store.jobs(queue, Filter(codes=("NOBODY_HAS_IT",)), limit=size),
        moves=0,
    )
    for text, tenants, moves in (("n17", None, 1), ("n17", ("t1", "nowhere"), 1), ("n", None, BATCH)):
        found = {"search_found"} if moves == 1 else {"search_found", "search_term_pkey", "job_state"}
        where = Filter(search=text, tenants=tenants)
        yield Call(
            f"{queue} search {text}{' of a tenant' if tenants else ''}",
            frozenset({*found, "job_pkey", "job_body_pkey"}),  # of too many, the newest
            lambda store, size, where=where: store.jobs(queue, where, limit=size).jobs,  # type: ignore[misc]
            moves=moves,
            visits=SMALL // 2,
        )
    for name, where in (("", Filter()), (" a category", Filter(categories=("NONE",)))):
        yield Call(
            f"{queue} count{name}",
            frozenset({"job_state", "job_owned"}),
            lambda store, size, where=where: store.count_matching(  # type: ignore[misc]
                queue, where, limit=size
            ),
            moves=0,
        )
    yield Call(
        f"{queue} count a rare code",
        frozenset({"job_error"}),
        lambda store, size: store.count_matching(queue, Filter(codes=("NONE",)), limit=size),
        moves=0,
    )
    some = rows.at_rest[queue][0].id
    yield Call(f"{queue} one job", BY_ID, lambda store, _: store.job(some), 0)
    yield Call(f"{queue} its events", frozenset({"event_pkey"}), lambda store, _: store.events(some), 0)
    yield Call(f"{queue} stats", frozenset(), lambda store, _: store.stats(queue, now=NOW), moves=0)
    yield Call(
        f"{queue} failures",
        frozenset({"job_failure"}),
        lambda store, _: tuple(store.failures(queue, tenants=["nowhere"])),
        moves=0,
    )


def _reads(queue: str, rows: Rows) -> Iterator[Call]:
    for what, tenants in (("named", ["t1"]), ("shared", None)):
        yield Call(
            f"{queue} peek {what}",
            frozenset({"job_ready", "job_pkey", "job_body_pkey"}),
            lambda store, size, tenants=tenants: store.peek(  # type: ignore[misc]
                queue, limit=size, tenants=tenants, now=NOW
            ),
            moves=1 if queue == "optiplan" else BATCH,
        )
    some = [job.id for job in rows.at_rest[queue]]
    yield Call(
        f"{queue} find",
        frozenset({"job_pkey", "job_body_pkey"}),
        lambda store, size: list(store.find(queue, some[:size]).values()),
    )
    keys = [f"key-{number}" for number in range(0, 4 * BATCH, 2)]
    yield Call(
        f"{queue} holders",
        frozenset({"job_body_key"}),
        lambda store, size: store.ids_by_key(queue, "t0", keys[:size]),
        moves=0,
    )
    stamps = QUEUES[queue].stamps[:1]
    aged = (stamps[0], NOW - 90 * DAY) if stamps else None
    for tenant in ("t1", "stranger"):  # of whom there is no row in any state
        yield Call(
            f"{queue} waiting of {tenant}",
            frozenset({"job_ready", "job_state", "job_owned"} | ({"job_aged"} if aged else set())),
            lambda store, _, tenant=tenant: store.backlog(  # type: ignore[misc]
                queue, tenant, aged=aged, now=NOW
            ),
            moves=0,
        )
    if queue == "oci":
        key = Filter(dedup_key="key-4", tenants=("t0", "t1"))
        yield Call(
            "oci list a key of tenants",
            frozenset({"job_body_key", "job_pkey", "job_body_pkey"}),
            lambda store, size: store.jobs(queue, key, limit=size).jobs,
            moves=1,
        )


def _new_jobs() -> Iterator[Call]:
    def enqueue(store: Store, size: int) -> Any:
        news = [
            NewJobRow(
                f"01a31700-0000-7000-8000-{number:012x}",
                "{}",
                5,
                number,
                f"t{number % TENANTS}",
                f"key-{number}" if number % 4 == 0 else None,
            )
            for number in range(size)
        ]
        return store.enqueue("oci", news, actor="producer", now=NOW)

    yield Call("oci enqueue, some of them duplicates", frozenset({"job_body_key"}), enqueue, BATCH // 2)


def made(answer: Any) -> int:
    """How many jobs a call moved or claimed."""
    if isinstance(answer, int):
        return answer
    if isinstance(answer, set):
        return len(answer)
    if isinstance(answer, list):
        return sum(isinstance(row, Job) or row.result in ("moved", "inserted") for row in answer)
    return 0


def moved_by(store: Store, call: Call, size: int) -> int:
    """Make the call and roll it back; return how many jobs it moved."""
    with rolled_back(store):
        return made(call.make(store, size))
