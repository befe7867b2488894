"""Kesin: durable work queues in which every job provably ends.

Names are imported on first use, so that `kesin --help` imports none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kesin.foundation.version import __version__ as __version__

if TYPE_CHECKING:
    from kesin.engine.bulk import BulkResult
    from kesin.engine.new_job import NewJob
    from kesin.engine.queue import Queue, StaleClaim
    from kesin.engine.replay import Verification, verify
    from kesin.engine.results import Act, Done, Failed, RunContext, Wait
    from kesin.engine.schedules import Schedule
    from kesin.engine.sweeper import Sweeper
    from kesin.engine.validation import BadInput
    from kesin.engine.worker import Worker
    from kesin.engine.workload import Workload, WorkloadContext
    from kesin.foundation.clock import Clock, ManualClock
    from kesin.foundation.logs import set_up_logs
    from kesin.foundation.permissions import Actor
    from kesin.foundation.problems import Forbidden, Invalid, NotFound, NotSignedIn, Problem
    from kesin.foundation.settings import Settings, load_settings
    from kesin.foundation.text import canonical_json
    from kesin.lifecycle import moves
    from kesin.lifecycle.budget import Backoff, doubling
    from kesin.lifecycle.declare import Lifecycle, Move, State
    from kesin.lifecycle.errors import Category, Code, Rule, Taxonomy, Verdict, same_everywhere
    from kesin.lifecycle.model import Job
    from kesin.lifecycle.proof.rules import Proof, Unproved, prove
    from kesin.lifecycle.task import task_lifecycle
    from kesin.lifecycle.vocabulary import (
        GONE,
        STAY,
        After,
        DeclarationError,
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
        parents_done,
        parents_failed,
        rate,
        retries_left,
        returns_left,
        slot_free,
        timer_not_over,
        timer_over,
        unclaimed,
        was_claimed,
    )
    from kesin.store.contract import Store
    from kesin.store.errors import StoreError, StoreTrouble, StoreUnreachable, UnknownQueue
    from kesin.store.limits import MAX_KEY, MAX_TENANT
    from kesin.store.open import open_store
    from kesin.store.records import Event, Filter, Note, Outcome, Page, Progress, QueueStats
    from kesin.store.rules import UpgradeRefused
    from kesin.web.bodies import LargeBodyRoute
    from kesin.web.dashboard.frame.page import (
        JobAction,
        Link,
        PageContext,
        Panel,
        WorkloadPages,
        page_context,
        page_router,
    )

_MODULES = {
    "kesin.engine.results": ("Act", "Done", "Failed", "RunContext", "Wait"),
    "kesin.engine.bulk": ("BulkResult",),
    "kesin.engine.new_job": ("NewJob",),
    "kesin.engine.queue": ("Queue", "StaleClaim"),
    "kesin.engine.replay": ("Verification", "verify"),
    "kesin.engine.schedules": ("Schedule",),
    "kesin.engine.sweeper": ("Sweeper",),
    "kesin.engine.validation": ("BadInput",),
    "kesin.engine.worker": ("Worker",),
    "kesin.engine.workload": ("Workload", "WorkloadContext"),
    "kesin.foundation.permissions": ("Actor",),
    "kesin.foundation.clock": ("Clock", "ManualClock"),
    "kesin.foundation.logs": ("set_up_logs",),
    "kesin.foundation.problems": ("Forbidden", "Invalid", "NotFound", "NotSignedIn", "Problem"),
    "kesin.foundation.settings": ("Settings", "load_settings"),
    "kesin.foundation.text": ("canonical_json",),
    "kesin.lifecycle": ("moves",),
    "kesin.lifecycle.budget": ("Backoff", "doubling"),
    "kesin.lifecycle.declare": ("Lifecycle", "Move", "State"),
    "kesin.lifecycle.errors": (
        "Category",
        "Code",
        "Rule",
        "Taxonomy",
        "Verdict",
        "same_everywhere",
    ),
    "kesin.lifecycle.model": ("Job",),
    "kesin.lifecycle.proof.rules": ("Proof", "Unproved", "prove"),
    "kesin.lifecycle.task": ("task_lifecycle",),
    "kesin.lifecycle.vocabulary": (
        "GONE",
        "STAY",
        "After",
        "DeclarationError",
        "Fixed",
        "Guard",
        "age_over",
        "budget_left",
        "budget_spent",
        "category_in",
        "code_in",
        "code_not_in",
        "due",
        "flag_not_set",
        "flag_set",
        "holds_claim",
        "lease_over",
        "option",
        "parents_done",
        "parents_failed",
        "rate",
        "retries_left",
        "returns_left",
        "slot_free",
        "timer_not_over",
        "timer_over",
        "unclaimed",
        "was_claimed",
    ),
    "kesin.store.contract": ("Store",),
    "kesin.store.rules": ("UpgradeRefused",),
    "kesin.store.errors": ("StoreError", "StoreTrouble", "StoreUnreachable", "UnknownQueue"),
    "kesin.store.limits": ("MAX_KEY", "MAX_TENANT"),
    "kesin.store.open": ("open_store",),
    "kesin.store.records": (
        *("Event", "Filter", "Note", "Outcome", "Page", "Progress", "QueueStats"),
    ),
    "kesin.web.bodies": ("LargeBodyRoute",),
    "kesin.web.dashboard.frame.page": (
        *("JobAction", "Link", "PageContext", "Panel", "WorkloadPages"),
        *("page_context", "page_router"),
    ),
}
__all__ = [
    "GONE",
    "MAX_KEY",
    "MAX_TENANT",
    "STAY",
    "Act",
    "Actor",
    "After",
    "Backoff",
    "BadInput",
    "BulkResult",
    "Category",
    "Clock",
    "Code",
    "DeclarationError",
    "Done",
    "Event",
    "Failed",
    "Filter",
    "Fixed",
    "Forbidden",
    "Guard",
    "Invalid",
    "Job",
    "JobAction",
    "LargeBodyRoute",
    "Lifecycle",
    "Link",
    "ManualClock",
    "Move",
    "NewJob",
    "NotFound",
    "NotSignedIn",
    "Note",
    "Outcome",
    "Page",
    "PageContext",
    "Panel",
    "Problem",
    "Progress",
    "Proof",
    "Queue",
    "QueueStats",
    "Rule",
    "RunContext",
    "Schedule",
    "Settings",
    "StaleClaim",
    "State",
    "Store",
    "StoreError",
    "StoreTrouble",
    "StoreUnreachable",
    "Sweeper",
    "Taxonomy",
    "UnknownQueue",
    "Unproved",
    "UpgradeRefused",
    "Verdict",
    "Verification",
    "Wait",
    "Worker",
    "Workload",
    "WorkloadContext",
    "WorkloadPages",
    "age_over",
    "budget_left",
    "budget_spent",
    "canonical_json",
    "category_in",
    "code_in",
    "code_not_in",
    "doubling",
    "due",
    "flag_not_set",
    "flag_set",
    "holds_claim",
    "lease_over",
    "load_settings",
    "moves",
    "open_store",
    "option",
    "page_context",
    "page_router",
    "parents_done",
    "parents_failed",
    "prove",
    "rate",
    "retries_left",
    "returns_left",
    "same_everywhere",
    "set_up_logs",
    "slot_free",
    "task_lifecycle",
    "timer_not_over",
    "timer_over",
    "unclaimed",
    "verify",
    "was_claimed",
]


_RENAMED = {"New": "NewJob", "Run": "RunContext"}  # old names, for one more release


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        from kesin.foundation.deprecation import warn_renamed

        warn_renamed(f"kesin.{name}", f"kesin.{_RENAMED[name]}")
        name = _RENAMED[name]
    for module, names in _MODULES.items():
        if name in names:
            home = import_module(module)
            if not hasattr(home, name):  # it is a module itself
                import_module(f"{module}.{name}")
            value = globals()[name] = getattr(home, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
