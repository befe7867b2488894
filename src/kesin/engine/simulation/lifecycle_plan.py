"""The plan of a random lifecycle: a plain queue with a random choice of features."""

from __future__ import annotations

import random

from kesin.lifecycle.budget import DAY_S, Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Taxonomy, Verdict, same_everywhere
from kesin.lifecycle.vocabulary import (
    GONE,
    STAY,
    After,
    Fixed,
    Guard,
    age_over,
    budget_left,
    budget_spent,
    category_in,
    code_in,
    code_not_in,
    due,
    flag_not_set,
    flag_set,
    holds_claim,
    lease_over,
    option,
    retries_left,
    returns_left,
    timer_not_over,
    timer_over,
    unclaimed,
)

BUDGET_SPENT = Fixed("SPENT", Category.PERMANENT, "every attempt was used up")
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
        moves = {Verdict.FAIL: "fail", Verdict.COMPLETE: "complete"}
        moves |= {Verdict(name): name for name in ("retry", "hold") if self._has(name)}
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
                moves=tuple(moves.items()),
                codes=tuple(Code(name, rng.choice(list(Category))) for name in CODES),
            ),
        )

    def _has(self, action: str) -> bool:
        return any(move.action == action for move in self._moves)

    def _verdict(self, action: str) -> Verdict:
        return Verdict(action) if self._has(action) else Verdict.FAIL

    def _add_move(
        self, name: str, sources: tuple[str, ...], to: str, by: str, **effects: object
    ) -> None:
        roles = tuple(by.split())
        self._moves.append(Move(name, sources, to, by=roles, **effects))  # type: ignore[arg-type]

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
        self._add_move("enqueue", (), "ready", "producer", run_at="input")
        stays = self._sometimes(0.3)  # the claim does not change the state
        if stays:
            self._stages[0] = "ready"
        self._add_move(
            "claim",
            ("ready",),
            STAY if stays else self._stages[0],
            "worker",
            when=(due, unclaimed, budget_left),
            claim="take",
            attempt="count",
        )
        self._add_move(
            "attempt_cap",
            ("ready",),
            "failed",
            "clock",
            when=(unclaimed, budget_spent),
            error=BUDGET_SPENT,
            stamp=("finished_at",),
            stage="cap",
        )

    def _add_stage(self, index: int) -> None:
        name = self._stages[index]
        if name != "ready":
            exclusive = index > 0 and self._sometimes(0.3)
            self._states.append(State(name, exclusive=exclusive, holds_key=self._sometimes(0.8)))
        if index:
            self._add_move(
                f"advance_{index}",
                (self._stages[index - 1],),
                name,
                "worker",
                when=(holds_claim,),
                stamp=("looked_at",) if self._sometimes() else (),
                flag=("marked",) if self._sometimes(0.2) else (),
            )

    def _add_exits(self) -> None:
        stages, last = tuple(self._stages), self._stages[-1]
        drops: dict[str, object] = {"claim": "drop", "stamp": ("finished_at",)}
        self._add_move(
            "complete",
            (last,),
            "done",
            "worker",
            when=(holds_claim,) if last == "ready" or self._sometimes(0.8) else (),
            result="record",
            error="clear",
            **drops,
        )
        self._add_move(
            "fail", stages, "failed", "worker", when=(holds_claim,), error="record", **drops
        )
        if self._sometimes(0.8):
            self._add_move(
                "release",
                stages,
                "ready",
                "worker",
                when=(holds_claim, returns_left),
                claim="drop",
                attempt="return",
                run_at="now",
            )
        self._add_move(
            "recover",
            stages,
            "ready",
            "clock",
            when=(lease_over, budget_left),
            claim="drop",
            run_at=self._rng.choice(("now", self._backoff())),
            stage="recover",
        )
        spent = (lease_over, budget_spent)
        self._add_move(
            "recover",
            stages,
            "failed",
            "clock",
            when=spent,
            error=BUDGET_SPENT,
            stage="recover",
            **drops,
        )

    def _add_retry(self) -> None:
        stages = tuple(self._stages)
        if self._sometimes(0.3):
            self._add_counted_retry(stages)
            return
        self._add_move(
            "retry",
            stages,
            "ready",
            "worker",
            when=(holds_claim, budget_left),
            claim="drop",
            error="record",
            run_at=self._backoff(),
        )
        self._add_move(
            "retry",
            stages,
            "failed",
            "worker",
            when=(holds_claim, budget_spent),
            claim="drop",
            error="record",
            stamp=("finished_at",),
        )

    def _add_counted_retry(self, stages: tuple[str, ...]) -> None:
        """Add a failed state that scheduled moves retry a few times."""
        self._add_move(
            "retry",
            stages,
            "failed",
            "worker",
            when=(holds_claim,),
            claim="drop",
            error="record",
            timer=self._backoff(),
            timer_for=(Category.TRANSIENT, Category.RATE_LIMIT),
            stamp=("finished_at",),
        )
        codes: tuple[Guard, ...] = (
            (code_not_in("WRONG"),) if self._sometimes() else (category_in(Category.TRANSIENT),)
        )
        self._add_move(
            "revive",
            ("failed",),
            "ready",
            "clock",
            when=(timer_over, retries_left(self._rng.randint(1, 3)), *codes),
            attempt="renew",
            retry="count",
            timer="clear",
            run_at="now",
            unstamp=("finished_at",),
            stage="revive",
        )

    def _add_hold(self) -> None:
        self._states.append(State("held", resting=True, holds_key=self._sometimes(0.8)))
        self._add_move(
            "hold",
            tuple(self._stages),
            "held",
            "worker",
            when=(holds_claim,),
            claim="drop",
            error="record",
            stamp=("finished_at",),
        )
        has_option = self._sometimes()
        for is_set in (True, False) if has_option else (True,):
            self._add_move(
                "approve",
                ("held",),
                "ready",
                "operator",
                when=(option("anew", is_set=is_set),) if has_option else (),
                attempt="renew",
                error="clear" if is_set else "keep",
                run_at="now",
                unstamp=("finished_at",),
            )

    def _add_wait(self) -> None:
        """Add a state that drops the claim, is claimed again later, and times out."""
        self._states.append(State("waiting", holds_key=self._sometimes(0.8)))
        self._add_move(
            "wait",
            tuple(self._stages),
            "waiting",
            "worker",
            when=(holds_claim,),
            claim="drop",
            run_at="input",
            timer=After(self._rng.choice((60, 5_400))),
        )
        self._add_move(
            "wake",
            ("waiting",),
            STAY,
            "worker",
            when=(due, unclaimed, timer_not_over),
            claim="take",
            action="claim",
        )
        self._add_move(
            "look_again",
            ("waiting",),
            STAY,
            "worker",
            when=(holds_claim,),
            claim="drop",
            run_at="input",
        )
        self._add_move(
            "arrive",
            ("waiting",),
            "done",
            "worker",
            when=(holds_claim,),
            claim="drop",
            result="record",
            stamp=("finished_at",),
        )
        self._add_move(
            "let_go",
            ("waiting",),
            STAY,
            "clock",
            when=(lease_over,),
            claim="drop",
            run_at="now",
            stage="recover",
        )
        self._add_move(
            "timeout",
            ("waiting",),
            "failed",
            "clock",
            when=(unclaimed, timer_over),
            error=TIMED_OUT,
            timer="clear",
            stamp=("finished_at",),
            stage="timeout",
        )

    def _add_expiry(self) -> None:
        self._add_move(
            "expire",
            ("ready",),
            "failed",
            "clock",
            when=(unclaimed, age_over("created_at", self._rng.choice((3_600, 8 * DAY_S)))),
            error=TIMED_OUT,
            stamp=("finished_at",),
            stage="expire",
        )

    def _add_operator_moves(self) -> None:
        if self._sometimes(0.7):
            self._add_move(
                "requeue",
                ("failed",),
                "ready",
                "operator",
                when=self._rng.choice(((), (flag_not_set("marked"),), (code_in(*CODES),))),
                attempt="renew",
                run_at="now",
                unstamp=("finished_at",),
            )
        if self._sometimes(0.7):
            self._add_move(
                "cancel",
                ("ready",),
                "failed",
                "operator producer",
                when=(unclaimed,),
                error=Fixed("CANCELLED", Category.PERMANENT, "cancelled"),
                stamp=("finished_at",),
            )
        if self._sometimes():
            self._add_move(
                "mark",
                ("failed",),
                STAY,
                "operator producer",
                when=(flag_not_set("marked"),),
                flag=("marked",),
                payload="replace" if self._sometimes() else "keep",
            )
        if self._sometimes(0.3):
            self._add_move(
                "forgive",
                ("failed",),
                "ready",
                "operator",
                when=(flag_set("marked"),),
                attempt="renew",
                run_at="now",
            )

    def _add_end_states(self) -> None:
        self._states += [
            State("done", terminal=True, success=True, holds_key=self._sometimes(0.2)),
            State("failed", resting=True, holds_key=self._sometimes(0.2)),
        ]
        self._add_move(
            "prune",
            ("done", "failed"),
            GONE,
            "clock",
            when=(age_over("finished_at", self._rng.choice((3_600, 30 * DAY_S))),),
            stage="prune",
        )
