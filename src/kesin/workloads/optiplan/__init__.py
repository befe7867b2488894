"""The OptiPlan workload: a furniture workshop's cutting orders, from the order to the saw.

Modules that need the web, spreadsheets or XML are imported on first use.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.extras import LIBRARIES
from kesin.workloads.common.lazy import lazy_call, lazy_value
from kesin.workloads.optiplan.advice import ADVICE

if TYPE_CHECKING:
    from kesin.engine.worker import Worker

_call: Final = partial(lazy_call, __name__)


def _worker(context: WorkloadContext) -> Worker:
    from kesin.workloads.optiplan.pipeline.runner import build_worker
    from kesin.workloads.optiplan.workshop.config import Workshop

    return build_worker(Workshop(context.settings), context.queue)


OPTIPLAN: Final = Workload(
    "optiplan",
    _call("workshop.config:configured_lifecycle"),
    "Cutting orders to the saw",
    title="Orders",
    has_sites=False,
    personal_fields=frozenset(
        {"customer_phone", "customer_snapshot_name", "phone", "phone_normalized"}
    ),
    worker=_worker,
    opens_secrets=False,
    after_sweep=_call("cleanup:delete_expired_files"),
    routes=_call("api.routes:optiplan_router"),
    pages=lazy_value(__name__, "pages:PAGES"),
    cli=lazy_value(__name__, "cli:app"),
    demo=_call("demo:OptiplanDemo"),
    advice=ADVICE.describe,
    backup_files=_call("backup:backup_files"),
    # A cancel withdraws files from the saw's inbox and a reissue creates a new revision.
    restricted_actions=frozenset({"cancel", "request_cancel", "reissue"}),
    needs=LIBRARIES["optiplan"],
)
