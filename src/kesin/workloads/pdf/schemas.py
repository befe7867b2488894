"""Request and response bodies, the seed's and ours; what no engine can print is rejected here."""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Self

import pydantic
from pydantic import BaseModel, Field, StringConstraints
from pydantic_core import PydanticKnownError

from kesin.web.dependencies import IgnoreColumns
from kesin.web.schemas import Strict, Text
from kesin.workloads.pdf.batches.store import BatchStatus
from kesin.workloads.pdf.config import FailSafePolicy
from kesin.workloads.pdf.einvoices.schemas import Attachments, EinvoiceRequest
from kesin.workloads.pdf.engines import base
from kesin.workloads.pdf.engines.base import LEVELS, TAGGED, Conformance, Format, Paper
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.jobs.store import PdfJobStatus
from kesin.workloads.pdf.links import MAX_LINK_S
from kesin.workloads.pdf.steps.model import MAX_NAME_LENGTH, OUTSIDE_ARCHIVES, Steps, TemplateName
from kesin.workloads.pdf.uploads.store import has_uploads

MAX_FILE_NAME_LENGTH: Final = 140
MAX_URL_LENGTH: Final = 2_048
MAX_SIZE_MM: Final = 5_000.0
MIN_PRINTABLE_MM: Final = 1.0  # what margins must leave of each side

FileName = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_FILE_NAME_LENGTH)]
WebhookUrl = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_URL_LENGTH)]
Size = Annotated[float, Field(ge=10.0, le=MAX_SIZE_MM, allow_inf_nan=False)]
Margin = Annotated[float, Field(ge=0, le=MAX_SIZE_MM, allow_inf_nan=False)]


class PdfRenderOptions(Strict, frozen=True):
    """How a PDF is rendered. Omitted options take the service's defaults."""

    timeout: int = Field(60, ge=1, le=600, description="seconds; defaults to the service's setting")
    fail_safe: FailSafePolicy = Field(
        FailSafePolicy.STRICT,
        description="503 or the HTML while no worker is running; defaults to the service's setting",
    )
    engine: Literal["chromium", "weasyprint"] | None = None
    format: Format | None = Field(None, description="defaults to A4 unless a size is given")
    width_mm: Size | None = None
    height_mm: Size | None = None
    landscape: bool = False
    margin_mm: Margin | Annotated[list[Margin], Field(min_length=4, max_length=4)] = Field(
        0.0, description="a number for all sides, or a list for top, right, bottom, left"
    )
    scale: float = Field(1.0, ge=0.1, le=2, allow_inf_nan=False)
    page_ranges: Annotated[Text, StringConstraints(max_length=200)] = ""
    print_background: bool = True
    prefer_css_page_size: bool = True
    tagged: bool = False
    outline: bool = False
    conformance: Conformance | list[Conformance] = Field(
        [], description="one or more standards; a PDF that violates any of them is not delivered"
    )
    missing_glyphs: Literal["warn", "fail"] = Field(
        "warn", description="for characters that no font has: add a warning, or fail the job"
    )

    @pydantic.field_validator("page_ranges")
    @classmethod
    def _check_page_ranges(cls, text: str) -> str:
        try:
            base.parse_page_ranges(text)
        except RenderFailed as problem:
            raise ValueError(problem.message) from None
        return text

    @pydantic.model_validator(mode="after")
    def _check_size(self) -> Self:
        if (self.width_mm is None) != (self.height_mm is None):
            raise ValueError("width_mm and height_mm must be given together")
        if self.width_mm is not None and self.format is not None:
            raise ValueError("give a format, or width_mm and height_mm, not both")
        width, height = self.paper().page_mm
        top, right, bottom, left = self.margins
        if left + right > width - MIN_PRINTABLE_MM or top + bottom > height - MIN_PRINTABLE_MM:
            raise ValueError("the margins leave no room on the page")
        return self

    @pydantic.model_validator(mode="after")
    def _check_conformance(self) -> Self:
        standards = self.standards
        if len(set(standards)) < len(standards) or len(LEVELS.keys() & standards) > 1:
            raise ValueError("conformance: name each standard once, and only one level of PDF/A")
        if self.engine == "weasyprint" and not {*standards} <= {*LEVELS}:
            raise ValueError(f"conformance: {base.ARCHIVES_ONLY}")
        if not self.tagged and "tagged" in self.model_fields_set and TAGGED & set(standards):
            raise ValueError("conformance: pdf/a-3a and pdf/ua-1 need a tagged PDF")
        if self.engine == "weasyprint" and not self.print_background:
            raise ValueError("print_background: WeasyPrint always prints backgrounds")
        return self

    @property
    def standards(self) -> tuple[str, ...]:
        """The standards of ``conformance``; equal ones are equal however they are given."""
        given = self.conformance
        return tuple(sorted([given] if isinstance(given, str) else given))

    @property
    def margins(self) -> tuple[float, float, float, float]:
        """Top, right, bottom, left."""
        given = self.margin_mm
        top, right, bottom, left = given if isinstance(given, list) else [given] * 4
        return top, right, bottom, left

    def paper(self) -> Paper:
        """Build the paper that these options describe; equal paper is equal however it is given."""
        given = {name: getattr(self, name) for name in _PAPER_OPTIONS}
        given["tagged"] |= not TAGGED.isdisjoint(self.standards)
        given |= {"conformance": self.standards, "margin_mm": self.margins}
        return Paper(**given | {"format": self.format or "A4"})


