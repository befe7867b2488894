"""A lifecycle with every word of the language: a move for each guard and each effect, and jobs.

It is made to be judged by, not to run: nothing in it needs to end.
"""

from __future__ import annotations

from typing import Any

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Taxonomy
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import (
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
    slot_free,
    timer_not_over,
    timer_over,
    unclaimed,
    was_claimed,
)
from tests.store.scene import DAY, HOUR, NOW, Scene, error

ANYWHERE = ("ready", "running", "failed")

GUARDS: dict[str, Guard] = {
    "if_due": due,
    "if_unclaimed": unclaimed,
    "if_lease_over": lease_over,
    "if_timer_over": timer_over,
    "if_timer_not_over": timer_not_over,
    "if_budget_left": budget_left,
    "if_budget_spent": budget_spent,
    "if_retries_left": retries_left(2),
    "if_code_in": code_in("X", "it's"),
    "if_code_not_in": code_not_in("X", "it's"),
    "if_category_in": category_in(Category.TRANSIENT, Category.RATE_LIMIT),
    "if_returns_left": returns_left,
    "if_was_claimed": was_claimed,
    "if_flag_set": flag_set("blue"),
    "if_flag_not_set": flag_not_set("blue"),
    "if_born_long_ago": age_over("created_at", 3_600),
    "if_moved_long_ago": age_over("moved_at", 3_600),
    "if_finished_long_ago": age_over("finished_at", 3_600),
    "if_stamped_long_ago": age_over("first_at", 3_600),
    "if_holds_claim": holds_claim,
    "if_slot_free": slot_free("alone"),
    "if_option": option("loud", is_set=True),
    "if_no_option": option("loud", is_set=False),
}

EFFECTS: tuple[Move, ...] = tuple(
    Move(name, sources, STAY, by=("operator",), **effect)
    for name, sources, effect in (
        ("keep_everything", ANYWHERE, {}),
        ("drop_claim", ("running",), {"claim": "drop"}),
        ("return_attempt", ("running",), {"attempt": "return", "claim": "drop"}),
        ("return_and_count", ("running",), {"attempt": "return", "claim": "drop", "when": (returns_left,)}),
        ("renew", ANYWHERE, {"attempt": "renew"}),
        ("count_retry", ANYWHERE, {"retry": "count"}),
        ("record_error", ANYWHERE, {"error": "record"}),
        ("fix_error", ANYWHERE, {"error": Fixed("FIXED", Category.AUTH, "it's 100% wrong")}),
        ("clear_error", ANYWHERE, {"error": "clear"}),
        ("run_now", ANYWHERE, {"run_at": "now"}),
        ("run_at_input", ANYWHERE, {"run_at": "input"}),
        ("back_off", ANYWHERE, {"run_at": Backoff((10, 20, 40))}),
        ("back_off_jittered", ANYWHERE, {"run_at": Backoff((300, 600), jitter_s=60)}),
        ("back_off_by_retries", ANYWHERE, {"run_at": Backoff((60, 180), 7, "retries")}),
        ("arm_after", ANYWHERE, {"timer": After(90)}),
        ("arm_backoff", ANYWHERE, {"timer": Backoff((5, 50), jitter_s=3)}),
        ("arm_for_transient", ANYWHERE, {"timer": After(5), "timer_for": (Category.TRANSIENT,), "error": "record"}),
        ("clear_timer", ANYWHERE, {"timer": "clear"}),
        ("stamp", ANYWHERE, {"stamp": ("second_at", "finished_at")}),
        ("unstamp", ANYWHERE, {"unstamp": ("first_at", "finished_at")}),
        ("stamp_input", ANYWHERE, {"stamp_input": ("first_at",)}),
        ("record_result", ANYWHERE, {"result": "record"}),
        ("raise_flags", ANYWHERE, {"flag": ("red", "blue")}),
        ("replace_payload", ANYWHERE, {"payload": "replace"}),
        ("set_priority", ANYWHERE, {"priority": "input"}),
    )
)


