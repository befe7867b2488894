"""What goes in and out of the door."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kesin import MAX_KEY, MAX_TENANT


class Delivery(BaseModel):
    """Something to deliver. Of the deliveries of a site on their way, one can have a key."""

    model_config = ConfigDict(extra="forbid")

    url: str
    body: Any
    site: str = Field(min_length=1, max_length=MAX_TENANT)
    key: str | None = Field(None, min_length=1, max_length=MAX_KEY)


class Accepted(BaseModel):
    """It is kept; ``duplicate`` names the delivery that has the key."""

    id: str
    result: str


class Report(BaseModel):
    """How far a delivery came. Neither its URL nor its body is repeated: both may hold secrets."""

    id: str
    site: str
    state: str
    attempts: int
    error_code: str | None
    error_message: str | None
    result: Any
    moves: list[str]
