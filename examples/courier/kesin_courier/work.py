"""The worker: it sends a delivery and turns the response into a result."""

from kesin import Act, Category, Done, Failed, Job, Worker, WorkloadContext, canonical_json
from kesin_courier.send import Reply, post
from kesin_courier.settings import CourierSettings

KINDS = {
    401: Category.AUTH,
    403: Category.AUTH,
    407: Category.AUTH,
    408: Category.TRANSIENT,
    410: Category.PERMANENT,
    425: Category.TRANSIENT,
    429: Category.RATE_LIMIT,
}


def verdict(reply: Reply) -> Done | Failed | Act:
    """Turn a receiver's response into a result."""
    family = reply.status // 100
    if family == 2:
        return Done({"status": reply.status})
    said = f"the receiver responded with {reply.status}: {reply.text}"
    if family == 3:
        return Failed("REDIRECTED", said)
    code = f"HTTP_{reply.status}"
    other = Category.VALIDATION if family == 4 else Category.TRANSIENT
    kind = KINDS.get(reply.status, other)
    if reply.pause_s is not None and kind in (Category.TRANSIENT, Category.RATE_LIMIT):
        return Act("later", code=code, message=said, category=kind, run_in_s=reply.pause_s)
    return Failed(code, said, category=kind)


def courier_worker(context: WorkloadContext) -> Worker:
    """Four deliveries at a time: they mostly wait for receivers."""
    settings = CourierSettings()

    def deliver(job: Job) -> Done | Failed | Act:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": job.id,  # the same in every attempt: a receiver can detect repeats
            "User-Agent": "kesin-courier",
        }
        body = canonical_json(job.payload["body"]).encode()
        return verdict(post(job.payload["url"], body, headers, settings))

    return Worker(context.queue, deliver, threads=4)
