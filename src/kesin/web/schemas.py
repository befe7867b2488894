"""Request and response bodies of the API: validated strictly, with times as RFC 3339 in UTC."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
)

from kesin.foundation.clock import time_us
from kesin.foundation.ids import ID_PATTERN
from kesin.foundation.text import storable
from kesin.lifecycle.errors import Category
from kesin.store.limits import MAX_CODE, MAX_KEY, MAX_MESSAGE, MAX_PAGE, MAX_PARENTS, MAX_TENANT
from kesin.store.records import Filter

MAX_IDS = 1_000
MAX_ENQUEUED = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)


def _check_storable(text: str) -> str:
    if storable(text) != text:
        raise ValueError("contains characters that cannot be stored")
    return text


def _check_rfc_3339(at: object) -> object:
    """Reject numbers: whether they are seconds or milliseconds would be a guess."""
    if isinstance(at, datetime) or (isinstance(at, str) and _RFC_3339.fullmatch(at)):
        return at
    raise ValueError("a time must look like 2026-12-31T23:59:59Z, including the time zone")


def _check_years(at: datetime) -> datetime:
    if not _EPOCH <= at <= _LATEST:
        raise ValueError("a time must be in the years 1970…9999")
    return at


Clean = AfterValidator(_check_storable)
Cursor = Annotated[str | None, Query(pattern=ID_PATTERN)]
Text = Annotated[str, Clean]
Name = Annotated[str, Field(min_length=1, max_length=MAX_TENANT), Clean]
Code = Annotated[str, Field(min_length=1, max_length=MAX_CODE), Clean]
Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY), Clean]
JobId = Annotated[str, Field(max_length=64), Clean]
Priority = Annotated[int, Field(ge=-1, le=2, description="within a site: -1 low, 1 high, 2 urgent")]
Reason = Annotated[str, Field(max_length=MAX_MESSAGE), Clean]
Password = Annotated[str, Field(min_length=1, max_length=1_024), Clean]
Time = Annotated[
    AwareDatetime,
    BeforeValidator(_check_rfc_3339),
    AfterValidator(_check_years),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": r"^(19[7-9][0-9]|[2-9][0-9]{3})-"}),
]


class Strict(BaseModel):
    """A request body: unknown fields are refused, and values are not converted."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(BaseModel):
    """An error."""

    code: str
    message: str
    details: dict[str, Any] | None = None


