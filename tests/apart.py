"""Processes of their own, forked from one that has imported what they need and opened nothing."""

import multiprocessing

APART = multiprocessing.get_context("forkserver")
APART.set_forkserver_preload(
    [
        "kesin.web.service",
        "kesin.workloads.oci.uploader",
        "pytest",
        "tests.engine.processes",
        "tests.workloads.optiplan.processes",
    ]
)