_PAPER_OPTIONS: Final = PdfRenderOptions.model_fields.keys() & Paper.__dataclass_fields__.keys()


class HtmlSource(Strict, frozen=True):
    """HTML instead of a template."""

    html: Annotated[Text, StringConstraints(min_length=1)]


class PdfJobRequest(Strict, frozen=True):
    """A request for a PDF from a template with its variables, or from HTML."""

    source: HtmlSource | None = Field(None, description="instead of a template; also needs the `pdf:html` scope")
    template_name: TemplateName = Field(None, validate_default=True)
    variables: dict[str, Any] = Field(None, validate_default=True)
    options: PdfRenderOptions | None = None
    webhook_url: WebhookUrl | None = None
    link_ttl: int | None = Field(
        None, ge=1, le=MAX_LINK_S, description="seconds for which the link in the webhook is valid"
    )
    file_name: FileName | None = Field(None, description="the name under which the PDF is saved")
    attachments: Attachments = Field([])
    einvoice: EinvoiceRequest | None = None
    then: Steps = Field([], description="steps applied to the PDF, in a fixed order")

    @pydantic.model_validator(mode="after")
    def _check_steps(self) -> Self:
        options = self.options or PdfRenderOptions()
        names = [each.name for each in self.attachments]
        if self.einvoice:
            names.append(self.einvoice.file_name)
            if self.einvoice.format == "factur-x" and not LEVELS.keys() & {*options.standards}:
                raise ValueError("einvoice: factur-x needs options.conformance pdf/a-3b")
            if self.source and self.einvoice.source:
                raise ValueError("einvoice: HTML has no variables to make it from")
        if len({name.casefold() for name in names}) < len(names):
            raise ValueError("attachments: two files have the same name")
        if not options.standards:
            return self
        if names and options.engine == "weasyprint":
            raise ValueError(f"attachments: {base.UNMARKED_ARCHIVES}")
        for index, kind in enumerate(step.kind for step in self.then):
            if kind in OUTSIDE_ARCHIVES:
                raise ValueError(f"then.{index}.{kind}: cannot be combined with options.conformance")
            if options.engine == "weasyprint":
                raise ValueError(f"then.{index}.{kind}: {base.UNMARKED_ARCHIVES}")
        return self

    @pydantic.field_validator("template_name", "variables", mode="wrap")
    @classmethod
    def _require_template_or_source(
        cls, value: Any, validate: Callable[[Any], Any], info: pydantic.ValidationInfo
    ) -> Any:
        source = info.data.get("source", False)  # False: it is not valid
        if value is not None and source:
            raise ValueError("source replaces it: leave it out")
        if value is None and source is None:
            raise PydanticKnownError("missing")
        if value is None:
            return {} if info.field_name == "variables" else ""
        return validate(value)

    @property
    def pdf_only(self) -> list[str]:
        """The fields that HTML in place of the PDF would lack."""
        names = ("source", "attachments", "einvoice", "then")
        asked = [name for name in names if getattr(self, name)]
        return asked + ["options.conformance"] * bool(self.options and self.options.standards)

    @property
    def uses_storage(self) -> bool:
        """Whether the storage is asked before the job is created, which may take long."""
        stored = self.source or self.then or self.attachments or self.einvoice
        return bool(stored) or has_uploads(self.variables)

    @pydantic.field_validator("link_ttl")
    @classmethod
    def _check_link_ttl(cls, seconds: int | None, info: pydantic.ValidationInfo) -> int | None:
        if seconds is not None and info.data.get("webhook_url") is None:
            raise ValueError("the link is sent to a webhook_url: give one")
        return seconds


class PdfJobResponse(BaseModel):
    """The job that was created or found for a request."""

    job_id: str
    status: PdfJobStatus
    created_at: str


class PdfJobBody(PdfJobResponse):
    """A job with its result."""

    started_at: str | None = None
    finished_at: str | None = None
    error_code: PdfErrorCode | None = None
    download_url: str | None = Field(None, description="only if the job succeeded")
    retry_count: int
    template_name: str = ""
    template_version: str | None = Field(None, description="the template as `name@version`")
    file_name: str | None = None
    pages: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    engine: str | None = None
    warnings: list[str] = []
    missing_glyphs: list[str] = Field([], description="characters that no font has")
    conformance: list[str] = Field([], description="the standards that the file conforms to")
    reproducible: bool = Field(default=True, description="identical requests give identical bytes")
    error_message: str | None = None


