"""The page that corrects the data of failed jobs: each is enqueued again as a corrected copy."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Depends
from fastapi.responses import HTMLResponse

from kesin.engine.access.corrected import enqueue_corrected, failed_by_data, is_correctable
from kesin.engine.queue import Queue
from kesin.engine.validation import BadInput
from kesin.foundation.ids import is_id
from kesin.foundation.messages import recorded_message
from kesin.foundation.problems import Invalid
from kesin.lifecycle.errors import Category
from kesin.lifecycle.failures import failure_states
from kesin.lifecycle.model import Job
from kesin.web.bodies import form_reader
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.queues import actions, filters

router = page_router()
MAX_JOBS: Final = 25  # on the page, the newest
MAX_FORM_BYTES: Final = 4_000_000
MAX_FIELDS: Final = 5_000
Written = Annotated[dict[str, str], Depends(form_reader(MAX_FORM_BYTES, MAX_FIELDS))]


def offers_fix(ctx: PageContext, queue: Queue, state: str) -> bool:
    """Whether the user can correct such jobs on this page; an API of the workload takes its own."""
    workload = ctx.service.workloads.get(queue.name)
    plain = workload is None or not (workload.routes or workload.part_of)
    return plain and ctx.actor.has("operate") and is_correctable(queue, state)


def fix_path(queue: str, **where: str) -> str:
    """The page for these jobs: by state, code and site, or by ids."""
    chosen = {name: value for name, value in where.items() if value}
    return f"/dashboard/queues/{queue}/fix?{urlencode(chosen)}"


@router.get("/dashboard/queues/{queue}/fix", response_class=HTMLResponse)
def fix_page(ctx: Context, queue: str) -> HTMLResponse:
    """Failed jobs with their data in clear; the audit log records the look."""
    return _page(ctx, _opened(ctx, queue))


@router.post("/dashboard/queues/{queue}/fix", response_class=HTMLResponse)
def fix(ctx: Context, queue: str, written: Written) -> HTMLResponse:
    """Enqueue copies of the jobs whose data was changed; what is refused stays, as written."""
    opened, ids = _opened(ctx, queue), written.get("ids", "").split(",")[:MAX_JOBS]
    payloads, errors = dict[str, Any](), dict[str, list[str]]()
    for job in ctx.commands.find(ctx.actor, queue, ids, reveal="everything", same_look=True):
        try:
            if (payload := _corrected(job, written)) != job.payload:
                payloads[job.id] = payload
        except BadInput as problem:
            errors[problem.field] = [str(problem)]
    if errors or not payloads:
        return _page(ctx, opened, status=422, errors=errors, written=written)
    reason = written.get("reason", "")[: actions.MAX_REASON_CHARS] or None
    results = enqueue_corrected(ctx.commands, ctx.actor, queue, payloads, reason)
    copies = list[str]()
    for job_id, result in results.items():
        if isinstance(result, BadInput):
            errors[job_id] = [str(result)]
        else:
            copies.append(result)
    return _page(ctx, opened, copies=copies, errors=errors, written=written)


def _opened(ctx: PageContext, name: str) -> Queue:
    queue = ctx.commands.queue(ctx.actor, name, "operate", "correct")
    if not any(offers_fix(ctx, queue, state) for state in failure_states(queue.lifecycle)):
        problem = "the jobs in %(queue)s cannot be corrected here: use its page, API or command"
        raise Invalid(problem, code="needs_workload", queue=repr(name))
    return queue


def _page(ctx: PageContext, queue: Queue, *, status: int = 200, **outcome: Any) -> HTMLResponse:
    given = filters.read_filter(filters.fields_of(ctx), queue.lifecycle)
    wanted = replace(given, category=Category.VALIDATION.value)
    stats = ctx.stats(queue, wanted.site)
    search = filters.resolve_search(ctx, queue.name, wanted, stats, stats.now)
    look: dict[str, Any] = {"reveal": "everything", "same_look": True}
    cursor = next(filter(is_id, [ctx.request.query_params.get("below", "")]), None)
    page = filters.read_page(ctx, queue.name, search, limit=MAX_JOBS, cursor=cursor, **look)
    jobs = [job for job in page.jobs[:MAX_JOBS] if failed_by_data(queue, job)]
    as_json = ctx.request.query_params.get("json") == "1"
    path = partial(fix_path, queue.name, **dict(given.pairs()))
    shared = {} if as_json else _shared([job.payload for job in jobs])
    return ctx.page(
        "fix.html",
        status=status,
        **{"copies": [], "written": {}, **outcome},
        queue=queue,
        title=ctx.title_of(queue.name),
        rows=[_row(ctx, job, shared, as_json=as_json) for job in jobs],
        newest=path() if cursor else "",
        older=path(below=page.cursor) if page.cursor else "",
        shared=[_field(f"all|{name}", name, value) for name, value in shared.items()],
        dismissal={"ids": "", **dict(wanted.pairs()), "all": "1", "call": "dismiss"},
        path=path(below=cursor or ""),
        as_json=as_json,
    )


def _shared(payloads: Sequence[Any]) -> Mapping[str, Any]:
    """The fields that several payloads have with the same value."""
    if len(payloads) < 2 or not all(isinstance(one, dict) for one in payloads):  # noqa: PLR2004
        return {}
    first, *others = payloads
    return {name: value for name, value in first.items() if all(name in one and one[name] == value for one in others)}


def _row(ctx: PageContext, job: Job, shared: Mapping[str, Any], *, as_json: bool) -> dict[str, Any]:
    """A failed job, with the fields that it does not share with all others."""
    fields = [_field(job.id, ctx.say("Payload"), job.payload)]
    if isinstance(job.payload, dict) and not as_json:
        own = {name: value for name, value in job.payload.items() if name not in shared}
        fields = [_field(f"{job.id}|{name}", name, own[name]) for name in own]
    name = ctx.job_name(job) or job.dedup_key or f"…{job.id[-12:]}"
    message = recorded_message(job.error_message, job.note)
    return {"job": job, "name": name, "message": message, "fields": fields}


def _field(place: str, label: str, value: Any) -> dict[str, str]:
    return {"input": place, "label": label, "text": _text(value)}


def _corrected(job: Job, written: Mapping[str, str]) -> Any:
    """The payload as it was written; raises BadInput, which names the field of the form."""
    if job.id in written or not isinstance(job.payload, dict):
        return _value(job.id, written, job.payload)
    payload = {}
    for name, value in job.payload.items():
        own, shared = f"{job.id}|{name}", f"all|{name}"
        payload[name] = _value(own if own in written else shared, written, value)
    return payload


def _value(place: str, written: Mapping[str, str], old: Any) -> Any:
    """What a field holds: a text stays a text, anything else is JSON."""
    text = written.get(place, _text(old)).replace("\r\n", "\n")
    if text == _text(old):
        return old
    if isinstance(old, str):
        return text
    try:
        return json.loads(text, parse_constant=int)  # no NaN: it is no JSON
    except (ValueError, RecursionError):
        wanted = "enter a number, true, false, null, text in quotes, a list or an object"
        raise BadInput("bad_value", place, wanted) from None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
