"""Every history the reference model allows, walked without the prover's help.

A job is moved with the real ``failing_guard`` and ``step`` by an adversary who picks the worker's
moves, lets workers die, renew or lose their lease, and lets time pass or not. Rows that differ
only in what no guard can read (sequence numbers, ids, how far back a time lies) are one node, so
the walk is finite and exhaustive. Nothing of ``explore``, ``cycles`` or ``prove`` is used here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job, MoveContext, apply_move, failing_guard
from kesin.lifecycle.vocabulary import OWNED, Role

NOW = 1_000_000_000_000_000  # microseconds; the walk's clock always reads this after settling
SECOND = 1_000_000
LONG_AGO = 0

Error = tuple[str, str]


def new_job(lifecycle: Lifecycle, **columns: Any) -> Job:
    """A job as the enqueue leaves it, with ``columns`` changed; phase follows state and worker."""
    row: dict[str, Any] = {
        **dict.fromkeys(Job._fields),
        "id": "job-1",
        "queue": lifecycle.name,
        "tenant": "default",
        "state": lifecycle.initial.name,
        "move": "enqueue",
        "actor": "producer",
        "seq": 1,
        "claim_seq": 0,
        "payload_seq": 1,
        "attempt_count": 0,
        "attempt_base": 0,
        "return_count": 0,
        "max_attempts": lifecycle.max_attempts,
        "retry_count": 0,
        "salt": 0,
        "flags": 0,
        "created_at": NOW,
        "moved_at": NOW,
        "run_at": NOW,
        "payload_json": "{}",
        **columns,
    }
    row["phase"] = OWNED if row["worker"] else lifecycle.unowned_phase(row["state"])
    return Job(**row)


class Waking(NamedTuple):
    """A wake-up in progress: how the job stood before it, and how many moves it has made since."""

    stood: tuple[object, ...]
    moves: int


class Node(NamedTuple):
    job: Job
    waking: Waking | None = None


class Edge(NamedTuple):
    weight: int  # moves made; a wake-up that comes back to how the job stood takes its own back
    to: Node
    made: tuple[Move, ...] = ()  # empty: time passed, or a lease was renewed
    waits: bool = False  # time passed


@dataclass
class History:
    """What the walk saw: the automatic edges, and every promise it found broken."""

    lifecycle: Lifecycle
    start: Node = field(init=False)
    edges: dict[Node, list[Edge]] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    rests_claimed: set[str] = field(default_factory=set)
    overdrawn: set[str] = field(default_factory=set)
    claimed_twice: set[str] = field(default_factory=set)
    unfenced: set[str] = field(default_factory=set)
    ambiguous: set[str] = field(default_factory=set)
    _open: dict[tuple[str, Role], list[tuple[str, list[Move]]]] = field(default_factory=dict)

    @cached_property
    def retries_read(self) -> int:
        """The retry count beyond which no guard and no backoff tells one from the next."""
        moves = self.lifecycle.moves
        guards = [g.number for move in moves for g in move.when if g.kind == "retries_left"]
        timed = [time for move in moves for time in (move.run_at, move.timer)]
        waits = [len(time.delays_s) for time in timed if isinstance(time, Backoff)]
        return max([0, *guards, *waits])

    @property
    def faults(self) -> dict[str, set[str]]:
        """Every broken promise by name; empty when all hold."""
        named = {
            "stuck": self.stuck,
            "rests claimed": self.rests_claimed,
            "waits forever": self.waits_forever,
            "overdrawn": self.overdrawn,
            "claimed twice": self.claimed_twice,
            "unfenced": self.unfenced,
            "ambiguous": self.ambiguous,
        }
        return {name: found for name, found in named.items() if found}

    @property
    def states(self) -> set[str]:
        """Every state a job was seen in."""
        return {node.job.state for node in self.edges}

    @property
    def waits_forever(self) -> set[str]:
        """States in which a job wakes up again and again while time passes, and not for a slot.

        A timer that cuts the wake-ups runs down meanwhile, so no such circle closes.
        """
        found = set()
        for circle in self.circles:
            inside = set(circle)
            going_round = [e for node in circle for e in self.edges[node] if e.to in inside]
            if any(edge.waits for edge in going_round):
                found |= {
                    edge.to.job.state
                    for edge in going_round
                    if edge.made and edge.made[0].claims and not edge.made[0].guard("slot_free")
                }
        return found

    @property
    def ends(self) -> set[str]:
        """The resting and terminal states in which some job had nothing left but growing old."""
        return {
            node.job.state
            for node, edges in self.edges.items()
            if not self.lifecycle.state[node.job.state].working
            and not any(edge.made and not edge.made[0].guard("age_over") for edge in edges)
        }

    def longest(self) -> int | None:
        """Moves on the longest automatic history, enqueue included; None when one is endless.

        Nodes on a common circle hang together: if going round it made a move, it could be made
        forever. Otherwise each has a level, and the circle is left from whichever node is best.
        """
        onward: dict[Node, int] = {}
        for circle in self.circles:
            level = self._levels(circle)
            if level is None:
                return None
            best = max(
                level[node] + (0 if edge is None else edge.weight + onward[edge.to])
                for node in circle
                for edge in (None, *(one for one in self.edges[node] if one.to not in level))
            )
            onward.update((node, best - level[node]) for node in circle)
        return 1 + onward[self.start]

    def without_people(self) -> History:
        """Only what is reached by automatic moves and time."""
        alone = History(self.lifecycle)
        alone.start = self.start
        ahead = [alone.start]
        for node in ahead:
            if node not in alone.edges:
                alone.edges[node] = self.edges[node]
                ahead.extend(edge.to for edge in self.edges[node])
        return alone

    @cached_property
    def circles(self) -> list[list[Node]]:
        """Nodes grouped by the circle they lie on, each group after all it leads to."""
        return list(_circles(self.edges))

    def open_moves(self, state: str, role: Role) -> list[tuple[str, list[Move]]]:
        """The actions a role may ask for in a state, with the moves that leave it."""
        if (state, role) not in self._open:
            fitting = (
                (
                    action,
                    [
                        move
                        for move in moves
                        if state in move.sources and role in move.by and not (move.chained or move.prunes)
                    ],
                )
                for action, moves in self.lifecycle.actions.items()
            )
            self._open[state, role] = [(action, moves) for action, moves in fitting if moves]
        return self._open[state, role]

    def _levels(self, circle: list[Node]) -> dict[Node, int] | None:
        level = {circle[0]: 0}
        inside = set(circle)
        ahead = deque(circle[:1])
        while ahead:
            node = ahead.popleft()
            for edge in self.edges[node]:
                moves = level[node] + edge.weight
                if edge.to not in inside or level.get(edge.to) == moves:
                    continue
                if edge.to in level:
                    return None
                level[edge.to] = moves
                ahead.append(edge.to)
        return level


def walk(lifecycle: Lifecycle, errors: Sequence[Error], *, people: bool = False, until: str = "") -> History:
    """All histories from birth; with ``people``, operators and producers press every button too.

    It goes no further once it met the fault it was sent for, if one is seen in a single step.
    """
    history = History(lifecycle)
    history.start = start = Node(_settled(history, new_job(lifecycle), NOW))
    ahead = deque([start])
    seen = {start}
    met: set[str] = vars(history).get(until.replace(" ", "_"), set())
    while ahead and not met:
        node = ahead.popleft()
        history.edges[node] = [*_automatic(history, node, errors), *_time(history, node)]
        _judge(history, node)
        after = [edge.to for edge in history.edges[node]]
        if people:
            pressed = _moves(history, node.job, ("operator", "producer"), errors)
            after += [Node(job) for _, job in pressed]
        for one in after:
            if one not in seen:
                seen.add(one)
                ahead.append(one)
    return history


def _automatic(history: History, node: Node, errors: Sequence[Error]) -> Iterator[Edge]:
    for made, job in _moves(history, node.job, ("worker", "clock"), errors):
        claim = made[0]
        if claim.claims:
            waking = None if claim.attempt == "count" else Waking(_stands(node.job), 1)
            yield Edge(len(made), Node(job, waking), made)
        elif node.waking is None or job.phase == OWNED:
            waking = node.waking and node.waking._replace(moves=node.waking.moves + len(made))
            yield Edge(len(made), Node(job, waking), made)
        else:
            back = _stands(job) == node.waking.stood
            yield Edge(-node.waking.moves if back else len(made), Node(job), made)


def _moves(
    history: History, job: Job, roles: tuple[Role, ...], errors: Sequence[Error]
) -> Iterator[tuple[tuple[Move, ...], Job]]:
    lifecycle = history.lifecycle
    for role in roles:
        for action, open_to in history.open_moves(job.state, role):
            for options in _options(open_to):
                context = MoveContext(NOW, role, "worker-1", lifecycle.lease_seconds * SECOND, options)
                fitting = [m for m in open_to if _fits(lifecycle, m, job, context)]
                if len(fitting) > 1:
                    history.ambiguous.add(f"{action} in {job.state}")
                for move in fitting:
                    yield from _made(history, move, job, context, errors)


def _options(moves: Sequence[Move]) -> list[frozenset[str]]:
    names = {g.names[0] for move in moves for g in move.when if g.kind == "option"}
    return [frozenset(), frozenset(names)] if names else [frozenset()]


def _fits(lifecycle: Lifecycle, move: Move, job: Job, context: MoveContext) -> bool:
    here = job.state in move.sources
    return here and failing_guard(move, job, lifecycle, context, job.claim_seq) is None


def _made(
    history: History, move: Move, job: Job, context: MoveContext, errors: Sequence[Error]
) -> Iterator[tuple[tuple[Move, ...], Job]]:
    lifecycle = history.lifecycle
    later = NOW + lifecycle.lease_seconds * SECOND // 2
    for code, category in errors if move.error == "record" else [("", "")]:
        for run_at in (None, later) if move.run_at == "input" else (None,):
            change = Change(job.id, job.claim_seq, code, category, run_at=run_at, payload="{}")
            after = apply_move(lifecycle, move, job, change, context)
            if _overdraws(history, job, after):
                continue
            links = [m for m in lifecycle.chained_moves(move) if _fits(lifecycle, m, after, context)]
            if len(links) > 1:
                history.ambiguous.add(f"{move.then} after {move.name}")
            if not links:
                yield (move,), _settled(history, after, NOW)
            for link in links:
                last = apply_move(lifecycle, link, after, Change(job.id), context)
                if not _overdraws(history, after, last):
                    yield (move, link), _settled(history, last, NOW)


def _overdraws(history: History, before: Job, after: Job) -> bool:
    """Whether a move broke the budget's own rules; no history is followed beyond that."""
    used = after.attempt_count - after.attempt_base
    broken = after.attempt_count < before.attempt_count or not 0 <= used <= after.max_attempts
    if broken:
        history.overdrawn.add(f"{after.move} in {before.state}")
    return broken


