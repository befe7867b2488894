"""How a job reaches somebody who renders: the one function to change for another transport."""

from __future__ import annotations


def enqueue_pdf_job(job_id: str) -> None:
    """Send for a worker.

    The workers of the embedded store and of PostgreSQL look for themselves, and are woken when a
    job is written: there is nobody to send for. A transport that carries ids hands this one on.
    """
    del job_id
