"""The request and response bodies of the API, as in the seeds: camelCase, rows in snake_case."""

from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel

from kesin.foundation.clock import iso

MAX_IDS: Final = 10_000  # of a report or an action
MAX_COUNTS: Final = 4_000  # of a kind, in a script's report on its account
Text = Annotated[str, StringConstraints(max_length=2_048)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=128)]
ShortText = Annotated[str, StringConstraints(max_length=64)]
Count = Annotated[int, Field(ge=0, le=10**9)]
Time = Annotated[str | None, BeforeValidator(iso)]  # from microseconds since 1970


class CamelCaseModel(BaseModel):
    """A model with camelCase names in JSON."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class CamelCaseBody(CamelCaseModel):
    """A request body; a field that it does not know is refused by name."""

    model_config = ConfigDict(extra="forbid")


class OciSiteBody(CamelCaseBody):
    """A request body that names one site."""

    site_id: Id


class Ok(CamelCaseModel):
    """The request succeeded."""

    ok: bool = True


class IngestRow(CamelCaseModel):
    """The result of one conversion."""

    index: int
    external_id: str | None
    result: Literal["queued", "duplicate", "corrected", "rejected"]
    id: str | None = None
    code: str | None = None
    field: str | None = None
    message: str | None = None
    differs: list[str] = []  # of a duplicate: fields that the stored row has otherwise
    adjustment_id: str | None = None
    outcome: str | None = Field(
        default=None, description="adjustments only: corrected, retracted, waits, ready, rejected"
    )


_ADJUSTMENT: Final[dict[str, Any]] = {  # rows are checked one by one: a bad one is one result
    "type": "object",
    "required": ["externalId", "adjustmentId", "type"],
    "properties": {
        **{name: {"type": ["string", "integer"]} for name in ("externalId", "adjustmentId")},
        "type": {"enum": ["RETRACT", "RESTATE"]},
        "value": {"type": ["number", "string"]},
        **{name: {"type": "string"} for name in ("currency", "adjustedAt")},
    },
    "additionalProperties": False,
}


class AdjustmentsBody(OciSiteBody):
    """Sales that were returned or whose value changed."""

    adjustments: Annotated[list[Annotated[dict[str, Any], WithJsonSchema(_ADJUSTMENT)]], Field(max_length=MAX_IDS)]


class Ingested(CamelCaseModel):
    """One result for each row, in order."""

    results: list[IngestRow]


class Item(CamelCaseModel):
    """A conversion as a script receives it."""

    id: str
    order_id: str
    gclid: str
    wbraid: str
    gbraid: str
    conversion_name: str
    conversion_time: str
    conversion_value: float
    conversion_currency: str
    ad_user_data: str | None = Field(default=None, description="only if `script_columns` is on")
    ad_personalization: str | None = None
    hashed_email: str | None = None
    hashed_phone: str | None = None


class Counts(CamelCaseModel):
    """How many rows would be exported, and how many would be skipped."""

    queued: int
    skipped: int
    at_least: bool = Field(default=False, description="more rows are waiting than fit in one export; omitted if false")


class PreviewBody(CamelCaseModel):
    """What an export would contain; nothing was changed."""

    site_id: str
    items: list[Item]
    counts: Counts
    warnings: list[dict[str, Any]]


class AckBody(OciSiteBody):
    """Rows that Google accepted."""

    queue_ids: Annotated[list[str], Field(max_length=MAX_IDS)]


class AckFailedBody(AckBody):
    """Rows that failed in the script, and why."""

    error_code: str | None = None  # any length: it is stored cut
    error_message: str | None = None
    error_category: str | None = None


class RefusedRow(CamelCaseModel):
    """A row that was not changed."""

    id: str
    reason: str


class Acked(Ok):
    """What a report changed; ``updated``, ``already`` and ``refused`` cover all of its rows."""

    updated: int
    already: int  # reported before
    refused: list[RefusedRow]


class SiteTotals(CamelCaseModel):
    """A summary of a site."""

    site_id: str | None
    totals: dict[str, int]
    stuck_processing: int
    failed_share: float
    withheld: int = Field(default=0, description="FAILED rows without consent; omitted if 0")
    oldest_queued_at: str | None
    expiring_soon: int
    last_updated_at: str | None
    last_ack_at: str | None
    breaker: str | None
    warnings: list[dict[str, str]]


class AllTotals(SiteTotals):
    """Counts and warnings of the sites that the caller may see, in total and for each site."""

    sites: list[SiteTotals] | None = None


class ConversionRowBody(BaseModel):
    """A row of the conversions table."""

    id: str
    orderId: str | None  # noqa: N815  # as the script names it
    externalId: str | None  # noqa: N815
    status: str
    attempt_count: int
    claimed_at: Time
    next_retry_at: Time
    last_error: str | None
    provider_error_code: str | None
    provider_error_category: str | None
    uploaded_at: Time
    failed_at: Time
    created_at: Annotated[str, BeforeValidator(iso)]
    updated_at: Annotated[str, BeforeValidator(iso)]


class RowPage(CamelCaseModel):
    """A page of rows, newest first."""

    site_id: str
    rows: list[ConversionRowBody]
    next_cursor: str | None


class Chosen(CamelCaseBody):
    """A filter for rows."""

    status: Annotated[list[Text], Field(max_length=5)] = []
    code: Annotated[list[Text], Field(max_length=100)] = []
    category: Annotated[list[Text], Field(max_length=5)] = []


class QueueActionBody(OciSiteBody):
    """An operator's action on rows of a site."""

    action: Text
    ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_IDS)] | None = None
    filter: Chosen | None = None
    reason: Text | None = None
    error_code: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    error_category: Text | None = None
    clear_errors: bool = False
    conversion: dict[str, Any] | None = None  # what CORRECT and ENQUEUE_FIX change
    taken: bool = False  # of ENQUEUE_FIX: Google has the rows, so a new value is an adjustment
    dry_run: bool = False  # only count what would move
    all: bool = False  # said with an empty filter, which matches every row of the site