def _time(history: History, node: Node) -> Iterator[Edge]:
    """Time passes to the next instant at which a guard changes; a worker may renew its lease."""
    job = node.job
    future = [at for at in (job.run_at, job.timer_at, job.lease_until) if at and at > NOW]
    if future:
        yield Edge(0, node._replace(job=_settled(history, job, min(future))), waits=True)
    if job.phase == OWNED:
        renewed = job._replace(lease_until=NOW + history.lifecycle.lease_seconds * SECOND)
        yield Edge(0, node._replace(job=renewed))


def _judge(history: History, node: Node) -> None:
    """Hold one row against the promises that need no path."""
    job, lifecycle = node.job, history.lifecycle
    context = MoveContext(NOW, "worker", "worker-2", SECOND)
    if job.phase == OWNED and not lifecycle.state[job.state].working:
        history.rests_claimed.add(job.state)
    if job.phase == OWNED:
        for move in lifecycle.moves:
            if job.state not in move.sources:
                continue
            if move.claims and _fits(lifecycle, move, job, context):
                history.claimed_twice.add(f"{move.name} in {job.state}")
            stale = failing_guard(move, job, lifecycle, context, job.claim_seq - 1)
            if move.guard("holds_claim") and stale is None:
                history.unfenced.add(f"{move.name} in {job.state}")
    waits = any(at and at > NOW for at in (job.run_at, job.timer_at, job.lease_until))
    goes_on = any(
        edge.made and (edge.made[0].claims or edge.made[0].stage) and not edge.made[0].guard("age_over")
        for edge in history.edges[node]
    )
    if lifecycle.state[job.state].working and not waits and not goes_on:
        history.stuck.add(f"{job.state}, {'claimed' if job.worker else 'unclaimed'}")


