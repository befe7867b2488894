"""Orders, and what people do with them: the one place doors and commands ask.

Every answer that is no has a code that says why, the same over HTTP and on the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kesin.engine.queue import New
from kesin.engine.workload import WorkloadContext
from kesin.foundation.ids import is_id
from kesin.foundation.permissions import Actor
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Job
from kesin.store.directory import Directory
from kesin.store.records import Filter, Outcome, Page
from kesin.workloads.optiplan.customers import Customer, Customers
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.payload import MAX_NAME, Order, Payload, one_line
from kesin.workloads.optiplan.orders.phones import normalised_phone
from kesin.workloads.optiplan.pipeline.delivery_attempts import withdrawn
from kesin.workloads.optiplan.pipeline.progress import Dossier, Dossiers
from kesin.workloads.optiplan.workshop.config import Workshop

QUEUE: Final = "optiplan"
TENANT: Final = "default"


@dataclass(frozen=True, slots=True)
class Created:
    """A job for an order, and whether it was made for it."""

    job: Job
    new: bool


class OrderDesk:
    """What the doors offer. Who may do it is checked here, and noted."""

    def __init__(self, house: WorkloadContext) -> None:
        self.house = house
        self.queue = house.commands.queues[QUEUE]
        self.workshop = Workshop(house.settings)
        directory = Directory(self.queue.store)
        self.customers = Customers(directory, self.queue.now)
        self._dossiers = Dossiers(directory, self.queue.now)

    # Orders

    def create(self, actor: Actor, payload: Payload) -> Created:
        """The job for an order: a new one, or the one that the same payload has."""
        self.may_create(actor)
        built_in = self.workshop.paths().built_in_optimiser
        mode = self.workshop.rules().mode(payload.opti_mode, built_in_optimiser=built_in)
        return self._enqueue(actor, Order(payload, mode))

    def may_create(self, actor: Actor) -> None:
        """Raise Refused, and note it, for those who bring no orders; before anything is read."""
        self.house.commands.accounts.require(actor, "optiplan", "optiplan.create", queue=QUEUE)

    def _enqueue(self, actor: Actor, order: Order) -> Created:
        new = New(order.as_json(), key=order.key, tenant=TENANT, note={"mode": order.mode})
        [outcome] = self.queue.enqueue_many([new], actor=actor.name)
        if not isinstance(outcome, Outcome):
            raise OrderProblem(OptiCode.VALIDATION, str(outcome))
        return Created(self._found(outcome.id), new=outcome.result == "inserted")

    def job(self, actor: Actor, job_id: str) -> Job:
        """One job; raises OrderProblem (404)."""
        self._reads(actor)
        return self._found(job_id)

    def jobs(
        self,
        actor: Actor,
        *,
        state: str | None = None,
        order_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Some jobs, newest first."""
        self._reads(actor)
        part = None
        if order_id is not None:  # as the stored JSON spells it
            part = '"order_id":' + canonical_json(order_id)
        where = Filter(states=(state,) if state else (), contains=part)
        return self.queue.jobs(where, limit=limit, cursor=cursor)

    def dossier(self, job: Job) -> Dossier:
        """What the runner remembers of it."""
        return self._dossiers.read(job.id)

    # What an operator does

    def approve(self, actor: Actor, job_id: str) -> Job:
        """Let a held order go on."""
        outcome = self._act(actor, "approve", job_id)
        if outcome.result != "moved":
            raise OrderProblem(
                OptiCode.JOB_NOT_IN_HOLD, f"the job is {outcome.state}: only a held one is approved"
            )
        return self._found(job_id)

    def retry(self, actor: Actor, job_id: str) -> Job:
        """Try a failed order again, after a pause."""
        self._operates(actor, "retry")
        before = self._found(job_id)
        outcome = self._act(actor, "retry", job_id)
        if outcome.result == "moved":
            return self._found(job_id)
        match outcome.reason:
            case "retries_left":
                raise OrderProblem(
                    OptiCode.RETRY_LIMIT_REACHED,
                    f"it was retried {before.retry_count} times: reissue it once the cause is gone",
                )
            case "code_not_in":
                raise OrderProblem(
                    OptiCode(before.error_code or OptiCode.UNKNOWN),
                    "trying again would not help: reissue it once the cause is gone",
                )
            case "flag_not_set":
                raise OrderProblem(OptiCode.REISSUED, "a new revision has taken over")
            case _:
                raise OrderProblem(
                    OptiCode.JOB_NOT_FAILED,
                    f"the job is {outcome.state}: only a failed one is retried",
                )

    def cancel(self, actor: Actor, job_id: str) -> Job:
        """Stop an order, unless the machine has it already.

        One that a runner has in hand is stopped at the runner's next step.
        """
        self._operates(actor, "cancel")
        before = self._found(job_id)
        if before.state in {"DELIVERED", "DONE", "FAILED"}:
            raise OrderProblem(
                OptiCode.JOB_NOT_CANCELLABLE, f"the job is {before.state}: it is too late"
            )
        machine = self.workshop.paths().machine_drop_folder
        with self.queue.store.transaction():  # no runner gets it meanwhile
            outcome = self._act(actor, "cancel", job_id)
            if outcome.result == "moved" and not withdrawn(machine, self._dossiers, job_id):
                raise OrderProblem(OptiCode.JOB_NOT_CANCELLABLE, "the machine has taken it already")
        if outcome.result != "moved":
            outcome = self._act(actor, "request_cancel", job_id)
        if outcome.result != "moved" and outcome.reason != "flag_not_set":
            raise OrderProblem(
                OptiCode.JOB_NOT_CANCELLABLE, f"the job is {outcome.state}: it is too late"
            )
        return self._found(job_id)

    def reissue(self, actor: Actor, job_id: str) -> Created:
        """A new revision of the same payload, in the place of one that failed or was cut."""
        self._operates(actor, "reissue")
        old = self._found(job_id)
        order = Order.of(old)
        with self.queue.store.transaction():
            if old.state == "FAILED":
                outcome = self._act(actor, "reissue", job_id)
                marked = outcome.reason == "flag_not_set"  # also by who only marked it
                if outcome.result != "moved" and not marked:
                    raise _not_over(outcome.state)
                machine = self.workshop.paths().machine_drop_folder
                withdrawn(machine, self._dossiers, job_id, whole=False)
                made = self._enqueue(actor, replace(order, revision=order.revision + 1))
                if marked and not made.new:
                    raise OrderProblem(OptiCode.REISSUED, "a new revision has taken over already")
                return made
            if old.state != "DONE":
                raise _not_over(old.state)
            self.queue.store.add_note(
                QUEUE,
                kind="REISSUED",
                actor=actor.name,
                tenant=old.tenant,
                job_id=old.id,
                now=self.queue.clock.now(),
            )
            return self._enqueue(actor, replace(order, revision=order.revision + 1))

    # Customers

    def lookup(self, actor: Actor, phone: str) -> tuple[str, Customer | None]:
        """The phone as it is kept, and whose it is."""
        self._reads(actor)
        normalised = normalised_phone(phone)
        if not normalised:
            raise OrderProblem(OptiCode.PHONE_REQUIRED, "give a phone number: ?phone=")
        return normalised, self.customers.find(normalised)

    def add_customer(self, actor: Actor, name: str, phone: str) -> tuple[Customer, bool]:
        """Keep a customer, and say whether the phone is new."""
        self._keeps_customers(actor)
        normalised = normalised_phone(phone)
        if not normalised:
            raise OrderProblem(OptiCode.PHONE_REQUIRED, "a customer is known by a phone number")
        name = name.strip()
        if not 1 <= len(name) <= MAX_NAME:
            raise OrderProblem(OptiCode.VALIDATION, f"a name has 1…{MAX_NAME} characters")
        try:
            customer = Customer(one_line(name), normalised)
        except ValueError as problem:
            raise OrderProblem(OptiCode.VALIDATION, f"the name {problem}") from None
        with self.queue.store.transaction():
            new = self.customers.put(customer)
            self.house.commands.accounts.note(
                actor, "optiplan.customer", queue=QUEUE, target=normalised
            )
        return customer, new

    def remove_customer(self, actor: Actor, phone: str) -> Customer | None:
        """Forget whoever has this phone; None if nobody has it."""
        self._operates(actor, "customer")
        normalised, customer = self.lookup(actor, phone)
        if customer is not None:
            with self.queue.store.transaction():
                self.customers.drop(normalised)
                self.house.commands.accounts.note(
                    actor, "optiplan.customer_removed", queue=QUEUE, target=normalised
                )
        return customer

    def customer_page(
        self, actor: Actor, *, limit: int, cursor: str | None = None
    ) -> tuple[list[Customer], str | None]:
        """Some customers, by phone, and where the next page starts."""
        self._reads(actor)
        return self.customers.page(limit=limit, cursor=cursor)

    def knows_customer(self, payload: Payload) -> bool:
        """Whether an order's first gate would let it pass now."""
        return self.customers.find(normalised_phone(payload.customer_phone)) is not None

    # Rights

    def _act(self, actor: Actor, call: str, job_id: str) -> Outcome:
        bulk = self.house.commands.act(actor, QUEUE, call, ids=[job_id], by_door=True)
        outcome = bulk.outcomes[0]
        if outcome.result == "unknown":
            raise _unknown()
        return outcome

    def _reads(self, actor: Actor) -> None:
        if not actor.has("optiplan"):
            self.house.commands.queue(actor, QUEUE, "read", "read")

    def _operates(self, actor: Actor, call: str) -> None:
        """Before anything is looked at: who may not act learns nothing of the job."""
        self.house.commands.queue(actor, QUEUE, "operate", call)

    def _keeps_customers(self, actor: Actor) -> None:
        if not actor.has("optiplan"):
            self._operates(actor, "customer")

    def _found(self, job_id: str) -> Job:
        job = self.queue.job(job_id) if is_id(job_id) else None
        if job is None:
            raise _unknown()
        return job


def _unknown() -> OrderProblem:
    return OrderProblem(OptiCode.JOB_NOT_FOUND, "there is no such job")


def _not_over(state: str | None) -> OrderProblem:
    return OrderProblem(
        OptiCode.JOB_NOT_FAILED, f"the job is {state}: one that failed or is done is reissued"
    )