def every_word() -> Lifecycle:
    return Lifecycle(
        name="every_word",
        max_attempts=3,
        stamps=("first_at", "second_at"),
        flags=("red", "blue"),
        states=(
            State("ready", initial=True, holds_key=True),
            State("running", holds_key=True),
            State("alone", exclusive=True, holds_key=True),
            State("failed", resting=True),
            State("done", terminal=True, success=True),
        ),
        moves=(
            Move("enqueue", (), "ready", by=("producer",), run_at="input", stamp_input=("first_at",)),
            Move(
                "claim",
                ("ready",),
                "running",
                by=("worker",),
                when=(due, unclaimed, budget_left),
                claim="take",
                attempt="count",
            ),
            Move("let_go", ("running",), "ready", by=("operator",), claim="drop"),
            Move(
                "finish",
                ("running",),
                "done",
                by=("worker",),
                when=(holds_claim,),
                claim="drop",
                stamp=("finished_at",),
            ),
            Move(
                "rest",
                ("ready", "running"),
                "failed",
                by=("operator",),
                claim="drop",
                run_at="clear",
                stamp=("finished_at",),
            ),
            Move("take_slot", ("ready",), "alone", by=("operator",)),
            *(Move(name, ANYWHERE, STAY, by=("operator",), when=(guard,)) for name, guard in GUARDS.items()),
            *EFFECTS,
        ),
        errors=Taxonomy(channels=("worker",), rules=(), moves=()),
    )


BACK: tuple[str, dict[str, Any]] = ("let_go", {})
STORIES: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "fresh": (),
    "postponed": (("run_at_input", {"run_at": NOW + DAY}),),
    "running": (("claim", {}),),
    "used": (("claim", {}), BACK),
    "spent": (("claim", {}), BACK, ("claim", {}), BACK, ("claim", {}), BACK),
    "last try": (("claim", {}), BACK, ("claim", {}), BACK, ("claim", {})),
    "returned": (("claim", {}), ("return_and_count", {}), BACK),
    "tired": (
        *(("claim", {}), ("return_and_count", {}), BACK),
        *(("claim", {}), ("return_and_count", {}), BACK),
        ("claim", {}),
    ),
    "corrected": (("claim", {}), BACK, ("replace_payload", {"payload": '{"new":1}'})),
    "passing": (("record_error", error("X")),),
    "invalid": (("record_error", error("it's", "VALIDATION")),),
    "limited": (("record_error", error("Y", "RATE_LIMIT")),),
    "urgent": (("set_priority", {"priority": 2}),),
    "flagged": (("raise_flags", {}),),
    "timed": (("arm_after", {}), ("stamp_input", {"stamps": {"first_at": NOW - DAY}})),
    "retried": (("count_retry", {}), ("count_retry", {})),
    "resting": (("claim", {}), ("rest", {}), ("record_error", error("Z", "AUTH"))),
    "done once": (("claim", {}), ("record_result", {"result": "[1]"})),
}


def cast(scene: Scene) -> dict[str, Job]:
    """Jobs in many conditions, each created once long ago and once just now."""
    for since, start in (("old", NOW - 2 * HOUR), ("new", NOW)):
        scene.clock.time_us = start
        with scene.store.transaction():  # one commit is quicker than fifty
            tell_stories(scene, since)
    scene.clock.time_us = NOW + 1
    return scene.all()


def tell_stories(scene: Scene, since: str) -> None:
    """Each job has a tenant of its own, so that a claim finds it; all go on step by step."""
    news = {name: scene.new(tenant=f"{since} {name}", key=name, stamps={"first_at": scene.now}) for name in STORIES}
    scene.enqueue(*news.values())
    for n in range(max(len(story) for story in STORIES.values())):
        steps = [(news[name], *story[n]) for name, story in STORIES.items() if n < len(story)]
        claimers = [new.tenant for new, call, _ in steps if call == "claim"]
        assert len(scene.claim(len(claimers), tenants=claimers)) == len(claimers)
        for call in {call for _, call, _ in steps if call != "claim"}:
            changes = [Change(new.id, **fields) for new, made, fields in steps if made == call]
            outcomes = scene.apply(call, changes, role="operator", actor="op")
            assert {outcome.result for outcome in outcomes} == {"moved"}
