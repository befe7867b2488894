"""Masks personal data and secrets in what a caller without the permission ``reveal`` is shown.

The name of a field decides, not its value: rules that guess at values mask too little one day and
too much the next. In running text, a few unmistakable shapes are masked, and what masked fields of
the same job hold. An error message may quote other jobs: what looks like a click id is masked too.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from threading import Lock
from typing import Any, Final, Literal

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid
from kesin.foundation.text import decode_json, is_deeper_than
from kesin.lifecycle.budget import MINUTE_S, SECOND_US
from kesin.lifecycle.model import Job
from kesin.store.records import Event, Filter, Note, Page
from kesin.store.search import is_found

MASK: Final = "••••"
_SHOWN_CHARS: Final = 4  # at the end of a long value, to tell two apart
_LONG_CHARS: Final = 12
_MAX_DEPTH: Final = 100  # what lies deeper is masked as a whole
_MIN_SEARCHED_CHARS: Final = 6  # shorter values are words that a text may have by itself
SAME_LOOK_S: Final = 10 * MINUTE_S
MAX_RECENT_LOOKS: Final = 20_000  # remembered in one process; forgotten ones are audited again
_MAX_MORE_PAGES: Final = 20  # of a search whose matches are masked
_PHONE_DIGITS: Final = 10  # at the end of a number, however it is written

# Parts of a field's name without separators; and whole names that are too short to be parts.
_PARTS: Final = (
    "phone", "telephone", "telefon", "mobile", "msisdn", "email", "eposta", "mail", "fullname",
    "firstname", "lastname", "surname", "customername", "contactname", "address", "adres", "iban",
    "cardnumber", "taxid", "taxnumber", "vergino", "tckimlik", "kimlikno", "nationalid", "passport",
    "birthdate", "birthday", "gclid", "gbraid", "wbraid", "clickid", "ipaddress", "useragent",
    "token", "secret", "password", "passwd", "parola", "authorization", "apikey", "privatekey",
    "credential", "cookie", "session", "signature",
)  # fmt: skip
_WHOLE: Final = frozenset(
    {"tel", "gsm", "ip", "pin", "cvv", "cvc", "tckn", "vkn", "ssn", "auth", "key", "pass", "pwd"}
    | {"customer", "recipient", "buyer", "musteri"}
)
_PLAIN: Final = re.compile(r"[^a-z0-9]")
_FOLD: Final = str.maketrans("çğıöşü", "cgiosu")
_IN_TEXT: Final = (
    # An e-mail address; tried once for each word, or a long one would take minutes.
    re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    re.compile(r"(?<![\w.-])\+\d[\d ()-]{8,}\d"),  # a phone number with its country
    re.compile(r"""(?i)\b(?:gclid|gbraid|wbraid)["']?\s*[=:]\s*["']?[\w.-]+"""),
)
# Secrets, which are stored nowhere, not even for those who may reveal what is personal.
_VALUE: Final = r"""\s*(?:"[^"\n]*"?|'[^'\n]*'?|[^\s"',;)&]{4,})"""
_SECRETS: Final = (
    re.compile(r"(?i)\bbearer\s+[\w.~+/=-]+"),
    re.compile(r"\bkesin_[a-z0-9]{8}_[\w-]+"),
    re.compile(r"(?<=://)[^\s/@:]{0,200}:[^\s@]{1,200}(?=@)"),  # user and password of an address
    re.compile(r"(?i)\bauthorization\s*[=:]\s*\w+\s+\S+"),
    re.compile(r"(?i)\b\w{0,40}(?:password|passwd|pwd|parola|api[_-]?key)\w{0,40}[\"']?\s*[=:]" + _VALUE),
    # After a colon a plain word belongs to a sentence: "invalid token: expected a number".
    re.compile(
        r"(?i)\b\w{0,40}(?:secret|token)\w{0,40}[\"']?\s*"
        r"(?:=|:(?!\s*(?-i:[a-z]+)(?![\w-])))" + _VALUE
    ),
)
# A click id, or a token as random: one long word of small and capital letters and digits.
_CLICK_ID: Final = re.compile(
    r"(?<![\w-])(?![0-9a-f]{8}-[0-9a-f]{4}-)(?:(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{20,}"
    r"|(?:Cj[0-9A-Za-z]K|EAIaIQ)[\w-]{6,})"
)
MaskText = Callable[[str], str]
# What a list shows in clear to a caller who may reveal: nothing, keys and error messages, or all.
ListReveal = Literal["nothing", "texts", "everything"]


