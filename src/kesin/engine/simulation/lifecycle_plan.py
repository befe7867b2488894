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

SPENT = Fixed("SPENT", Category.PERMANENT, "every attempt was used up")
LATE = Fixed("LATE", Category.TRANSIENT, "it took too long")
CODES = ("BUSY", "WRONG", "LATE", "SPENT")


class LifecyclePlan:
    """A queue with one to three stages of work and a random choice of features."""

    def __init__(self, chance: random.Random, name: str) -> None:
        self._chance = chance
        self._name = name
        self._stages = [f"stage_{n}" for n in range(1, chance.randint(1, 3) + 1)]
        self._states: list[State] = []
        self._moves: list[Move] = []

    def _sometimes(self, how_often: float = 0.5) -> bool:
        return self._chance.random() < how_often

    def lifecycle(self) -> Lifecycle:
        """Draw it; raises DeclarationError where its parts contradict each other."""
        chance = self._chance
        self._ways_in()
        for place in range(len(self._stages)):
            self._stage(place)
        self._ways_out()
        for feature in (self._retry, self._hold, self._wait, self._expire, self._people):
            if self._sometimes(0.6):
                feature()
        self._ends()
        verdicts = {
            Category.VALIDATION: Verdict.FAIL,
            Category.AUTH: chance.choice((Verdict.FAIL, self._verdict("hold"))),
            Category.TRANSIENT: self._verdict("retry"),
            Category.RATE_LIMIT: self._verdict("retry"),
            Category.PERMANENT: Verdict.FAIL,
        }
        carried = {Verdict.FAIL: "fail", Verdict.COMPLETE: "complete"}
        carried |= {Verdict(one): one for one in ("retry", "hold") if self._has(one)}
        return Lifecycle(
            name=self._name,
            states=tuple(self._states),
            moves=tuple(self._moves),
            max_attempts=chance.randint(1, 4),
            max_returns=chance.randint(0, 2),
            lease_seconds=chance.choice((5, 60, 900)),
            max_run_seconds=chance.choice((120, 3_600, DAY_S)),
            stamps=("looked_at",),
            flags=("marked",),
            errors=Taxonomy(
                channels=("worker",),
                rules=same_everywhere(("worker",), verdicts),
                moves=tuple(carried.items()),
                codes=tuple(Code(name, chance.choice(list(Category))) for name in CODES),
            ),
        )

    def _has(self, call: str) -> bool:
        return any(move.call == call for move in self._moves)

    def _verdict(self, call: str) -> Verdict:
        return Verdict(call) if self._has(call) else Verdict.FAIL

    def _move(self, name: str, sources: tuple[str, ...], to: str, by: str, **words: object) -> None:
        roles = tuple(by.split())
        self._moves.append(Move(name, sources, to, by=roles, **words))  # type: ignore[arg-type]

    def _pause(self) -> Backoff:
        chance = self._chance
        return Backoff(
            tuple(sorted(chance.choices((0, 5, 60, 3_600), k=chance.randint(1, 3)))),
            jitter_s=chance.choice((0, 10)),
            counts=chance.choice(("attempts", "retries")),
        )

    # Features

    def _ways_in(self) -> None:
        self._states.append(State("ready", initial=True, holds_key=self._sometimes(0.8)))
        self._move("enqueue", (), "ready", "producer", run_at="input")
        stays = self._sometimes(0.3)  # the claim does not change the state
        if stays:
            self._stages[0] = "ready"
        self._move(
            "claim",
            ("ready",),
            STAY if stays else self._stages[0],
            "worker",
            when=(due, unclaimed, budget_left),
            claim="take",
            attempt="count",
        )
        self._move(
            "attempt_cap",
            ("ready",),
            "failed",
            "clock",
            when=(unclaimed, budget_spent),
            error=SPENT,
            stamp=("finished_at",),
            stage="cap",
        )

    def _stage(self, place: int) -> None:
        name = self._stages[place]
        if name != "ready":
            exclusive = place > 0 and self._sometimes(0.3)
            self._states.append(State(name, exclusive=exclusive, holds_key=self._sometimes(0.8)))
        if place:
            self._move(
                f"advance_{place}",
                (self._stages[place - 1],),
                name,
                "worker",
                when=(holds_claim,),
                stamp=("looked_at",) if self._sometimes() else (),
                flag=("marked",) if self._sometimes(0.2) else (),
            )

    def _ways_out(self) -> None:
        stages, last = tuple(self._stages), self._stages[-1]
        drops: dict[str, object] = {"claim": "drop", "stamp": ("finished_at",)}
        self._move(
            "complete",
            (last,),
            "done",
            "worker",
            when=(holds_claim,) if last == "ready" or self._sometimes(0.8) else (),
            result="record",
            error="clear",
            **drops,
        )
        self._move("fail", stages, "failed", "worker", when=(holds_claim,), error="record", **drops)
        if self._sometimes(0.8):
            self._move(
                "release",
                stages,
                "ready",
                "worker",
                when=(holds_claim, returns_left),
                claim="drop",
                attempt="return",
                run_at="now",
            )
        self._move(
            "recover",
            stages,
            "ready",
            "clock",
            when=(lease_over, budget_left),
            claim="drop",
            run_at=self._chance.choice(("now", self._pause())),
            stage="recover",
        )
        spent = (lease_over, budget_spent)
        self._move(
            "recover", stages, "failed", "clock", when=spent, error=SPENT, stage="recover", **drops
        )

    def _retry(self) -> None:
        stages = tuple(self._stages)
        if self._sometimes(0.3):
            self._retry_counted(stages)
            return
        self._move(
            "retry",
            stages,
            "ready",
            "worker",
            when=(holds_claim, budget_left),
            claim="drop",
            error="record",
            run_at=self._pause(),
        )
        self._move(
            "retry",
            stages,
            "failed",
            "worker",
            when=(holds_claim, budget_spent),
            claim="drop",
            error="record",
            stamp=("finished_at",),
        )

    def _retry_counted(self, stages: tuple[str, ...]) -> None:
        """A failed job that the clock takes up again a few times."""
        self._move(
            "retry",
            stages,
            "failed",
            "worker",
            when=(holds_claim,),
            claim="drop",
            error="record",
            timer=self._pause(),
            timer_for=(Category.TRANSIENT, Category.RATE_LIMIT),
            stamp=("finished_at",),
        )
        codes: tuple[Guard, ...] = (
            (code_not_in("WRONG"),) if self._sometimes() else (category_in(Category.TRANSIENT),)
        )
        self._move(
            "revive",
            ("failed",),
            "ready",
            "clock",
            when=(timer_over, retries_left(self._chance.randint(1, 3)), *codes),
            attempt="renew",
            retry="count",
            timer="clear",
            run_at="now",
            unstamp=("finished_at",),
            stage="revive",
        )

    def _hold(self) -> None:
        self._states.append(State("held", resting=True, holds_key=self._sometimes(0.8)))
        self._move(
            "hold",
            tuple(self._stages),
            "held",
            "worker",
            when=(holds_claim,),
            claim="drop",
            error="record",
            stamp=("finished_at",),
        )
        twice = self._sometimes()
        for anew in (True, False) if twice else (True,):
            self._move(
                "approve",
                ("held",),
                "ready",
                "operator",
                when=(option("anew", is_set=anew),) if twice else (),
                attempt="renew",
                error="clear" if anew else "keep",
                run_at="now",
                unstamp=("finished_at",),
            )

    def _wait(self) -> None:
        """Let go of the claim, look again later, and be cut off by a timer."""
        self._states.append(State("waiting", holds_key=self._sometimes(0.8)))
        self._move(
            "wait",
            tuple(self._stages),
            "waiting",
            "worker",
            when=(holds_claim,),
            claim="drop",
            run_at="input",
            timer=After(self._chance.choice((60, 5_400))),
        )
        self._move(
            "wake",
            ("waiting",),
            STAY,
            "worker",
            when=(due, unclaimed, timer_not_over),
            claim="take",
            call="claim",
        )
        self._move(
            "look_again",
            ("waiting",),
            STAY,
            "worker",
            when=(holds_claim,),
            claim="drop",
            run_at="input",
        )
        self._move(
            "arrive",
            ("waiting",),
            "done",
            "worker",
            when=(holds_claim,),
            claim="drop",
            result="record",
            stamp=("finished_at",),
        )
        self._move(
            "let_go",
            ("waiting",),
            STAY,
            "clock",
            when=(lease_over,),
            claim="drop",
            run_at="now",
            stage="recover",
        )
        self._move(
            "timeout",
            ("waiting",),
            "failed",
            "clock",
            when=(unclaimed, timer_over),
            error=LATE,
            timer="clear",
            stamp=("finished_at",),
            stage="timeout",
        )

    def _expire(self) -> None:
        self._move(
            "expire",
            ("ready",),
            "failed",
            "clock",
            when=(unclaimed, age_over("created_at", self._chance.choice((3_600, 8 * DAY_S)))),
            error=LATE,
            stamp=("finished_at",),
            stage="expire",
        )

    def _people(self) -> None:
        if self._sometimes(0.7):
            self._move(
                "requeue",
                ("failed",),
                "ready",
                "operator",
                when=self._chance.choice(((), (flag_not_set("marked"),), (code_in(*CODES),))),
                attempt="renew",
                run_at="now",
                unstamp=("finished_at",),
            )
        if self._sometimes(0.7):
            self._move(
                "cancel",
                ("ready",),
                "failed",
                "operator producer",
                when=(unclaimed,),
                error=Fixed("CANCELLED", Category.PERMANENT, "cancelled"),
                stamp=("finished_at",),
            )
        if self._sometimes():
            self._move(
                "mark",
                ("failed",),
                STAY,
                "operator producer",
                when=(flag_not_set("marked"),),
                flag=("marked",),
                payload="replace" if self._sometimes() else "keep",
            )
        if self._sometimes(0.3):
            self._move(
                "forgive",
                ("failed",),
                "ready",
                "operator",
                when=(flag_set("marked"),),
                attempt="renew",
                run_at="now",
            )

    def _ends(self) -> None:
        self._states += [
            State("done", terminal=True, success=True, holds_key=self._sometimes(0.2)),
            State("failed", resting=True, holds_key=self._sometimes(0.2)),
        ]
        self._move(
            "prune",
            ("done", "failed"),
            GONE,
            "clock",
            when=(age_over("finished_at", self._chance.choice((3_600, 30 * DAY_S))),),
            stage="prune",
        )
