"""Tenants share a queue fairly, and each can be paused separately."""

from collections import Counter

from kesin import NewJob, Queue, open_store, task_lifecycle

mails = Queue("mails", task_lifecycle(), open_store(":memory:"))
mails.enqueue_many(NewJob(n, tenant="ankara") for n in range(1_000))  # many jobs
mails.enqueue_many(NewJob(n, tenant="izmir") for n in range(20))


def claimed(limit: int) -> dict[str, int]:
    """Claim jobs and count them by tenant."""
    return dict(Counter(job.tenant for job in mails.claim("worker-1", limit=limit)))


print("a claim of 10:", claimed(10))  # izmir does not wait behind the jobs of ankara

mails.pause(tenant="ankara", actor="ayse", reason="their server is down")
print("ankara paused:", claimed(10))
print("paused:", [(one.tenant, one.reason) for one in mails.store.paused("mails")])

mails.resume(tenant="ankara")
mails.pause(actor="ayse", reason="maintenance")  # without a tenant: the whole queue
print("all paused:", claimed(10))

mails.resume()
print("resumed:", claimed(10))
