"""A shop with Django: an order and its mail are saved together, or not at all.

`python shop.py runserver` serves the shop; `python shop.py worker` runs its jobs and its schedule.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import django
from django.conf import settings

MAIL_HOST, MAIL_PORT = os.environ.get("MAIL_SERVER", "localhost:25").split(":")
DATABASE = os.environ.get("KESIN_DATABASE_URL", "shop.db")  # as `kesin` reads it
settings.configure(
    DEBUG=True,
    SECRET_KEY="for this example",  # noqa: S106
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    EMAIL_HOST=MAIL_HOST,
    EMAIL_PORT=int(MAIL_PORT),
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}},
)
django.setup()

from django.core.mail import send_mail  # noqa: E402
from django.core.management import execute_from_command_line  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402

from kesin import Job, Queue, Schedule, Worker, open_store, task_lifecycle  # noqa: E402

store = open_store(DATABASE)
mails = Queue(
    "mails",
    task_lifecycle(),
    store,
    schedules=[Schedule("summary", "0 7 * * 1-5", {"to": "owner@example.org"}, "Europe/Istanbul")],
)


class Order(models.Model):
    """What a customer ordered."""

    email = models.EmailField()
    price = models.IntegerField()

    class Meta:
        """A model outside of an app."""

        app_label = "shop"

    def __str__(self) -> str:
        return f"{self.email}: {self.price}"


if Order._meta.db_table not in connection.introspection.table_names():  # noqa: SLF001
    with connection.schema_editor() as editor:  # a real project has migrations
        editor.create_model(Order)


def order(request: HttpRequest) -> JsonResponse:
    """Save an order, and enqueue its confirmation in the same transaction."""
    new = json.loads(request.body)
    with transaction.atomic():
        saved = Order.objects.create(email=new["email"], price=new["price"])
        mail = mails.enqueue(
            {"to": saved.email}, key=f"order-{saved.pk}", once=True, within=connection
        )
        if saved.price <= 0:
            transaction.set_rollback(True)  # neither is saved
            return JsonResponse({"error": "nothing costs nothing"}, status=422)
    return JsonResponse({"order": saved.pk, "mail": mail.id}, status=201)


async def send(job: Job) -> dict[str, str]:
    """Send a mail. Many run concurrently, because each waits for a server."""
    to = job.payload["to"]
    await asyncio.to_thread(send_mail, "Your order", "It is on its way.", "shop@example.org", [to])
    return {"sent_to": to}


urlpatterns = [path("orders", order)]

if __name__ == "__main__" and sys.argv[1:] == ["worker"]:
    Worker(mails, send, concurrency=50).run()
elif __name__ == "__main__":
    execute_from_command_line(sys.argv)
