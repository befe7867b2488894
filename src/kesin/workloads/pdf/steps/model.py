"""The steps of a request, in their fixed order: parts, stamp, metadata, encryption."""

from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from kesin.web.schemas import Strict, Text
from kesin.workloads.pdf.uploads.store import PDF_ID_PATTERN

MAX_PARTS: Final = 10
MAX_NAME_LENGTH: Final = 200  # of a template
_ORDER: Final = ("append", "prepend", "stamp", "metadata", "encrypt")  # the first two in any mix
OUTSIDE_ARCHIVES: Final = frozenset({"append", "prepend", "encrypt"})


def _check_stamp(text: str) -> str:
    from kesin.workloads.pdf.steps.marking import missing_characters

    if missing := missing_characters(text):
        raise ValueError(f"no font has these characters: {''.join(missing)}")
    return text


TemplateName = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
StampText = Annotated[Text, StringConstraints(max_length=60, pattern=r"\S"), AfterValidator(_check_stamp)]
Property = Annotated[Text, StringConstraints(min_length=1, max_length=500)]
Password = Annotated[SecretStr, Field(min_length=1, max_length=127)]  # as readers cut it
Permission = Literal["print", "copy", "annotate", "forms", "assemble"]


class UploadedPart(Strict):
    """An uploaded PDF."""

    upload: Annotated[str, StringConstraints(pattern=PDF_ID_PATTERN)]


class TemplatePart(Strict):
    """A document from another template."""

    template: TemplateName
    variables: dict[str, Any]


class StampStep(Strict):
    """Text across each page."""

    text: StampText
    opacity: float = Field(0.15, gt=0, le=1)
    angle: float = Field(45, ge=-90, le=90, description="degrees, counterclockwise")


class MetadataStep(Strict):
    """The metadata of the PDF."""

    title: Property | None = None
    author: Property | None = None
    subject: Property | None = None
    keywords: Property | None = None


class EncryptStep(Strict):
    """Encryption with AES-256. Passwords are stored separately from the job until it ends."""

    user_password: Password | None = Field(None, description="opens the PDF")
    owner_password: Password | None = Field(None, description="lifts the restrictions set by `allow`")
    allow: list[Permission] | None = Field(None, description="everything is allowed if omitted")

    @model_validator(mode="after")
    def _check_passwords(self) -> Self:
        if self.user_password is None and self.owner_password is None:
            raise ValueError("encrypt: give a user_password, an owner_password, or both")
        if self.allow is not None and self.owner_password is None:
            raise ValueError("encrypt: allow needs an owner_password")
        return self

    @property
    def passwords(self) -> dict[str, str]:
        """The passwords by name; without one of the owner, the user's opens everything."""
        given = {"user": self.user_password, "owner": self.owner_password or self.user_password}
        return {name: text.get_secret_value() for name, text in given.items() if text}


class Step(Strict):
    """A step; exactly one of its fields must be set."""

    append: UploadedPart | TemplatePart | None = None
    prepend: UploadedPart | TemplatePart | None = None
    stamp: StampStep | None = None
    metadata: MetadataStep | None = None
    encrypt: EncryptStep | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError(f"a step must be one of {', '.join(_ORDER)}")
        return self

    @property
    def kind(self) -> str:
        return next(name for name in _ORDER if getattr(self, name) is not None)


def check_order(steps: list[Step]) -> list[Step]:
    ranks = [max(_ORDER.index(step.kind), 1) for step in steps]
    for index, (before, rank) in enumerate(pairwise(ranks), 1):
        if rank < before or rank == before > 1:
            order = "append and prepend, stamp, metadata, encrypt; each of the last three at most once"
            raise ValueError(f"then.{index}.{steps[index].kind} is out of order: the order is {order}")
    if ranks.count(1) > MAX_PARTS:
        raise ValueError(f"then has at most {MAX_PARTS} parts")
    return steps


Steps = Annotated[list[Step], Field(max_length=MAX_PARTS + 3), AfterValidator(check_order)]