@lru_cache(maxsize=4096)
def _plain_name(name: str) -> str:
    return _PLAIN.sub("", name.casefold().translate(_FOLD))


@lru_cache(maxsize=4096)
def is_private(name: str) -> bool:
    """Whether the value of a field with this name is masked in every queue."""
    plain = _plain_name(name)
    return plain in _WHOLE or any(part in plain for part in _PARTS)


def mask_private(value: Any) -> Any:
    """Mask a private value and everything inside it; the end of a long text stays."""
    if isinstance(value, dict):
        return {name: mask_private(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [mask_private(inner) for inner in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    text = str(value)
    return MASK + text[-_SHOWN_CHARS:] if len(text) >= _LONG_CHARS else MASK


def mask_text(text: str | None) -> str | None:
    """Mask unmistakable shapes in running text, such as an error message."""
    if text is None:
        return None
    masked = _mask_shapes(text)
    if isinstance(text, Message):
        values = {name: mask_text(value) for name, value in text.values.items()}
        message = Message(text.id, **values)
        return message if message == masked else masked  # what is private may span two values
    return masked


def _mask_shapes(text: str) -> str:
    return mask_credentials(text, (*_SECRETS, *_IN_TEXT))


def mask_credentials(text: str, shapes: Iterable[re.Pattern[str]] = _SECRETS) -> str:
    """Mask the passwords, tokens and keys in running text that is to be stored."""
    if len(text) >= _MIN_SEARCHED_CHARS:
        for shape in shapes:
            text = shape.sub(MASK, text)
    return text


def find_masked(value: Any, path: str = "") -> str | None:
    """The path of the first text in a JSON value that was masked when it was read."""
    waiting = [(path, value)]  # no recursion: a payload may be deep
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str) and MASK in value:
            return path
        inner: list[tuple[str, Any]] = []
        if isinstance(value, Mapping):
            inner = [(f"{path}.{name}" if path else str(name), one) for name, one in value.items()]
        elif isinstance(value, list):
            inner = [(f"{path}[{at}]", one) for at, one in enumerate(value)]
        waiting += reversed(inner)
    return None


def masked_input(field_name: str) -> Invalid:
    """The refusal of a value that was masked when it was read: the real one would be lost."""
    return Invalid(
        "%(field)s is masked: send the value itself, or leave it out",
        code="masked_value",
        details={"field": field_name},
        field=field_name,
    )


def reveal_in_list(reveal: ListReveal, job: Job, masked: Job) -> Job:
    """The job with this part of it in clear."""
    if reveal == "texts":
        return masked._replace(dedup_key=job.dedup_key, error_message=job.error_message, note=job.note)
    return job if reveal == "everything" else masked


class RecentLooks:
    """Who has lately seen which job in clear, in lists that refresh themselves."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = Lock()

    def new(self, actor: str, job_ids: Iterable[str], now: int) -> list[str]:
        """Those of the jobs that the actor has not seen lately; from now on it has."""
        again_us = SAME_LOOK_S * SECOND_US
        with self._lock:
            new = [job_id for job_id in job_ids if now - self._seen.get((actor, job_id), now - again_us) >= again_us]
            self._seen.update({(actor, job_id): now for job_id in new})
            while len(self._seen) > MAX_RECENT_LOOKS:
                self._seen.popitem(last=False)
        return new


class Masking:
    """What is masked in the jobs of one queue: the usual names, and those of its workload."""

    def __init__(self, personal_fields: Iterable[str] = ()) -> None:
        self._own = frozenset(map(_plain_name, personal_fields))

    def hides(self, name: str) -> bool:
        return is_private(name) or _plain_name(name) in self._own

    def value(self, value: Any, mask_string: MaskText = _mask_shapes) -> Any:
        """A JSON value with everything private in it masked; its shape stays."""
        if is_deeper_than(value, _MAX_DEPTH):
            return MASK
        return self._value(value, mask_string)

    def _value(self, value: Any, mask_string: MaskText) -> Any:
        if isinstance(value, dict):
            return {
                name: mask_private(inner) if self.hides(str(name)) else self._value(inner, mask_string)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._value(inner, mask_string) for inner in value]
        return mask_string(value) if isinstance(value, str) else value

    def job(self, job: Job) -> Job:
        """The job as it is shown to a caller who may not see what is private."""
        return self.history(job)[0]

    def history(
        self, job: Job, events: Sequence[Event] = (), notes: Sequence[Note] = ()
    ) -> tuple[Job, list[Event], list[Note]]:
        """The same for a job with its events and notes."""
        documents = [job.payload_json, job.new_payload, job.result_json, job.note]
        for event in events:
            documents += [event.payload, event.old_payload, event.result, event.note]
        documents += [note.details for note in notes]
        values = (value for text in documents if text for value in self._private_texts(text))
        mask_string = _searching(values)

        def document(text: str, mask_string: MaskText = mask_string) -> str:
            value = decode_json(text)
            masked = self.value(value, mask_string)
            return text if masked == value else json.dumps(masked, ensure_ascii=False)

        def payload(text: str) -> str:  # its other fields hold no running text
            return document(text, _mask_shapes)

        def quoting(text: str) -> str:  # it may quote other jobs
            return _CLICK_ID.sub(lambda found: str(mask_private(found[0])), mask_string(text))

        masks: dict[str, MaskText] = dict.fromkeys(("result_json", "result", "details"), document)
        masks |= dict.fromkeys(("payload_json", "new_payload", "payload", "old_payload"), payload)
        masks |= {"note": partial(document, mask_string=quoting), "error_message": quoting}
        masks["dedup_key"] = mask_string

        def masked(record: Any) -> Any:
            given = record._asdict()
            shown = {name: mask(given[name]) for name, mask in masks.items() if given.get(name)}
            return record._replace(**shown)

        return masked(job), list(map(masked, events)), list(map(masked, notes))

    def _private_texts(self, document: str) -> Iterator[str]:
        value = decode_json(document)
        waiting = [] if is_deeper_than(value, _MAX_DEPTH) else [(value, False)]
        while waiting:
            value, private = waiting.pop()
            if isinstance(value, dict):
                waiting += [(v, private or self.hides(str(name))) for name, v in value.items()]
            elif isinstance(value, list):
                waiting += [(inner, private) for inner in value]
            elif private and value is not None and not isinstance(value, bool):
                yield str(value)


def _searching(secrets: Iterable[str]) -> MaskText:
    """A function that masks these values, and unmistakable shapes, wherever a text has them."""
    wanted = set()
    for secret in secrets:
        digits = "".join(char for char in secret if char.isdecimal())
        wanted |= {secret, digits[-_PHONE_DIGITS:]}
    values = sorted((value for value in wanted if len(value) >= _MIN_SEARCHED_CHARS), key=len, reverse=True)

    def mask_string(text: str) -> str:
        for value in values:
            if value in text:
                text = text.replace(value, str(mask_private(value)))
        return _mask_shapes(text)

    return mask_string


def masked_page(
    read: Callable[..., Page], masking: Masking, where: Filter, limit: int, page: Page, *, fields: Sequence[str] = ()
) -> Page:
    """The jobs that match as shown, filled up: a short page would reveal what is masked."""
    jobs = _matching(page, masking, where, fields)
    if len(jobs) == len(page.jobs):
        return Page(jobs, page.cursor)
    for _ in range(_MAX_MORE_PAGES):
        if page.cursor is None or len(jobs) > limit:
            break
        page = read(cursor=page.cursor)
        jobs += _matching(page, masking, where, fields)
    if len(jobs) > limit:
        return Page(jobs[:limit], jobs[limit - 1].id)
    return Page(jobs, page.cursor if jobs else None)  # that there is more would tell of matches


def _matching(page: Page, masking: Masking, where: Filter, fields: Sequence[str]) -> list[Job]:
    return [job for job in map(masking.job, page.jobs) if _still_matches(job, where, fields)]


def _still_matches(masked: Job, where: Filter, fields: Sequence[str]) -> bool:
    message = masked.error_message or ""
    if where.search is not None and not is_found(masked.payload, fields, where.search):
        return False
    if where.text and where.text.casefold() not in message.casefold():
        return False
    return where.dedup_key is None or where.dedup_key == masked.dedup_key


masking_of = lru_cache(Masking)  # by the personal fields of a workload
