"""Deliberately broken declarations: the real ones with one thing wrong each.

Each says which rules must catch it, which states the counter-example must name, and what the
adversary of ``adversary.py`` runs into when the same thing is wrong under small caps.
"""

from dataclasses import replace
from functools import cache

from kesin.engine.proof_cache import proof_of
from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Move, State
from kesin.lifecycle.errors import Category, Code, Rule, Verdict
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import (
    STAY,
    After,
    age_over,
    budget_spent,
    holds_claim,
    lease_over,
    parents_done,
    returns_left,
    timer_over,
    unclaimed,
)
from kesin.workloads.oci.lifecycle import OciLimits, adjustment_lifecycle, oci_lifecycle
from kesin.workloads.optiplan.lifecycle import OptiplanLimits, optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.lifecycle.mutations import Mutant, add, cut_by_timer, edit, errors, mark, rated, remove, stays

# A lifecycle is its own key, and its proof never changes. Those of the real ones come with the
# package: `tests/engine/test_proof_cache.py` makes every one of them again.
proved = cache(proof_of)

REAL = {
    "oci": oci_lifecycle(),
    "oci_adjustments": adjustment_lifecycle(),
    "pdf": pdf_lifecycle(),
    "optiplan": optiplan_lifecycle(),
    "task": task_lifecycle(),
    "after others": task_lifecycle(parents=True),
}
# What is broken on purpose: the real ones, with smaller caps where the proof takes long.
SOUND = {
    **REAL,
    "oci": oci_lifecycle(OciLimits(too_recent_waits=1)),
    "optiplan": replace(optiplan_lifecycle(OptiplanLimits(max_attempts=1, retry_count_max=1)), max_returns=1),
}
# The same rules under caps and pauses that leave few histories to walk.
SMALL = {
    "oci": oci_lifecycle(
        OciLimits(
            max_attempts_script=2, too_recent_waits=1, too_recent_pause_s=1, lease_seconds=1, backoff=Backoff((1,))
        )
    ),
    "pdf": pdf_lifecycle(),
    "optiplan": optiplan_lifecycle(
        OptiplanLimits(max_attempts=1, retry_count_max=1, xml_timeout_s=60, ack_timeout_s=60)
    ),
    "task": task_lifecycle(max_attempts=2, backoff=Backoff((1,))),
}
# What a worker may report: one of each kind that some guard of the lifecycle tells apart.
CATEGORIES = [("SOME", category.value) for category in Category]
REPORTS = {
    "oci": CATEGORIES,
    "pdf": [
        ("BROWSER_LAUNCH_FAILED", "TRANSIENT"),
        ("WORKER_LOST", "TRANSIENT"),
        ("INTERRUPTED", "TRANSIENT"),
        ("UNKNOWN", "PERMANENT"),
    ],
    "optiplan": [("E_CRM_NO_MATCH", "VALIDATION"), ("E_XML_INVALID", "PERMANENT"), *CATEGORIES[2:3]],
    "task": CATEGORIES,
}


