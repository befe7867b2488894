"""Many ``async def`` jobs on a loop that may block: leases are renewed in another thread."""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from kesin.engine.results import Failed, HandlerResult, failure_of, over_time
from kesin.engine.worker_thread import ClaimShare, WorkerThread
from kesin.lifecycle.model import Job

if TYPE_CHECKING:
    from kesin.engine.worker import Worker

STOP_CHECK_S = 0.25  # while jobs run: how soon a stop, or the end of the grace period, is seen


class AsyncWorkerThread(WorkerThread):
    """The loop of one thread, for a handler that awaits."""

    def __init__(self, worker: "Worker") -> None:
        super().__init__(worker)
        self._results: list[tuple[Job, HandlerResult]] = []  # not yet written

    def run(self) -> None:
        while not self.worker.stopping:
            with self._survived(), ThreadPoolExecutor(2, "kesin-async-store") as pool:
                asyncio.run(self._serve(pool))

    def run_once(self) -> int:
        return self._run_batch(ClaimShare(self.worker.tenants, self.worker.batch))

    def _handle_each(self, jobs: list[Job]) -> None:
        async def handle_all() -> None:
            await asyncio.gather(*map(self._handle, jobs))

        with ThreadPoolExecutor(1) as pool:  # the caller's thread may have a loop of its own
            pool.submit(asyncio.run, handle_all()).result()
        results, self._results = self._results, []
        self._write_results(results)

    async def _serve(self, pool: Executor) -> None:
        """Keep as many jobs running as there are places, until the worker stops."""
        worker, beside = self.worker, partial(asyncio.get_running_loop().run_in_executor, pool)
        claiming: asyncio.Future[list[Job]] | None = None
        writing: asyncio.Future[None] | None = None
        running: dict[asyncio.Task[None], Job] = {}
        alone: list[Job] = []  # suspects, each to be handled while nothing else runs
        while not worker.grace_over.is_set():
            if self._results and writing is None:
                results, self._results = self._results, []
                writing = beside(self._write, results)
            places = worker.batch - len(running)
            if alone or self._suspects:  # one that kills the worker takes no other job along
                places = 0 if running or writing else 1
            if alone and places:
                running |= self._started([alone.pop()])
            if claiming is None and places > 0 and not alone and not worker.stopping:
                claiming = beside(self._claim_or_wait, places)
            pending = {one for one in (claiming, writing, *running) if one is not None}
            if not pending:
                return  # the worker stops, and every result is written
            await asyncio.wait(pending, timeout=STOP_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
            running = self._still_running(running)
            writing = None if writing and writing.done() else writing
            if claiming and claiming.done():
                jobs, claiming = claiming.result(), None
                alone = [job for job in jobs if job.id in self._alone]
                running |= self._started([job for job in jobs if job.id not in self._alone])
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await beside(self._write, self._results)

    def _still_running(self, tasks: dict[asyncio.Task[None], Job]) -> dict[asyncio.Task[None], Job]:
        """The tasks that are not done; those whose job was taken away are cancelled."""
        running = {task: job for task, job in tasks.items() if not task.done()}
        for task, job in running.items():
            if self.worker.leases.is_lost(job) and not task.cancelling():
                task.cancel()
        return running

    def _started(self, jobs: list[Job]) -> dict[asyncio.Task[None], Job]:
        return {asyncio.create_task(self._handle(job)): job for job in jobs}

    def _claim_or_wait(self, places: int) -> list[Job]:
        with self._survived():
            notified = self.queue.store.notification_count(self.queue.name)
            ids = self._suspects.pop(0) if self._suspects else None
            share = ClaimShare(self.worker.tenants, places if ids is None else len(ids))
            jobs = self._claim(share, ids)
            if ids is None:
                jobs = self._release_suspects(jobs)
            if not self.worker.stopping:
                if not jobs and not self._suspects:
                    self._wait(notified)
                return jobs
            self.worker.release_claims(jobs)
        return []

    def _write(self, results: list[tuple[Job, HandlerResult]]) -> None:
        try:
            with self._survived():
                self._write_results(results)
        finally:  # what could not be written is recovered when its lease ends
            self.worker.leases.drop([job for job, _ in results])

    async def _handle(self, job: Job) -> None:
        worker = self.worker
        handler = worker.handler
        assert handler is not None  # noqa: S101  # the constructor ensures it
        result: HandlerResult
        limit = asyncio.timeout(worker.time_limit_s)
        try:
            awaited: Any = handler(job, worker.run_of(job)) if worker.takes_run else handler(job)
            async with limit:
                result = await awaited
        except Failed as failed:
            result = failed
        except BaseException as problem:  # a handler may raise anything
            cancelled = isinstance(problem, asyncio.CancelledError)
            if cancelled and (worker.grace_over.is_set() or worker.leases.is_lost(job)):
                worker.leases.drop([job] if worker.leases.is_lost(job) else [])
                raise  # the job is released, or is not ours any more
            self._log_exception(problem, job=job.id)
            result = failure_of(problem)
            if isinstance(problem, TimeoutError) and limit.expired():
                result = over_time(worker.time_limit_s or 0)
        self._results.append((job, result))
