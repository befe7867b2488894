"""The plain lifecycle, for queues without rules of their own: ready, running, done, failed."""

from typing import Any, Literal

from kesin.lifecycle import moves
from kesin.lifecycle.budget import Backoff, doubling
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Verdict, one_channel
from kesin.lifecycle.vocabulary import DeclarationError, Fixed, budget_left, due, holds_claim, option, unclaimed
from kesin.lifecycle.vocabulary import rate as limit_of

LATER = "later"  # the option of a retry at a time that the handler says
RETRY = (holds_claim, budget_left)
CANCELLED = Fixed("CANCELLED", Category.PERMANENT, "cancelled before it ran")
CODES = ("MAX_ATTEMPTS", "CANCELLED", "DISMISSED")
CANCELLED_RUNNING = Fixed("CANCELLED", Category.PERMANENT, "cancelled while it ran")


def task_lifecycle(
    name: str = "task",
    *,
    max_attempts: int = 5,
    backoff: Backoff | None = None,
    lease_seconds: int = 60,
    keep_days: int = 30,
    concurrency: int | None = None,
    per: Literal["queue", "tenant"] = "queue",
    rate: tuple[int, int] | None = None,
    parents: bool = False,
) -> Lifecycle:
    """A lifecycle for work with retries, which suits most queues.

    At most ``concurrency`` jobs run at a time, in the queue or per tenant; None means no limit.
    With ``rate=(100, 60)``, at most 100 jobs of a tenant start in 60 seconds, after a burst of 100.
    With ``parents``, jobs can wait for other jobs: ``enqueue(…, after=[…])``.
    """
    retry_backoff = backoff or doubling(15, 3_600, jitter_s=15)
    given: Any = rate
    if given is not None and not (isinstance(given, tuple | list) and len(given) == 2):  # noqa: PLR2004
        raise DeclarationError(f"rate must be a number of jobs and a number of seconds, got {given!r}")
    if not isinstance(parents, bool):
        raise DeclarationError(f"parents must be True or False, got {parents!r}")
    limits = () if rate is None else (limit_of(*rate),)
    blocked = (State("blocked", resting=True, holds_key=True),) if parents else ()
    return Lifecycle(
        name=name,
        doc="A handler that may fail and is retried with increasing delays.",
        max_attempts=max_attempts,
        lease_seconds=lease_seconds,
        states=(
            State("ready", initial=True, holds_key=True),
            State("running", holds_key=True, slots=concurrency, slots_per=per),
            State("done", terminal=True, success=True),
            State("failed", resting=True),
            *blocked,
        ),
        moves=(
            moves.enqueue("ready"),
            *(_after_others() if parents else ()),
            moves.claim("ready", "running", when=(due, unclaimed, budget_left, *limits)),
            moves.complete("running", "done"),
            moves.retry("running", "ready", retry_backoff, when=(*RETRY, option(LATER, is_set=False))),
            moves.retry(
                "running",
                "ready",
                "input",
                name="retry_later",
                action="retry",
                when=(*RETRY, option(LATER, is_set=True)),
                doc="The handler set the delay: Failed(code, retry_in_s=…).",
            ),
            moves.retry_spent("running", "failed", doc="The last attempt failed: the job keeps its error message."),
            moves.fail("running", "failed"),
            moves.retry(
                "running",
                "ready",
                "input",
                name="wait",
                error="clear",
                doc="Nothing to do yet: Wait(seconds). The claim still counts as an attempt.",
            ),
            moves.retry_spent("running", "failed", name="wait_spent", action="wait", error=moves.OUT_OF_ATTEMPTS),
            moves.release("running", "ready", doc="A graceful stop gives the attempt back."),
            moves.attempt_cap("ready", "failed"),
            moves.recover("running", "ready", doc="The worker died or lost its lease."),
            moves.recover_spent("running", "failed"),
            moves.requeue("failed", "ready", doc="Retry a failed job with new attempts."),
            moves.dismiss("failed", "CANCELLED", doc="No action is needed; requeue retries it."),
            moves.cancel("ready", "failed", error=CANCELLED),
            moves.cancel(
                "running",
                "failed",
                name="cancel_running",
                action="cancel",
                when=(),
                claim="drop",
                error=CANCELLED_RUNNING,
                doc="The worker loses its claim; its handler can see run.cancelled.",
            ),
            moves.prune(("done", "failed"), days=keep_days),
        ),
        errors=one_channel(
            "worker",
            *(Code(name, Category.PERMANENT) for name in (*CODES, *(("PARENT_FAILED",) if parents else ()))),
            verdicts=dict.fromkeys((Category.TRANSIENT, Category.RATE_LIMIT), Verdict.RETRY),
            fail="fail",
            retry="retry",
            complete="complete",
        ),
    )


def _after_others() -> tuple[Move, ...]:
    return (
        moves.enqueue_after("blocked", doc="enqueue(…, after=[…]): it waits for those jobs."),
        moves.unblock("blocked", "ready", doc="Every job that it depends on has succeeded."),
        moves.parent_failed("blocked", "failed"),
        moves.cancel("blocked", "failed", name="cancel_blocked", action="cancel", error=CANCELLED),
    )
