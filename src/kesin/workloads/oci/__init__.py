"""Offline conversions to Google Ads: every one is somewhere, with a reason, and ends.

What needs the web or Google's side is imported when it is first asked for, so that a command that
needs neither starts at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kesin.engine.workload import Panel, Workload, WorkloadContext
from kesin.foundation.logs import Logger
from kesin.workloads.oci.lifecycle import configured_lifecycle

log = Logger("kesin.oci")

if TYPE_CHECKING:
    from fastapi import APIRouter
    from typer import Typer

    from kesin.engine.worker import Worker


def _worker(house: WorkloadContext) -> Worker:
    from kesin.foundation.problems import Unavailable
    from kesin.workloads.oci.google.channels import channels_of
    from kesin.workloads.oci.uploader import worker_of

    try:
        return worker_of(house, channels_of(house.settings))
    except Unavailable as problem:  # sites left to scripts need no upload of ours
        log.warning("no_uploads", why=problem.message)
        return worker_of(house, {})


def _router(house: WorkloadContext) -> APIRouter:
    from kesin.workloads.oci.api.routes import oci_router

    return oci_router(house)


def _cli() -> Typer:
    from kesin.workloads.oci.cli import app

    return app


def _describe(code: str) -> Mapping[str, Any]:
    from kesin.workloads.oci.advice import describe

    return describe(code)


OCI: Final = Workload(
    "oci",
    configured_lifecycle,
    "Offline conversions to Google Ads",
    worker=_worker,
    routes=_router,
    cli=_cli,
    panels=(Panel("OCI Control", "/dashboard/site/{siteId}/oci-control"),),
    advice=_describe,
)
