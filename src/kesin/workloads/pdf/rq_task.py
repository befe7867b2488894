"""What a plain `rq worker` calls: it opens everything for one job, and closes it behind it."""

from __future__ import annotations

from kesin.engine.queue import Queue
from kesin.foundation.settings import load_settings
from kesin.store.errors import StoreError
from kesin.store.open import open_redis
from kesin.workloads.pdf.lifecycle import configured_lifecycle
from kesin.workloads.pdf.services import renderer_of


def render_job(job_id: str) -> None:
    """Render this job as the settings of the environment say.

    A job that is not waiting is left alone: somebody else was sent for as well, and was quicker.
    """
    settings = load_settings()
    if not settings.redis_url:
        raise StoreError("an RQ worker finds its jobs in Redis: set KESIN_REDIS_URL")
    store = open_redis(settings.redis_url)
    try:
        renderer = renderer_of(settings, Queue("pdf", configured_lifecycle(), store))
        try:
            renderer.process_job(job_id)
        finally:
            renderer.close()
    finally:
        store.close()
