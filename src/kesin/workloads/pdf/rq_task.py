"""The task of a plain `rq worker`: opens what a single job needs and closes it afterwards."""

from contextlib import closing

from kesin.engine.queue import Queue
from kesin.foundation.settings import load_settings
from kesin.store.errors import StoreError
from kesin.workloads.common.stores import open_workload_redis
from kesin.workloads.pdf import PDF
from kesin.workloads.pdf.lifecycle import configured_lifecycle
from kesin.workloads.pdf.services import create_renderer


def render_job(job_id: str) -> None:
    """Render this job with the environment's settings, unless another worker has claimed it."""
    settings = load_settings()
    if not settings.redis_url:
        raise StoreError("an RQ worker gets its jobs from Redis: set KESIN_REDIS_URL")
    with closing(open_workload_redis(settings.redis_url, [PDF])) as store:
        queue = Queue("pdf", configured_lifecycle(), store)
        with closing(create_renderer(settings, queue)) as renderer:
            renderer.process_job(job_id)
