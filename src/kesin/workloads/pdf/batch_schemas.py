"""What goes through the doors of batches."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, StringConstraints

from kesin.workloads.pdf.batch_store import BatchStatus
from kesin.workloads.pdf.schemas import (
    MAX_FILE_NAME,
    MAX_NAME,
    MAX_URL,
    PdfRenderOptions,
    Strict,
    Text,
)

MOST_ROWS: Final = 2_000
Output = Literal["zip", "merged"]
TemplateName = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_NAME)]
FileName = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_FILE_NAME)]
RowName = Annotated[Text, StringConstraints(max_length=MAX_FILE_NAME)]
FieldName = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_NAME)]


class BatchRequest(Strict):
    """One template with each of many rows."""

    template_name: TemplateName
    rows: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST_ROWS)]
    output: Output = "zip"
    options: PdfRenderOptions | None = None
    webhook_url: Annotated[Text, StringConstraints(min_length=1, max_length=MAX_URL)] | None = None
    file_name: FileName | None = Field(None, description="under which the file is saved")
    row_names: Annotated[list[RowName], Field(max_length=MOST_ROWS)] | None = Field(
        None, description="names of the files, one a row"
    )
    name_field: FieldName | None = Field(
        None, description="the variable that names a row's file, such as buyer.name"
    )


class CsvQuery(BaseModel):
    """What a CSV file cannot say itself; with JSON it is said in the body."""

    template_name: TemplateName | None = Field(None, description="of a CSV file")
    output: Output = Field("zip", description="of a CSV file")
    file_name: FileName | None = Field(None, description="of a CSV file")
    name_field: FieldName | None = Field(None, description="of a CSV file")


class BatchResponse(BaseModel):
    """The batch that will have the file, or has it."""

    batch_id: str
    status: BatchStatus
    rows: int
    created_at: str


class BatchBody(BatchResponse):
    """A batch, with how far it is and what came of it."""

    template_name: str
    output: str
    made: int = Field(description="rows that have their PDF")
    failed: int
    waiting: int = Field(description="rows that have not ended")
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


class RowBody(BaseModel):
    """What came of a row."""

    row: int = Field(description="counted from 1")
    job_id: str | None = None
    status: Literal["waiting", "queued", "running", "succeeded", "failed"]
    error_code: str | None = None
    error_message: str | None = None
    pages: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    file: str | None = Field(None, description="its name in the zip")


class BatchWhole(BatchBody):
    """A batch with some of its rows."""

    results: list[RowBody] | None = Field(
        description="some rows in their order; null while the storage does not answer"
    )


class BatchPage(BaseModel):
    """Some batches, newest first."""

    batches: list[BatchBody]
    cursor: str | None
