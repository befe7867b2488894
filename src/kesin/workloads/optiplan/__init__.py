"""The OptiPlan workload: cutting orders; web, spreadsheets and XML load on first use."""

from functools import partial
from typing import TYPE_CHECKING, Final

from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.extras import LIBRARIES
from kesin.workloads.common import lazy
from kesin.workloads.optiplan.errors import ADVICE

if TYPE_CHECKING:
    from kesin.engine.worker import Worker

_later = partial(lazy.later, __name__)
_attribute = partial(lazy.attribute, __name__)


def _worker(context: WorkloadContext) -> "Worker":
    from kesin.workloads.optiplan.pipeline.runner import build_worker
    from kesin.workloads.optiplan.workshop.config import Workshop

    return build_worker(Workshop(context.settings), context.queue)


def _periodic(context: WorkloadContext) -> None:
    from kesin.workloads.optiplan.pipeline.waiting import log_timeouts
    from kesin.workloads.optiplan.stock.settling import settle_orders

    log_timeouts(context.queue)
    settle_orders(context)


OPTIPLAN: Final = Workload(
    "optiplan",
    _later("workshop.config:configured_lifecycle"),
    "Cutting orders to the saw",
    title="Orders",
    has_sites=False,
    personal_fields=frozenset({"customer_phone", "customer_snapshot_name", "phone", "phone_normalized"}),
    job_title=_later("orders.payload:order_title"),
    search_fields=("order.order_id",),
    worker=_worker,
    opens_secrets=False,
    after_sweep=_later("files:delete_expired_files"),
    periodic=_periodic,
    routes=_later("api.routes:optiplan_router"),
    pages=_attribute("pages:PAGES"),
    cli=_attribute("cli:app"),
    demo=_later("demo:OptiplanDemo"),
    advice=ADVICE.describe,
    backup_files=_later("files:backup_files"),
    # An approval without XML asks first, a cancel withdraws files from the saw's inbox, and a
    # reissue creates a new revision.
    restricted_actions=frozenset({"approve", "cancel", "request_cancel", "reissue"}),
    needs=LIBRARIES["optiplan"],
)
