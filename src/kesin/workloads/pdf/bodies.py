"""Jobs as they are told: times as ISO-8601 in UTC, and of errors only what concerns the asker."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from kesin.foundation.clock import iso
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.pdf.advice import describe
from kesin.workloads.pdf.doors import sent
from kesin.workloads.pdf.jobs import PdfJob, PdfJobStatus, PdfJobStore, Submitted
from kesin.workloads.pdf.schemas import PdfJobBody, PdfJobResponse, PdfJobStatusResponse


def accepted(submitted: Submitted) -> Response:
    """202 for a job that was made, 200 for one that was there."""
    job = submitted.job
    body = PdfJobResponse(job_id=job.job_id, status=job.status, created_at=spelled(job.created_at))
    return sent(body, 202 if submitted.new else 200, location=f"/pdf/jobs/{job.job_id}")


def job_body(job: PdfJob) -> PdfJobBody:
    """A job in a list."""
    return PdfJobBody.model_construct(**_fields(job))  # our own values


def status_body(jobs: PdfJobStore, job: PdfJob) -> PdfJobStatusResponse:
    """A job on its own, with its place in line."""
    return PdfJobStatusResponse.model_construct(**_fields(job), position=jobs.position(job))


def _fields(job: PdfJob) -> dict[str, Any]:
    made = (job.made or {}) if job.status is PdfJobStatus.SUCCEEDED else {}
    ended_badly = job.status in {PdfJobStatus.FAILED, PdfJobStatus.EXPIRED}
    there = job.status is PdfJobStatus.SUCCEEDED
    name = (job.manner or {}).get("file_name")
    return {
        "job_id": job.job_id,
        "status": job.status,
        "created_at": spelled(job.created_at),
        "started_at": None if job.started_at is None else spelled(job.started_at),
        "finished_at": None if job.finished_at is None else spelled(job.finished_at),
        "error_code": job.error_code if ended_badly else None,
        "error_message": _why(job) if ended_badly else None,
        "download_url": f"/pdf/jobs/{job.job_id}/download" if there else None,
        "retry_count": job.retry_count,
        "template_name": job.template_name,
        "file_name": name if isinstance(name, str) else None,
        "pages": made.get("pages"),
        "bytes": made.get("bytes"),
        "sha256": made.get("sha256"),
        "engine": made.get("engine"),
        "warnings": list(made.get("warnings") or ()),
    }


def _why(job: PdfJob) -> str | None:
    """An error in words; where the code is ours alone, in words that name nothing of the inside."""
    if job.internal_code is None or job.internal_code == job.error_code:
        return job.why
    told: str = describe(job.internal_code)["en"]["means"]
    return told


def spelled(seconds: float) -> str:
    """A time of a job; the stored microsecond comes back exactly."""
    return iso(round(seconds * SECOND_US)) or ""
