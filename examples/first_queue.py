"""A queue in ten lines: enqueue, work, count."""

from kesin import Done, Job, Queue, Worker, open_store, task_lifecycle

store = open_store(":memory:")  # or a file, or postgresql://…
mails = Queue("mails", task_lifecycle(), store)


def send(job: Job) -> Done:
    """Send a mail; the returned value is stored with the job."""
    print(f"to {job.payload['to']}: {job.payload['subject']}")
    return Done({"sent": True})


mails.enqueue({"to": "ayse@example.com", "subject": "Hello"}, key="hello-ayse")
mails.enqueue({"to": "can@example.com", "subject": "Hello"}, key="hello-can")
again = mails.enqueue({"to": "can@example.com", "subject": "Hello"}, key="hello-can")
print("the third enqueue:", again.result)

Worker(mails, send).drain()  # .run() works until it is stopped
print(mails.stats().states)