class ErrorBody(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


class Credentials(Strict):
    """A user name and a password for signing in."""

    name: Annotated[str, Field(min_length=1, max_length=63), Clean]
    password: Password


class Who(BaseModel):
    """The caller, as authenticated by the service."""

    name: str
    grants: list[str]
    all_sites: bool
    sites: list[str]
    queues: list[str]


class Ended(BaseModel):
    """How many sessions ended."""

    sessions_ended: int


class StateBody(BaseModel):
    """A state of the lifecycle."""

    name: str
    initial: bool
    terminal: bool
    resting: bool
    success: bool
    exclusive: bool
    slots: int = Field(description="how many jobs may be in the state at once; 0 means no limit")
    slots_per: Literal["queue", "tenant"]


class QueueBody(BaseModel):
    """A queue and the actions that an operator can take."""

    name: str
    lifecycle: str
    summary: str
    sited: bool
    states: list[StateBody]
    actions: list[str]
    paused: list[str]  # '' is the whole queue
    reachable: bool = Field(default=True, description="false while its store is unreachable")


class SiteSlotsBody(BaseModel):
    """How many jobs of a site are in a state with slots."""

    site: str
    used: int


class SlotsBody(BaseModel):
    """The slots of a state, and how many jobs are in it."""

    state: str
    slots: int
    per: Literal["queue", "tenant"]
    used: int
    fullest: list[SiteSlotsBody] = Field(description="if `per` is tenant: top sites by slots used")
    more_sites: int = Field(description="how many more sites use slots but are not listed")


class RateBody(BaseModel):
    """Each site may start at most ``jobs`` jobs per ``per_s`` seconds."""

    jobs: int
    per_s: int


class LimitsBody(BaseModel):
    """The limits on running jobs."""

    slots: list[SlotsBody]
    rate: RateBody | None


class Stats(BaseModel):
    """Counts of the jobs that the caller may see."""

    queue: str
    now: str
    total: int
    states: dict[str, int]
    sites: dict[str, dict[str, int]]
    oldest_due_at: str | None
    lease_over: int
    limits: LimitsBody


class JobBody(BaseModel):
    """A job without its payload and result."""

    id: str
    queue: str
    site: str
    title: str | None = Field(description="masked, as in lists; null if the queue declares none")
    key: str | None
    once: bool = Field(description="the key stays taken until the job is pruned")
    priority: int
    state: str
    claimed: bool
    worker: str | None
    attempts: int
    attempts_left: int
    retries: int
    error_code: str | None
    error_category: str | None
    error_message: str | None
    created_at: str
    moved_at: str
    due_at: str | None
    timer_at: str | None
    lease_until: str | None
    finished_at: str | None


class EventBody(BaseModel):
    """A line of a job's history."""

    seq: int
    at: str
    move: str
    from_state: str
    to_state: str
    actor: str
    worker: str | None
    attempt: int
    error_code: str | None
    error_category: str | None
    error_message: str | None
    note: Any
    traceback: str | None
    count: int = Field(description="how many wake-ups without a change are combined in this line")
    since: str = Field(description="the time of the first of these wake-ups")


class NoteBody(BaseModel):
    """A note on a job; it is not part of the job's history."""

    at: str
    kind: str
    actor: str
    details: Any


class ProgressBody(BaseModel):
    """The progress of a claimed job, as its handler last reported it."""

    fraction: float | None = Field(description="0…1")
    message: str | None
    at: str


class RelativeBody(BaseModel):
    """A parent or child of a job."""

    id: str
    queue: str
    state: str


class JobWhole(BaseModel):
    """A job with everything that Kesin stores about it."""

    job: JobBody
    progress: ProgressBody | None
    parents: list[RelativeBody] = Field(
        description="jobs that must succeed before this one; unfinished jobs are listed first"
    )
    more_parents: bool
    hidden_parents: int = Field(description="how many of the first 100 parents you cannot see")
    children: list[RelativeBody] = Field(description="jobs that wait for this job")
    more_children: bool
    hidden_children: int
    payload: Any
    result: Any
    events: list[EventBody]
    notes: list[NoteBody]
    actions: list[str]
    advice: dict[str, Any] | None  # on its error code, in every language the workload knows


class JobPage(BaseModel):
    """A page of jobs, newest first; send ``cursor`` to get the next page."""

    jobs: list[JobBody]
    cursor: str | None


class JobFilterBody(Strict):
    """A filter for jobs. Empty means all; a job must match every given field."""

    states: Annotated[list[Name], Field(max_length=100)] = []
    sites: Annotated[list[Name], Field(max_length=1_000)] | None = None
    codes: Annotated[list[Code], Field(max_length=100)] = []
    categories: Annotated[list[Category], Field(max_length=5)] = []
    created_from: Time | None = None
    created_before: Time | None = None
    moved_before: Time | None = None
    key: Key | None = None
    text: Annotated[str, Field(min_length=1, max_length=200), Clean] | None = None

    def filter(self) -> Filter:
        return Filter(
            states=tuple(self.states),
            tenants=None if self.sites is None else tuple(self.sites),
            codes=tuple(self.codes),
            categories=tuple(category.value for category in self.categories),
            created_from=self.created_from and time_us(self.created_from, "created_from"),
            created_before=self.created_before and time_us(self.created_before, "created_before"),
            moved_before=self.moved_before and time_us(self.moved_before, "moved_before"),
            dedup_key=self.key,
            text=self.text,
        )


class JobQuery(JobFilterBody):
    """The same in an address, a value at a time, and which page of them."""

    states: Annotated[list[Name], Field(max_length=100, alias="state")] = []
    sites: Annotated[list[Name] | None, Field(max_length=1_000, alias="site")] = None
    codes: Annotated[list[Code], Field(max_length=100, alias="code")] = []
    categories: Annotated[list[Category], Field(max_length=5, alias="category")] = []
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    cursor: Annotated[str, Field(pattern=ID_PATTERN)] | None = None


_IDS_OR_FILTER: list[JsonValue] = [
    {"required": ["ids"], "properties": {"ids": {"type": "array"}}},
    {"required": ["filter"], "properties": {"filter": {"type": "object"}}},
]


class Action(Strict):
    """An operator's action on either jobs with the given ids or all jobs that match a filter."""

    model_config = ConfigDict(json_schema_extra={"oneOf": _IDS_OR_FILTER})

    action: Name
    ids: Annotated[list[JobId], Field(max_length=MAX_IDS)] | None = None
    filter: JobFilterBody | None = None
    options: Annotated[list[Name], Field(max_length=20)] = []
    reason: Reason | None = None
    code: Code | None = None
    category: Category | None = None
    priority: Priority | None = None
    dry_run: bool = False


class OutcomeBody(BaseModel):
    """The result for one job."""

    id: str
    result: str
    state: str | None
    seq: int
    reason: str | None
    holder: str | None


class ActionResultBody(BaseModel):
    """What a bulk action did, or would do."""

    dry_run: bool
    matched: int
    moved: int
    already: int
    refused: dict[str, int]
    by_state: dict[str, int] | None = None
    more: bool = False
    outcomes: list[OutcomeBody]


class PauseBody(Strict):
    """Pause or resume a queue or one of its sites."""

    site: Name | None = None
    reason: Reason | None = None


class PausesBody(BaseModel):
    """The paused sites; '' means the whole queue."""

    paused: list[str]


class NewBody(Strict):
    """A job to enqueue."""  # with the fields of NewJob

    payload: Any
    key: Key | None = None
    once: Annotated[bool, Field(description="keep the key until the job is pruned")] = False
    tenant: Annotated[Name, Field(alias="site")] = "default"
    priority: Priority = 0
    run_at: Time | None = None
    max_attempts: Annotated[int, Field(ge=1, le=1_000)] | None = None
    after: Annotated[list[JobId], Field(max_length=MAX_PARENTS, description="ids of jobs that must succeed first")] = []


class NewJobs(Strict):
    """Jobs to enqueue."""

    jobs: Annotated[list[NewBody], Field(min_length=1, max_length=MAX_ENQUEUED)]


class EnqueueResult(BaseModel):
    """The result for one job: inserted, duplicate, or rejected with the reason."""

    result: Literal["inserted", "duplicate", "rejected"]
    id: str | None
    code: str | None = None
    message: str | None = None


class EnqueueResults(BaseModel):
    """One result for each job, in order."""

    jobs: list[EnqueueResult]


class LifecycleBody(BaseModel):
    """The rules of a queue, as data and as a diagram."""

    name: str
    states: list[StateBody]
    moves: list[dict[str, Any]]
    bound: int | None
    mermaid: str
