"""The oci workload: offline conversions uploaded to Google Ads.

The web and Google modules are imported on first use, so that a command that needs neither starts
at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.logs import Logger
from kesin.workloads.oci.advice import ADVICE
from kesin.workloads.oci.lifecycle import configured_lifecycle

log = Logger("kesin.oci")

if TYPE_CHECKING:
    from fastapi import APIRouter
    from typer import Typer

    from kesin.engine.worker import Worker
    from kesin.workloads.common.demo import DemoPart


def _worker(context: WorkloadContext) -> Worker:
    from kesin.foundation.problems import Unavailable
    from kesin.workloads.oci.google.channels import channels_of
    from kesin.workloads.oci.uploader import build_worker

    try:
        return build_worker(context, channels_of(context.settings))
    except Unavailable as problem:  # sites on the script channel need no uploads from us
        log.warning("uploads_unavailable", why=problem.message)
        return build_worker(context, {})


def _routes(context: WorkloadContext) -> APIRouter:
    from kesin.workloads.oci.api.routes import oci_router

    return oci_router(context)


def _pages() -> object:
    from kesin.workloads.oci.pages import PAGES

    return PAGES


def _cli() -> Typer:
    from kesin.workloads.oci.cli import app

    return app


def _demo() -> DemoPart:
    from kesin.workloads.oci.demo import OciDemo

    return OciDemo()


OCI: Final = Workload(
    "oci",
    configured_lifecycle,
    "Offline conversions to Google Ads",
    title="Conversions",
    personal_fields=frozenset({"gclid", "wbraid", "gbraid"}),
    worker=_worker,
    routes=_routes,
    pages=_pages,
    cli=_cli,
    demo=_demo,
    advice=ADVICE.describe,
)
