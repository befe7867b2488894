"""What the API, the dashboard and the commands do with orders; errors have the same codes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from kesin.engine.access.masking import MASK, find_masked, mask_private
from kesin.engine.new_job import NewJob
from kesin.engine.workload import WorkloadContext
from kesin.foundation.ids import is_id
from kesin.foundation.messages import Message
from kesin.foundation.permissions import Actor
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Job
from kesin.store.records import Event, Filter, Note, Outcome, Page
from kesin.store.search import field_of
from kesin.workloads.optiplan.customers import Customer, Customers, means, normalise_phone
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import TRIGGER_REQUIRED
from kesin.workloads.optiplan.orders import payload as payloads
from kesin.workloads.optiplan.orders.order_list import ListDefaults, read_order_file
from kesin.workloads.optiplan.orders.payload import CuttingOrder, FieldProblem, Payload
from kesin.workloads.optiplan.pipeline.delivery import withdraw_job_files
from kesin.workloads.optiplan.pipeline.prechecks import find_unmakeable
from kesin.workloads.optiplan.pipeline.progress import OrderProgress, ProgressStore
from kesin.workloads.optiplan.pipeline.shared_folder import FolderEntry, FolderUnavailable, list_plain_files
from kesin.workloads.optiplan.pipeline.solution import has_all_xml
from kesin.workloads.optiplan.pipeline.waiting import log_unblocked
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.rules import NO_BAND

QUEUE: Final = "optiplan"
ListFiles = Callable[[Path], Sequence[FolderEntry]]
MAX_OFFSET: Final = 9  # digits of a cursor
TENANT: Final = "default"
_TOO_LATE: Final = "the order is %(state)s: it can no longer be cancelled"
_NOT_OVER: Final = "the order is %(state)s: only failed and finished orders can be reissued"


@dataclass(frozen=True, slots=True)
class EnqueuedOrder:
    """The job of an order, and whether it is new."""

    job: Job
    new: bool


def read_order_list(
    workshop: Workshop, name: str, data: bytes, *, order_id: str, customer_phone: str | None, defaults: ListDefaults
) -> Payload:
    """Read the order in an order list; raises BadOrderList with every invalid row."""
    if customer_phone is None:
        raise OrderProblem(
            OptiCode.PHONE_REQUIRED, "a list does not name the customer: give their phone number in ?customer_phone="
        )
    rules = workshop.rules()
    bands = tuple(band for band in rules.edge_mapping if band != NO_BAND) or defaults.bands
    tick = defaults.band if defaults.band in bands else bands[0]
    defaults = replace(defaults, backs_mm=rules.backing_thicknesses, bands=bands, band=tick)
    names = {"order_id": order_id, "customer_phone": customer_phone}
    return read_order_file(name, data, **names, defaults=defaults)


class OrderService:
    """Operations on orders and customers. It checks permissions and writes the audit log."""

    def __init__(self, context: WorkloadContext) -> None:
        self.context = context
        self.queue = context.queue
        self.workshop = Workshop(context.settings)
        self.customers = Customers(self.queue)
        self._progress_store = ProgressStore(self.queue)

    # Orders

    def create_order(self, actor: Actor, payload: Payload) -> EnqueuedOrder:
        """Enqueue an order, or return the job that the same payload already has."""
        self.require_create(actor)
        if field := find_masked(payloads.payload_json(payload)):
            raise _masked_value(field)
        built_in, rules = self.workshop.paths().built_in_optimiser, self.workshop.rules()
        mode = rules.mode(payload.opti_mode, built_in_optimiser=built_in)
        if problems := find_unmakeable(payload, rules, own_boards=mode != "A" or not built_in):
            raise payloads.validation_problem(problems)
        return self._enqueue(actor, CuttingOrder(payload, mode))

    def require_create(self, actor: Actor) -> None:
        """Raise Forbidden if the actor may not create orders; call it before the body is read."""
        self.context.commands.accounts.require(actor, "optiplan", "optiplan.create", queue=QUEUE)

    def _enqueue(self, actor: Actor, order: CuttingOrder) -> EnqueuedOrder:
        new = NewJob(order.as_json(), key=order.key, tenant=TENANT, note={"mode": order.mode})
        [outcome] = self.queue.enqueue_many([new], actor=actor.name)
        if not isinstance(outcome, Outcome):
            raise OrderProblem(OptiCode.VALIDATION, str(outcome))
        return EnqueuedOrder(self._get_job(outcome.id), new=outcome.result == "inserted")

    def job(self, actor: Actor, job_id: str) -> Job:
        """Return a job as the actor may see it; raises OrderProblem (404)."""
        return self.shown(actor, self.readable_job(actor, job_id))

    def readable_job(self, actor: Actor, job_id: str) -> Job:
        """Return a job whose files the actor may read; its payload is not to be shown."""
        self._require_read(actor)
        return self._get_job(job_id)

    def shown(self, actor: Actor, job: Job, *, same_look: bool = False) -> Job:
        """Return the job: in clear for programs that send orders, else masked or audited."""
        if self.owns_orders(actor):
            return job
        if same_look:
            look: dict[str, Any] = {"reveal": "everything", "same_look": True}
            return self.context.commands.shown_list(actor, QUEUE, [job], **look)[0]
        return self.context.commands.shown(actor, job)

    def customer_name(self, shown: Job) -> str:
        """Return the name of an order's customer; empty if it is masked."""
        name = str(field_of(shown.payload, "order.customer_snapshot_name") or "")
        written = str(field_of(shown.payload, "order.customer_phone") or "")
        if MASK in name + written:
            return ""
        customer = self.customers.find(phone) if (phone := normalise_phone(written)) else None
        return name or (customer.name if customer else "")

    def history(self, actor: Actor, job_id: str) -> tuple[Job, list[Event], list[Note]]:
        job = self.readable_job(actor, job_id)
        if self.owns_orders(actor):
            return job, self.queue.events(job.id), self.queue.notes(job.id)
        details = self.context.commands.job(actor, job.id, reveal=True)
        return details.job, details.events, details.notes

    def owns_orders(self, actor: Actor) -> bool:
        """Whether the actor is a program whose orders these are, and not an operator."""
        return actor.has("optiplan") and not actor.has("reveal")

    def jobs(
        self,
        actor: Actor,
        *,
        state: str | None = None,
        order_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        same_look: bool = False,
    ) -> Page:
        """Return a page of visible jobs, newest first; ``same_look``: see `Commands.jobs`."""
        self._require_read(actor)
        # As written in the stored JSON.
        contains = None if order_id is None else f'"order_id":{canonical_json(order_id)}'
        where = Filter(states=(state,) if state else (), contains=contains)
        if self.owns_orders(actor):
            return self.queue.jobs(where, limit=limit, cursor=cursor)
        read = partial(self.context.commands.jobs, actor, QUEUE, where, reveal="everything")
        return read(limit=limit, cursor=cursor, same_look=same_look)

    def progress(self, job: Job) -> OrderProgress:
        return self._progress_store.read(job.id)

    # Operator actions

    def approve(self, actor: Actor, job_id: str, *, confirmed: bool = False) -> Job:
        """Approve a held order; one that waits for its XML must be ready, or be confirmed."""
        self._require_operate(actor, "approve")
        job = self._get_job(job_id)
        if not confirmed and _waits_for_operator(job) and not self.is_ready_to_approve(job):
            raise OrderProblem(
                OptiCode.OPERATOR_TRIGGER_REQUIRED,
                "the order's XML is not in the export folder or is not well-formed: optimise the order"
                " first, or send confirm: true",
            )
        outcome = self._act(actor, "approve", job_id)
        if outcome.result != "moved":
            why = "the order is %(state)s: only held orders can be approved"
            raise OrderProblem(OptiCode.JOB_NOT_IN_HOLD, why, state=outcome.state)
        return self._get_job(job_id)

    def is_ready_to_approve(self, job: Job, list_files: ListFiles = list_plain_files) -> bool:
        """Whether it waits only for approval: its XML is there; the runner checks it again."""
        stems = self.progress(job).stems if _waits_for_operator(job) else ()
        if not stems:
            return False
        try:
            entries = list_files(self.workshop.paths().export_folder)
            return has_all_xml(entries, job.id, stems, self.workshop.settings.optiplan_xsd)
        except (OrderProblem, FolderUnavailable, OSError):  # an unavailable share fails no list
            return False

    def retry(self, actor: Actor, job_id: str) -> Job:
        """Retry a failed order after its backoff."""
        self._require_operate(actor, "retry")
        before = self._get_job(job_id)
        outcome = self._act(actor, "retry", job_id)
        if outcome.result == "moved":
            return self._get_job(job_id)
        match outcome.reason:
            case "retries_left":
                why = "the order has been retried %(n)s times: fix the cause, then reissue it"
                raise OrderProblem(OptiCode.RETRY_LIMIT_REACHED, why, n=before.retry_count)
            case "code_not_in":
                why = Message("a retry would not help: fix the cause, then reissue the order")
                raise OrderProblem(OptiCode(before.error_code or OptiCode.UNKNOWN), why)
            case "flag_not_set":
                raise OrderProblem(OptiCode.REISSUED, "a new revision has replaced it")
            case _:
                why = "the order is %(state)s: only failed orders can be retried"
                raise OrderProblem(OptiCode.JOB_NOT_FAILED, why, state=outcome.state)

    def cancel(self, actor: Actor, job_id: str) -> Job:
        """Cancel an order that the machine does not have; a claimed one at its next step."""
        self._require_operate(actor, "cancel")
        before = self._get_job(job_id)
        if before.state in {"DELIVERED", "DONE", "FAILED"}:
            raise OrderProblem(OptiCode.JOB_NOT_CANCELLABLE, _TOO_LATE, state=before.state)
        machine, store = self.workshop.paths().machine_drop_folder, self._progress_store
        with self.queue.store.transaction():  # no runner can claim it meanwhile
            outcome = self._act(actor, "cancel", job_id)
            moved = outcome.result == "moved"
            if moved and not withdraw_job_files(machine, store, job_id):
                raise OrderProblem(OptiCode.JOB_NOT_CANCELLABLE, "the saw has already taken the order")
        if moved:
            log_unblocked(before)
        else:
            outcome = self._act(actor, "request_cancel", job_id)
        if outcome.result != "moved" and outcome.reason != "flag_not_set":
            raise OrderProblem(OptiCode.JOB_NOT_CANCELLABLE, _TOO_LATE, state=outcome.state)
        return self._get_job(job_id)

    def reissue(self, actor: Actor, job_id: str) -> EnqueuedOrder:
        """Enqueue a new revision of an order that failed or is done."""
        self._require_operate(actor, "reissue")
        old = self._get_job(job_id)
        order = CuttingOrder.from_job(old)
        already_reissued = False
        with self.queue.store.transaction():
            if old.state == "FAILED":
                outcome = self._act(actor, "reissue", job_id)
                # The flag may be set although no new revision was enqueued.
                already_reissued = outcome.reason == "flag_not_set"
                if outcome.result != "moved" and not already_reissued:
                    raise OrderProblem(OptiCode.JOB_NOT_FAILED, _NOT_OVER, state=outcome.state)
                machine, store = self.workshop.paths().machine_drop_folder, self._progress_store
                withdraw_job_files(machine, store, job_id, all_or_nothing=False)
            elif old.state == "DONE":
                add_note = partial(self.queue.store.add_note, QUEUE, kind="REISSUED", job_id=old.id)
                add_note(actor=actor.name, tenant=old.tenant, now=self.queue.clock.now())
            else:
                raise OrderProblem(OptiCode.JOB_NOT_FAILED, _NOT_OVER, state=old.state)
            enqueued = self._enqueue(actor, replace(order, revision=order.revision + 1))
            if already_reissued and not enqueued.new:
                raise OrderProblem(OptiCode.REISSUED, "a new revision has already replaced the order")
            return enqueued

    # Customers

    def look_up_customer(self, actor: Actor, phone: str) -> tuple[str, Customer | None]:
        """Return the normalised phone, and its customer for an actor who may see phones."""
        self._require_read(actor)
        normalised = _require_phone(phone)
        if not self.sees_customers(actor):
            return normalised, None
        if (customer := self.customers.find(normalised)) is not None:
            self._note_customers(actor, 1, target=mask_private(normalised))
        return normalised, customer

    def sees_customers(self, actor: Actor) -> bool:
        """Whether the actor sees the names and phones of customers in clear."""
        return actor.has("optiplan") or actor.has("reveal")

    def _note_customers(self, actor: Actor, count: int, target: str | None = None) -> None:
        """Write to the audit log that an operator has seen customers."""
        if count and not self.owns_orders(actor):
            self._note(actor, "customers", target, details={"customers": count})

    def add_customer(self, actor: Actor, name: str, phone: str, *, approve: str | None = None) -> tuple[Customer, bool]:
        """Save a customer, known or new; ``approve`` its held order with it, or change nothing."""
        if not actor.has("optiplan"):
            self._require_operate(actor, "customer")
        if approve is not None:
            self._require_operate(actor, "approve")
        normalised = _require_phone(phone, "a customer needs a phone number")
        name = name.strip()
        if field := find_masked({"name": name, "phone": phone}):
            raise _masked_value(field)
        if not 1 <= len(name) <= payloads.MAX_NAME:
            why = "a name must have 1…%(most)s characters"
            raise OrderProblem(OptiCode.VALIDATION, why, {"field": "name"}, most=payloads.MAX_NAME)
        try:
            customer = Customer(payloads.check_one_line(name), normalised)
        except ValueError as problem:
            why, what = "the name %(problem)s", Message(str(problem))
            raise OrderProblem(OptiCode.VALIDATION, why, {"field": "name"}, problem=what) from None
        with self.queue.store.transaction():
            new = self.customers.save(customer)
            if approve is not None:
                self._approve_for(actor, approve, normalised)
            self._note(actor, "customer", mask_private(normalised))
        return customer, new

    def _approve_for(self, actor: Actor, job_id: str, phone: str) -> None:
        job = self._get_job(job_id)
        if normalise_phone(str(field_of(job.payload, "order.customer_phone") or "")) != phone:
            problem = "is not the order's phone number: the order would be held again immediately"
            raise FieldProblem(("phone",), problem).as_problem()
        if job.state == "FAILED":
            why = "the order is %(state)s now: nothing was changed"
            raise OrderProblem(OptiCode.JOB_NOT_IN_HOLD, why, state=job.state)
        if job.state == "HOLD" and job.error_code == OptiCode.CRM_NO_MATCH:
            self.approve(actor, job_id)

    def remove_customer(self, actor: Actor, phone: str) -> Customer | None:
        """Delete the customer with this phone; returns None if there is none."""
        self._require_operate(actor, "customer")
        normalised = _require_phone(phone)
        if (customer := self.customers.find(normalised)) is not None:
            with self.queue.store.transaction():
                self.customers.delete(normalised)
                self._note(actor, "customer_removed", mask_private(normalised))
        return customer

    def customer_page(
        self, actor: Actor, *, limit: int, cursor: str | None = None, search: str = ""
    ) -> tuple[list[Customer], str | None]:
        """A page of customers by phone, and the next cursor; masked without the permission."""
        self._require_read(actor)
        sees = self.sees_customers(actor)
        is_offset = cursor is not None and cursor.isdecimal() and len(cursor) <= MAX_OFFSET
        if cursor is not None and not (cursor == normalise_phone(cursor) if sees else is_offset):
            problem = "is not a cursor for this list: leave it out to start again"
            raise FieldProblem(("cursor",), problem).as_problem()
        skip = 0 if sees else int(cursor or 0)
        following = self.customers.following((cursor or "") if sees else "", skip=skip)
        if search:
            following = filter(means(search), following if sees else ())
        found = list(islice(following, limit + 1))
        page, more = found[:limit], len(found) > limit
        if sees:
            self._note_customers(actor, len(page))
            return page, page[-1].phone if more else None
        masked = [Customer(mask_private(each.name), mask_private(each.phone)) for each in page]
        return masked, str(skip + limit) if more else None

    # Permissions and the audit log

    def _note(self, actor: Actor, what: str, target: str | None, **details: Any) -> None:
        accounts = self.context.commands.accounts
        accounts.note(actor, f"optiplan.{what}", queue=QUEUE, target=target, **details)

    def _act(self, actor: Actor, action: str, job_id: str) -> Outcome:
        bulk = self.context.commands.act(actor, QUEUE, action, ids=[job_id], by_workload=True)
        outcome = bulk.outcomes[0]
        if outcome.result == "unknown":
            raise OrderProblem(OptiCode.JOB_NOT_FOUND, "there is no such order")
        return outcome

    def _require_read(self, actor: Actor) -> None:
        if not actor.has("optiplan"):
            self.context.commands.queue(actor, QUEUE, "read", "read")

    def _require_operate(self, actor: Actor, action: str) -> None:
        """Check the permission before the job is read, so that a refusal reveals nothing."""
        self.context.commands.queue(actor, QUEUE, "operate", action)

    def _get_job(self, job_id: str) -> Job:
        job = self.queue.job(job_id) if is_id(job_id) else None
        if job is None:
            raise OrderProblem(OptiCode.JOB_NOT_FOUND, "there is no such order")
        return job


def _waits_for_operator(job: Job) -> bool:
    """Whether the order is held until an operator has optimised it."""
    return job.state == "HOLD" and job.error_code == TRIGGER_REQUIRED


def _require_phone(phone: str, missing: str = "give a phone number: ?phone=") -> str:
    if normalised := normalise_phone(phone):
        return normalised
    raise OrderProblem(OptiCode.PHONE_REQUIRED, missing, {"field": "phone"})


def _masked_value(field: str) -> OrderProblem:
    """The refusal of a value that was masked when it was read."""
    return FieldProblem((field,), "is masked: send the value itself, or leave it out").as_problem()
