"""A shop with FastAPI and SQLAlchemy: an order and its mail are saved together, or not at all.

`uvicorn shop:app` serves the shop; `python shop.py` runs the worker, which also runs the schedule.
"""

from __future__ import annotations

import asyncio
import os
import smtplib
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from kesin import Failed, Job, Queue, Schedule, Worker, open_store, task_lifecycle

DATABASE = os.environ.get("KESIN_DATABASE_URL", "shop.db")  # as `kesin` reads it
engine = create_engine(f"sqlite:///{DATABASE}")


class Base(DeclarativeBase):
    """The shop's own tables, in the same file as the queue's."""


class Order(Base):
    """What a customer ordered."""

    __tablename__ = "customer_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    price: Mapped[int]


class Mail(BaseModel):
    """The payload of a job."""

    to: str
    order: int = 0


store = open_store(DATABASE)
Base.metadata.create_all(engine)
mails = Queue(
    "mails",
    task_lifecycle(max_attempts=5),
    store,
    payload=Mail,
    title="Order {order}",
    search=("order",),
    schedules=[Schedule("summary", "0 7 * * 1-5", {"to": "owner@example.org"}, "Europe/Istanbul")],
)
app = FastAPI()


class NewOrder(BaseModel):
    """The body of a request."""

    email: str
    price: int


def session() -> Iterator[Session]:
    """A session for each request."""
    with Session(engine) as opened:
        yield opened


@app.post("/orders", status_code=201)
def order(new: NewOrder, db: Annotated[Session, Depends(session)]) -> dict[str, int | str]:
    """Save an order, and enqueue its confirmation in the same transaction."""
    saved = Order(email=new.email, price=new.price)
    db.add(saved)
    db.flush()
    mail = mails.enqueue(
        Mail(to=new.email, order=saved.id), key=f"order-{saved.id}", once=True, within=db
    )
    if new.price <= 0:
        raise HTTPException(422, "the price must be positive")  # neither is saved
    db.commit()
    return {"order": saved.id, "mail": mail.id}


async def send(job: Job) -> dict[str, str]:
    """Send a mail. Many run concurrently, because each waits for a server."""
    mail: Mail = job.payload
    if "@" not in mail.to:
        raise Failed("NO_ADDRESS", f"{mail.to} is not an address", category="PERMANENT")
    message = EmailMessage()
    message["From"], message["To"] = "shop@example.org", mail.to
    message["Subject"] = f"Your order {mail.order}"
    await asyncio.to_thread(deliver, message)
    return {"sent_to": mail.to}


def deliver(message: EmailMessage) -> None:
    """Send a mail through the server; if it is unreachable, the job is retried."""
    with smtplib.SMTP(os.environ.get("MAIL_SERVER", "localhost:25")) as server:
        server.send_message(message)


if __name__ == "__main__":
    Worker(mails, send, concurrency=50).run()