class PlannedRows(CamelCaseModel):
    """A group of rows in a dry run; if the group has a reason, its rows would not move."""

    state: str | None = None  # None: there is no such row
    reason: str | None = None
    rows: int


class Acted(Ok):
    """The result of an action; with a filter, it lists only the first thousand refusals.

    ``affected``, ``already`` and ``refusedCount`` add up to ``asked``.
    """

    asked: int
    affected: int
    already: int
    refused_count: int
    refused: list[RefusedRow]
    planned: list[PlannedRows] | None = None  # of a dry run, which changes nothing
    more: bool | None = None  # set if more may match: repeat the request


class HeartbeatBody(OciSiteBody):
    """A script's report of a run."""

    script_version: ShortText | None = None
    last_run_at: ShortText | None = None
    exported: Count | None = None
    acked: Count | None = None
    failed: Count | None = None
    error: Text | None = Field(default=None, description="why the script could not serve the site")


class ManagedSite(CamelCaseModel):
    """A site for a manager script."""

    site_id: str
    customer_id: str


class ListedActionBody(CamelCaseBody):
    """A conversion action as Google Ads lists it."""

    name: Text
    id: ShortText
    status: ShortText
    counting: ShortText
    lookback_days: Count


class ActionsBody(OciSiteBody):
    """The conversion actions that a script found in its account."""

    actions: Annotated[list[ListedActionBody], Field(max_length=500)]


class UploadCountBody(CamelCaseBody):
    """Google's counts of one client's uploads for one action on one day."""

    action: Id
    client: ShortText
    day: date
    successful: Count
    failed: Count
    pending: Count


class AttributedBody(CamelCaseBody):
    """Google's count of an action's conversions for the sales of one day."""

    action: Id
    day: date
    conversions: Annotated[float, Field(ge=0, le=10**9)]


class ReconciliationBody(OciSiteBody):
    """Google's daily counts, reported by a script; days are in the account's time zone."""

    zone: ShortText
    uploads: Annotated[list[UploadCountBody], Field(max_length=MAX_COUNTS)]
    attributed: Annotated[list[AttributedBody], Field(max_length=MAX_COUNTS)]


class Verified(BaseModel):
    """The token to send in the header ``Authorization: Bearer``."""

    session_token: str
    expires_at: str
    site_id: str


class Recovered(Ok):
    """How many rows with an expired claim were recovered."""

    recovered: int


class Capped(Ok):
    """How many rows failed because their attempts were used up."""

    affected: int


class Processed(Ok):
    """The results of a run of the upload workers."""

    processed: int
    completed: int
    failed: int
    retry: int


class CredentialsBody(OciSiteBody):
    """A site's credentials; they are never returned."""

    credentials: dict[str, Any]


class FindingBody(CamelCaseModel):
    """One result of a check."""

    name: str
    ok: bool
    detail: str
    advice: str


class Checked(CamelCaseModel):
    """Whether a site can upload now."""

    ok: bool
    findings: list[FindingBody]