def _stands(job: Job) -> tuple[object, ...]:
    """What guards can read of an unclaimed job, but for the time and the last error.

    Each wake-up may tell of another error, and is a wake-up all the same.
    """
    return (
        job.state,
        job.attempt_count - job.attempt_base,
        job.return_count,
        job.retry_count,
        job.flags,
        job.timer_at is not None,
        job.claim_seq > job.payload_seq,
    )


def _settled(history: History, job: Job, now: int) -> Job:
    """One row for all that guards cannot tell apart: the clock reads NOW, and the past is one."""

    def ahead(at: int | None) -> int | None:
        return None if at is None else NOW + max(at - now, 0)

    def past(at: int | None) -> int | None:
        return None if at is None else LONG_AGO

    return job._replace(
        move="",
        actor="",
        seq=9,
        claim_seq=8 if job.claim_seq > job.payload_seq else 2,
        payload_seq=5,
        attempt_count=job.attempt_count - job.attempt_base,
        attempt_base=0,
        retry_count=min(job.retry_count, history.retries_read),
        error_message=None,
        note=None,
        result_json=None,
        new_payload=None,
        payload_json="",
        created_at=LONG_AGO,
        moved_at=NOW,
        run_at=ahead(job.run_at),
        timer_at=ahead(job.timer_at),
        claimed_at=past(job.claimed_at),
        lease_until=ahead(job.lease_until),
        finished_at=past(job.finished_at),
        stamp_1=past(job.stamp_1),
        stamp_2=past(job.stamp_2),
        stamp_3=past(job.stamp_3),
        stamp_4=past(job.stamp_4),
    )


def _circles(edges: dict[Node, list[Edge]]) -> Iterator[list[Node]]:
    """Nodes grouped by the circle they lie on, each group after all it leads to (Kosaraju)."""
    order: list[Node] = []
    seen: set[Node] = set()
    for root, first in edges.items():
        if root in seen:
            continue
        seen.add(root)
        trail = [(root, iter(first))]
        while trail:
            node, left = trail[-1]
            ahead = next((edge.to for edge in left if edge.to not in seen), None)
            if ahead is None:
                order.append(node)
                trail.pop()
            else:
                seen.add(ahead)
                trail.append((ahead, iter(edges[ahead])))
    into: dict[Node, list[Node]] = {node: [] for node in edges}
    for node, out in edges.items():
        for edge in out:
            into[edge.to].append(node)
    groups: list[list[Node]] = []
    grouped: set[Node] = set()
    for root in reversed(order):
        if root in grouped:
            continue
        grouped.add(root)
        group = [root]
        for node in group:
            new = [one for one in into[node] if one not in grouped]
            grouped.update(new)
            group.extend(dict.fromkeys(new))
        groups.append(group)
    yield from reversed(groups)
