"""Request and response bodies."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kesin import MAX_KEY, MAX_TENANT


class Delivery(BaseModel):
    """A delivery to enqueue. Only one open delivery of a site can have a given key."""

    model_config = ConfigDict(extra="forbid")

    url: str
    body: Any
    site: str = Field(min_length=1, max_length=MAX_TENANT)
    key: str | None = Field(None, min_length=1, max_length=MAX_KEY)


class Accepted(BaseModel):
    """The delivery is stored; for ``duplicate``, ``id`` is the delivery that has the key."""

    id: str
    result: str


class Report(BaseModel):
    """The state of a delivery, without its URL and body, which may contain secrets."""

    id: str
    site: str
    state: str
    attempts: int
    error_code: str | None
    error_message: str | None
    result: Any
    moves: list[str]
