"""The oci workload: conversions for Google Ads. Web and Google modules load on first use."""

from functools import partial
from typing import TYPE_CHECKING, Final

from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.logs import Logger
from kesin.workloads.common import lazy
from kesin.workloads.oci.lifecycle import ADVICE, QUEUE, adjustment_lifecycle, oci_lifecycle, with_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from kesin.engine.worker import Worker

log = Logger("kesin.oci")
_later = partial(lazy.later, __name__)
_attribute = partial(lazy.attribute, __name__)


def _worker(context: WorkloadContext, place: str = "uploader:Uploader") -> "Worker":
    from kesin.foundation.problems import Unavailable
    from kesin.workloads.oci.google.connection_check import channels_of

    build: Callable[..., Worker] = _attribute(place)()
    try:
        return build(context, channels_of(context.settings))
    except Unavailable as problem:  # sites on the script channel need no uploads from us
        if context.queue.stats().total:
            log.warning("uploads_unavailable", why=problem.message)
        return build(context, {})


OCI: Final = Workload(
    "oci",
    partial(with_settings, oci_lifecycle),
    "Offline conversions to Google Ads",
    title="Conversions",
    personal_fields=frozenset({"gclid", "wbraid", "gbraid"}),
    job_title="{externalId} · {conversionValue} {conversionCurrency}",
    search_fields=("externalId", "orderId"),
    site_settings=_attribute("site:SETTING_CELLS"),
    account_settings=frozenset({"customer_id", "actions"}),
    worker=_worker,
    routes=_later("api.routes:oci_router"),
    pages=_attribute("pages:PAGES"),
    cli=_attribute("cli:app"),
    demo=_later("demo:OciDemo"),
    advice=ADVICE.describe,
    metrics=_later("operations:oci_metrics"),
)
OCI_ADJUSTMENTS: Final = Workload(
    QUEUE,
    partial(with_settings, adjustment_lifecycle),
    "Retracted and restated conversions",
    title="Adjustments",
    part_of="oci",
    job_title=_later("adjustments:adjustment_title"),
    search_fields=("externalId", "adjustmentId", "orderId"),
    worker=partial(_worker, place="uploader:AdjustmentUploader"),
    pages=_attribute("pages:ADJUSTMENT_PAGES"),
    advice=ADVICE.describe,
)