MUTANTS = {
    # R1
    "a state nothing leads to": Mutant(
        "oci", lambda oci: replace(oci, states=(*oci.states, State("LIMBO", resting=True))), {"R1"}, says="LIMBO"
    ),
    "a state only an unreachable state leads to": Mutant(
        "oci",
        lambda oci: add(Move("sink", ("LIMBO",), "PIT", by=("operator",)))(
            replace(oci, states=(*oci.states, State("LIMBO", resting=True), State("PIT", resting=True)))
        ),
        {"R1"},
        says="LIMBO",
    ),
    # R2
    "a move that leaves a terminal state": Mutant(
        "oci",
        add(Move("reopen", ("COMPLETED",), "QUEUED", by=("operator",), run_at="now")),
        {"R2"},
        says="reopen leaves the terminal state COMPLETED",
    ),
    "a claim kept into HOLD": Mutant(
        "optiplan",
        edit("hold", claim="keep"),
        {"R2", "R3"},
        shows=("NEW (unclaimed", "NEW (claimed", "hold → HOLD (claimed"),
        says="HOLD while claimed",
        meets="rests claimed",
    ),
    # R3
    "a recover that misses a state": Mutant(
        "optiplan",
        edit("recover", where=stays, sources=("OPTI_RUNNING", "OPTI_DONE", "DELIVERED")),
        {"R3"},
        shows=("NEW", "PREPARED", "OPTI_IMPORTED", "OPTI_RUNNING", "OPTI_DONE", "XML_READY (claimed"),
        says="dies in XML_READY",
        meets="stuck",
    ),
    "a recover that takes only jobs with budget": Mutant(
        "oci",
        lambda oci: remove("attempt_cap", where=lambda m: "PROCESSING" in m.sources)(
            remove("recover", where=lambda m: m.to == "FAILED")(oci)
        ),
        {"R3"},
        shows=("QUEUED", "PROCESSING (claimed, 5 used"),
        says="dies in PROCESSING",
        meets="stuck",
    ),
    "a recover that also waits for a timer": Mutant(
        "optiplan",
        edit("recover", where=stays, when=(lease_over, timer_over)),
        {"R3"},
        says="dies in OPTI_RUNNING",
        meets="stuck",
    ),
    "a recover that keeps the claim": Mutant(
        "pdf",
        edit("lose", claim="keep", to=STAY, then="", stamp=(), error="keep"),
        {"R3", "R5"},
        shows=("claim → running (claimed",),
        says="dies in running",
        meets="endless",
    ),
    # R4
    "no attempt_cap": Mutant(
        "oci",
        remove("attempt_cap"),
        {"R4"},
        shows=("QUEUED", "PROCESSING", "RETRY (unclaimed, 5 used"),
        says="wait in RETRY forever",
        meets="stuck",
    ),
    "a requeue without budget and without a cap": Mutant(
        "pdf",
        edit("requeue", without=("budget_left", "retries_left")),
        {"R4"},
        shows=("queued", "running", "fail + requeue → queued", "queued (unclaimed, 3 used"),
        says="wait in queued forever",
        meets="stuck",
    ),
    "no timeout behind a timer": Mutant(
        "optiplan",
        remove("xml_timeout"),
        {"R4"},
        shows=("NEW", "OPTI_RUNNING (unclaimed, 1 used, timer armed"),
        says="wait in OPTI_RUNNING forever",
        meets="stuck",
    ),
    "a last step nobody takes": Mutant(
        "optiplan",
        remove("done", where=lambda m: m.stage is not None),
        {"R4"},
        shows=("XML_READY", "DELIVERED (claimed", "DELIVERED (unclaimed"),
        says="wait in DELIVERED forever",
        meets="stuck",
    ),
    "an expiry as the only way out of a working state": Mutant(
        "oci",
        edit(
            "attempt_cap",
            where=lambda m: "RETRY" in m.sources,
            when=(unclaimed, budget_spent, age_over("created_at", 60)),
            stage="expire",
        ),
        {"R4"},
        shows=("QUEUED", "PROCESSING", "RETRY (unclaimed, 5 used"),
        says="wait in RETRY forever",
        meets="stuck",
    ),
    # R5
    "a claim without budget_left": Mutant(
        "oci",
        edit("claim", without=("budget_left",)),
        {"R5"},
        shows=("QUEUED", "and again:", "PROCESSING (claimed, 5 used"),
        says="loop through",
        meets="overdrawn",
    ),
    "a wait that re-arms its timer": Mutant(
        "optiplan",
        edit("wait", timer=After(1_200)),
        {"R5"},
        shows=("timer armed", "and again:", "wait → "),
        meets="waits forever",
    ),
    "a wait that clears its timer": Mutant(
        "optiplan",
        edit("wait", timer="clear"),
        {"R5", "R6"},
        shows=("timer armed", "wait → ", "and again:"),
        meets="waits forever",
    ),
    "a wake-up not cut by the timer": Mutant(
        "optiplan",
        edit("claim", where=cut_by_timer, without=("timer_not_over",)),
        {"R5"},
        shows=("timer armed", "and again:", "wait → "),
        meets="waits forever",
    ),
    "a wait without a timer": Mutant(
        "optiplan",
        edit("run", timer="clear"),
        {"R5", "R6"},
        shows=("OPTI_RUNNING (claimed, 1 used)", "and again:", "OPTI_RUNNING"),
        meets="waits forever",
    ),
    "a release that returns the attempt without bound": Mutant(
        "oci",
        edit("release", without=("returns_left",)),
        {"R5"},
        shows=("and again:", "release → RETRY"),
        meets="endless",
    ),
    "a wait for Google without bound": Mutant(
        "oci",
        edit("too_recent", without=("retries_left",)),
        {"R5"},
        shows=("and again:", "too_recent → RETRY"),
        meets="endless",
    ),
    "a release that returns what a wake-up never counted": Mutant(
        "optiplan",
        edit("release", where=stays, attempt="return", when=(holds_claim, returns_left)),
        {"R5"},
        shows=("NEW (claimed", "OPTI_IMPORTED (unclaimed", "claim → OPTI_IMPORTED (claimed"),
        says="release returns an attempt that this claim did not count",
        meets="overdrawn",
    ),
    "a revive that renews the budget": Mutant(
        "oci", edit("revive", attempt="renew"), {"R5"}, shows=("and again:", "revive → RETRY"), meets="endless"
    ),
    "a revive that waits for no timer": Mutant(
        "oci",
        edit("revive", without=("timer_over",)),
        {"R5"},
        shows=("and again:", "FAILED (unclaimed"),
        meets="endless",
    ),
    "a clock move round a working state": Mutant(
        "task",
        add(Move("nudge", ("ready",), STAY, by=("clock",), when=(unclaimed,), run_at="now", stage="timeout")),
        {"R5"},
        shows=("ready (unclaimed", "and again:", "nudge → ready (unclaimed"),
        meets="endless",
    ),
    # What is asked of a queue beside its moves: a key held for good, and a rate
    "a claim that needs a key which another may hold for good": Mutant(
        "task", mark("ready", holds_key=False), {"R4"}, says="a job can wait in ready forever"
    ),
    "a circle that a rate only slows": Mutant(
        "task", lambda task: edit("claim", attempt="keep")(rated(task)), {"R5"}, ("running",)
    ),
    # R6
    "two exclusive states in a row": Mutant(
        "optiplan", mark("OPTI_DONE", exclusive=True), {"R6"}, says="collect leads from one state with slots to another"
    ),
    "a clock move that leaves OPTI_RUNNING under a live claim": Mutant(
        "optiplan",
        edit("xml_timeout", when=(timer_over,), claim="drop"),
        {"R6"},
        says="xml_timeout can leave OPTI_RUNNING under a live claim",
    ),
    "an exclusive resting state": Mutant(
        "optiplan", mark("HOLD", exclusive=True), {"R6"}, says="HOLD has slots but is not a working"
    ),
    "slots of a tenant that a job rests in": Mutant(
        "task", mark("failed", slots=2, slots_per="tenant"), {"R6"}, says="failed has slots but is not a working state"
    ),
    "slots that the clock frees under a live claim": Mutant(
        "optiplan",
        lambda lifecycle: edit("xml_timeout", when=(timer_over,), claim="drop")(
            mark("OPTI_RUNNING", exclusive=False, slots=3)(lifecycle)
        ),
        {"R6"},
        says="xml_timeout can leave OPTI_RUNNING under a live claim",
    ),
    # R7
    "alternatives of one call that overlap": Mutant(
        "oci",
        edit("RESET_TO_QUEUED", where=lambda m: m.error == "keep", when=()),
        {"R7"},
        says="the action RESET_TO_QUEUED could be RESET_TO_QUEUED or RESET_TO_QUEUED",
    ),
    "a recover that is both": Mutant(
        "oci", edit("recover", when=(lease_over,)), {"R7"}, says="in PROCESSING, the action recover", meets="ambiguous"
    ),
    "alternatives of different names that overlap": Mutant(
        "oci",
        edit("late_ack", sources=("RETRY", "PROCESSING"), claim="drop"),
        {"R7"},
        says="in PROCESSING, the action ack could be ack or late_ack",
        meets="ambiguous",
    ),
    # R8
    "a category without a verdict": Mutant(
        "oci",
        errors(lambda e: {"rules": tuple(r for r in e.rules if r != Rule("api", Category.AUTH, Verdict.FAIL))}),
        {"R8"},
        says="channel api, category AUTH: expected one verdict, got none",
    ),
    "a category with two verdicts": Mutant(
        "oci",
        errors(lambda e: {"rules": (*e.rules, Rule("script", Category.TRANSIENT, Verdict.RETRY))}),
        {"R8"},
        says="channel script, category TRANSIENT: expected one verdict, got fail and retry",
    ),
    "a verdict that names a move of the clock": Mutant(
        "task",
        errors(lambda e: {"moves": ((Verdict.FAIL, "attempt_cap"), (Verdict.RETRY, "retry"))}),
        {"R8"},
        says="fail names 'attempt_cap', which is not a worker action",
    ),
    "a verdict that names no move": Mutant(
        "task", errors(lambda e: {"moves": ((Verdict.FAIL, "fail"),)}), {"R8"}, says="retry names None"
    ),
    "a code that names no call of a worker": Mutant(
        "pdf",
        errors(lambda e: {"codes": (*e.codes, Code("LOST", Category.TRANSIENT, move="requeue"))}),
        {"R8"},
        says="LOST names 'requeue'",
    ),
    "a code declared twice": Mutant(
        "pdf",
        errors(lambda e: {"codes": (*e.codes, Code("UNKNOWN", Category.TRANSIENT))}),
        {"R8"},
        says="UNKNOWN is declared twice",
    ),
    # R9
    "a job that waits forever once a parent has failed": Mutant(
        "after others",
        remove("parent_failed"),
        {"R9"},
        says="a job can wait in blocked forever: a move with parents_done leaves it, but none with parents_failed does",
    ),
    "a parent's success that only an operator sees": Mutant(
        "after others",
        edit("unblock", by=("operator",), stage=None),
        {"R9"},
        says="unblock has parents_done: it must be a scheduled move",
    ),
    "a second condition beside the parents": Mutant(
        "after others",
        edit("unblock", when=(parents_done, age_over("created_at", 60))),
        {"R9"},
        says="unblock has parents_done: it must be a scheduled move",
    ),
    "a key that a waiting job lets go": Mutant(
        "after others",
        mark("blocked", holds_key=False),
        {"R9"},
        says="unblock leads from blocked to ready, whose key or slot may be taken",
    ),
}