class PdfJobStatusResponse(PdfJobBody):
    """A job with its result, the requested files and steps, and its position in the queue."""

    attachments: list[dict[str, Any]] = Field([], description="details of each attached file")
    einvoice: dict[Literal["format", "profile"], str | None] | None = None
    then: list[dict[str, dict[str, Any]]] = Field([], description="the steps, without secrets")
    position: int | None = Field(None, description="only for a waiting job; 1 is next")


class PdfJobPage(BaseModel):
    """A page of jobs, newest first."""

    jobs: list[PdfJobBody]
    cursor: str | None


class UploadBody(BaseModel):
    """A stored file."""

    upload_id: str
    media_type: str
    bytes: int = Field(description="the stored size; for a PDF, without the removed parts")
    sha256: str
    pages: int | None = Field(None, description="only for a PDF")
    expires_at: str = Field(description="requests can use the file until then")


class TemplateLine(BaseModel):
    """A template in a list."""

    name: str
    title: str
    description: str
    content_hash: str
    version: str = Field(description="the active version; empty if the folder's template is active")
    problem: str | None = Field(description="why the template, or its last change, cannot be used")


class TemplateBody(TemplateLine):
    """A template with its schema and a sample of its variables."""

    json_schema: dict[str, Any] = Field(serialization_alias="schema")
    sample: dict[str, Any]


class TemplateVersion(BaseModel):
    """A version of a template, and who added and last activated it."""

    name: str
    version: str
    state: Literal["draft", "active", "retired"]
    added_at: str
    added_by: str
    activated_at: str | None = None
    activated_by: str | None = None


class TemplateVersionList(BaseModel):
    """A template's versions, newest first; if none is active, the folder's template is used."""

    versions: list[TemplateVersion] = []

    @property
    def active(self) -> str | None:
        return next((each.version for each in self.versions if each.state == "active"), None)

    @property
    def summary(self) -> str:
        return ", ".join(f"{each.version[:12]} {each.state}" for each in self.versions)

    def find(self, version: str) -> TemplateVersion | None:
        return next((each for each in self.versions if each.version == version), None)


class PreviewRequest(Strict, frozen=True):
    """Variables for a template preview."""

    variables: dict[str, Any]


MAX_ROWS: Final = 2_000
Output = Literal["zip", "merged"]
RowName = Annotated[Text, StringConstraints(max_length=MAX_FILE_NAME_LENGTH)]
FieldName = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]


class BatchRequest(Strict, frozen=True):
    """A request to render a template once for each of many rows."""

    template_name: TemplateName
    rows: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_ROWS)]
    output: Output = "zip"
    options: PdfRenderOptions | None = None
    webhook_url: WebhookUrl | None = None
    file_name: FileName | None = Field(None, description="the name under which the file is saved")
    row_names: Annotated[list[RowName], Field(max_length=MAX_ROWS)] | None = Field(
        None, description="names of the files, one for each row"
    )
    name_field: FieldName | None = Field(None, description="the variable that names a row's file, such as buyer.name")
    then: Steps = Field([], description="steps applied to each row's PDF, without encryption")

    @pydantic.model_validator(mode="after")
    def _check_merged(self) -> Self:
        if self.output == "merged" and self.options is not None and self.options.standards:
            raise ValueError("options.conformance: a merged file cannot conform; request a zip")
        if any(step.encrypt for step in self.then):
            raise ValueError("then: the PDFs of a batch cannot be encrypted")
        if self.options is not None and self.options.fail_safe is FailSafePolicy.DEGRADE:
            raise ValueError("options.fail_safe: HTML cannot replace the file of a batch")
        return self


class CsvQuery(BaseModel):
    """The options of a batch from a CSV file; a JSON body contains them."""

    template_name: TemplateName | None = Field(None, description="only for CSV")
    output: Output = Field("zip", description="only for CSV")
    file_name: FileName | None = Field(None, description="only for CSV")
    name_field: FieldName | None = Field(None, description="only for CSV")
    ignore_columns: IgnoreColumns = None


class BatchResponse(BaseModel):
    """The batch that was created or found for a request."""

    batch_id: str
    status: BatchStatus
    rows: int
    created_at: str


class BatchBody(BatchResponse):
    """A batch with its progress and result."""

    template_name: str
    output: str
    made: int = Field(description="rows with a finished PDF")
    failed: int
    waiting: int = Field(description="rows that are not finished")
    started_at: str | None = None
    finished_at: str | None = None
    cancel_asked: bool = False
    download_url: str | None = None
    file_name: str | None = None
    bytes: int | None = None
    sha256: str | None = None
    pages: int | None = None
    error_code: str | None = None
    error_message: str | None = None


class BatchRowBody(BaseModel):
    """The result of a row."""

    row: int = Field(description="counted from 1")
    job_id: str | None = None
    status: Literal["waiting", "queued", "running", "succeeded", "failed"]
    error_code: str | None = None
    error_message: str | None = None
    pages: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    file: str | None = Field(None, description="the file's name in the zip")


class BatchWhole(BatchBody):
    """A batch with a page of its rows."""

    results: list[BatchRowBody] | None = Field(
        description="a page of rows in order; null if the storage is unavailable"
    )
