"""The plan of a random lifecycle: a plain queue with a random choice of features."""

import random
from dataclasses import replace
from typing import Any, Literal

from kesin.lifecycle import moves
from kesin.lifecycle import vocabulary as guards
from kesin.lifecycle.budget import DAY_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import STAY, After, Fixed

BUDGET_SPENT = Fixed("SPENT", Category.PERMANENT, "all attempts were used")
CANCELLED = Fixed("CANCELLED", Category.PERMANENT, "cancelled")
TIMED_OUT = Fixed("LATE", Category.TRANSIENT, "it took too long")
CODES = ("BUSY", "WRONG", "LATE", "SPENT")


class LifecyclePlan:
    """A queue with one to three stages of work and a random choice of features."""

    def __init__(self, rng: random.Random, name: str) -> None:
        self._rng = rng
        self._name = name
        self._stages = [f"stage_{n}" for n in range(1, rng.randint(1, 3) + 1)]
        self._states: list[State] = []
        self._moves: list[Move] = []

    def _sometimes(self, probability: float = 0.5) -> bool:
        return self._rng.random() < probability

    def build(self) -> Lifecycle:
        """Draw the lifecycle; raises DeclarationError if its parts contradict each other."""
        rng = self._rng
        self._add_entry()
        for index in range(len(self._stages)):
            self._add_stage(index)
        self._add_exits()
        for feature in (
            self._add_retry,
            self._add_hold,
            self._add_wait,
            self._add_expiry,
            self._add_operator_moves,
            self._add_parents,
        ):
            if self._sometimes(0.6):
                feature()
        self._add_end_states()
        verdicts = {
            Category.VALIDATION: Verdict.FAIL,
            Category.AUTH: rng.choice((Verdict.FAIL, self._verdict("hold"))),
            Category.TRANSIENT: self._verdict("retry"),
            Category.RATE_LIMIT: self._verdict("retry"),
            Category.PERMANENT: Verdict.FAIL,
        }
        actions = {Verdict.FAIL: "fail", Verdict.COMPLETE: "complete"}
        actions |= {Verdict(name): name for name in ("retry", "hold") if self._has(name)}
        return Lifecycle(
            name=self._name,
            states=tuple(self._states),
            moves=tuple(self._moves),
            max_attempts=rng.randint(1, 4),
            max_returns=rng.randint(0, 2),
            lease_seconds=rng.choice((5, 60, 900)),
            max_run_seconds=rng.choice((120, 3_600, DAY_S)),
            stamps=("looked_at",),
            flags=("marked",),
            errors=Taxonomy(
                channels=("worker",),
                rules=same_everywhere(("worker",), verdicts),
                moves=tuple(actions.items()),
                codes=tuple(Code(name, rng.choice(list(Category))) for name in CODES),
            ),
        )

    def _has(self, action: str) -> bool:
        return any(move.action == action for move in self._moves)

    def _verdict(self, action: str) -> Verdict:
        return Verdict(action) if self._has(action) else Verdict.FAIL

    def _add(self, *added: Move) -> None:
        self._moves.extend(added)

    def _backoff(self) -> Backoff:
        rng = self._rng
        return Backoff(
            tuple(sorted(rng.choices((0, 5, 60, 3_600), k=rng.randint(1, 3)))),
            jitter_s=rng.choice((0, 10)),
            counts=rng.choice(("attempts", "retries")),
        )

    # Features

    def _add_entry(self) -> None:
        self._states.append(State("ready", initial=True, holds_key=self._sometimes(0.8)))
        stays = self._sometimes(0.3)  # the claim does not change the state
        if stays:
            self._stages[0] = "ready"
        limit = guards.rate(self._rng.randint(1, 4), self._rng.choice((1, 60, 3_600)))
        limits = (limit,) if self._sometimes(0.2) else ()
        self._add(
            moves.enqueue("ready"),
            moves.claim(
                "ready",
                STAY if stays else self._stages[0],
                when=(guards.due, guards.unclaimed, guards.budget_left, *limits),
            ),
            moves.attempt_cap("ready", "failed", error=BUDGET_SPENT),
        )

    def _add_stage(self, index: int) -> None:
        name = self._stages[index]
        if name != "ready":
            exclusive = index > 0 and self._sometimes(0.2)
            slots = self._rng.randint(1, 3) if not exclusive and self._sometimes(0.3) else None
            per: Literal["queue", "tenant"] = "tenant" if slots and self._sometimes() else "queue"
            holds_key = self._sometimes(0.8)
            self._states.append(State(name, exclusive=exclusive, holds_key=holds_key, slots=slots, slots_per=per))
        if index:
            self._add(
                Move(
                    f"advance_{index}",
                    (self._stages[index - 1],),
                    name,
                    by=("worker",),
                    when=(guards.holds_claim,),
                    stamp=("looked_at",) if self._sometimes() else (),
                    flag=("marked",) if self._sometimes(0.2) else (),
                )
            )

    def _add_exits(self) -> None:
        stages, last = tuple(self._stages), self._stages[-1]
        fence = (guards.holds_claim,) if last == "ready" or self._sometimes(0.8) else ()
        self._add(moves.complete(last, "done", when=fence), moves.fail(stages, "failed"))
        if self._sometimes(0.8):
            self._add(moves.release(stages, "ready"))
        self._add(
            moves.recover(stages, "ready", run_at=self._rng.choice(("now", self._backoff()))),
            moves.recover_spent(stages, "failed", error=BUDGET_SPENT),
        )

    def _add_retry(self) -> None:
        stages = tuple(self._stages)
        if self._sometimes(0.3):
            self._add_counted_retry(stages)
        else:
            again = moves.retry(stages, "ready", self._backoff())
            self._add(again, moves.retry_spent(stages, "failed"))

    def _add_counted_retry(self, stages: tuple[str, ...]) -> None:
        """Add a failed state that scheduled moves retry a few times."""
        passing = (Category.TRANSIENT, Category.RATE_LIMIT)
        timer = self._backoff()
        self._add(moves.fail(stages, "failed", name="retry", timer=timer, timer_for=passing))
        not_wrong, transient = guards.code_not_in("WRONG"), guards.category_in(Category.TRANSIENT)
        code = not_wrong if self._sometimes() else transient
        self._add(
            moves.requeue(
                "failed",
                "ready",
                name="revive",
                by=("clock",),
                when=(guards.timer_over, guards.retries_left(self._rng.randint(1, 3)), code),
                retry="count",
                timer="clear",
                stage="revive",
            )
        )

    def _add_hold(self) -> None:
        self._states.append(State("held", resting=True, holds_key=self._sometimes(0.8)))
        self._add(moves.fail(tuple(self._stages), "held", name="hold"))
        if self._sometimes():
            anew, as_before = (guards.option("anew", is_set=is_set) for is_set in (True, False))
            self._add(
                moves.requeue("held", "ready", name="approve", when=(anew,), error="clear"),
                moves.requeue("held", "ready", name="approve", when=(as_before,)),
            )
        else:
            self._add(moves.requeue("held", "ready", name="approve", error="clear"))

    def _add_wait(self) -> None:
        """Add a state that drops the claim, is claimed again later, and times out."""
        self._states.append(State("waiting", holds_key=self._sometimes(0.8)))
        timer = After(self._rng.choice((60, 5_400)))
        look: dict[str, Any] = {"when": (guards.holds_claim,), "error": "keep"}
        wake = (guards.due, guards.unclaimed, guards.timer_not_over)
        self._add(
            moves.retry(tuple(self._stages), "waiting", "input", name="wait", timer=timer, **look),
            moves.claim("waiting", STAY, name="wake", action="claim", when=wake, attempt="keep"),
            moves.retry("waiting", STAY, "input", name="look_again", **look),
            moves.complete("waiting", "done", name="arrive", error="keep"),
            moves.recover("waiting", STAY, name="let_go", when=(guards.lease_over,)),
            moves.attempt_cap(
                "waiting",
                "failed",
                name="timeout",
                when=(guards.unclaimed, guards.timer_over),
                error=TIMED_OUT,
                timer="clear",
                stage="timeout",
            ),
        )

    def _add_expiry(self) -> None:
        age_s = self._rng.choice((3_600, 8 * DAY_S))
        self._add(moves.expire("ready", "failed", age_s, error=TIMED_OUT))

    def _add_parents(self) -> None:
        self._states.append(State("blocked", resting=True, holds_key=self._sometimes(0.9)))
        self._add(moves.enqueue_after("blocked"), moves.unblock("blocked", "ready"))
        self._add(moves.parent_failed("blocked", "failed"))
        if self._sometimes():
            self._add(moves.cancel("blocked", "failed", name="cancel_blocked", error=CANCELLED))

    def _add_operator_moves(self) -> None:
        unmarked = guards.flag_not_set("marked")
        if self._sometimes(0.7):
            when = self._rng.choice(((), (unmarked,), (guards.code_in(*CODES),)))
            self._add(moves.requeue("failed", "ready", when=when))
        if self._sometimes(0.7):
            self._add(moves.cancel("ready", "failed", error=CANCELLED))
        if self._sometimes():
            self._add(
                Move(
                    "mark",
                    ("failed",),
                    STAY,
                    by=("operator", "producer"),
                    when=(unmarked,),
                    flag=("marked",),
                    payload="replace" if self._sometimes() else "keep",
                )
            )
        if self._sometimes(0.3):
            when = (guards.flag_set("marked"),)
            self._add(moves.requeue("failed", "ready", name="forgive", when=when, unstamp=()))
        if self._sometimes():
            self._add(moves.prioritize(("ready", "failed")))

    def _add_end_states(self) -> None:
        self._states += [
            State("done", terminal=True, success=True, holds_key=self._sometimes(0.2)),
            State("failed", resting=True, holds_key=self._sometimes(0.2)),
        ]
        old = guards.age_over("finished_at", self._rng.choice((3_600, 30 * DAY_S)))
        self._add(replace(moves.prune(("done", "failed"), days=1), when=(old,)))
