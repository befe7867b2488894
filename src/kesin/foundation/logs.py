"""Logs: structured, on standard error, for a person or for a machine; never with a payload.

Standard output belongs to what a command prints. A line is one write, so that those of several
processes do not mix. Tracebacks come without local variables, which would show what handlers were
working on.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final, Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Style = Literal["console", "json"]
Level = Literal["info", "warning", "error"]
LONGEST_TRACEBACK: Final = 20_000  # characters
PRIVATE: Final = frozenset({"payload", "new_payload", "old_payload", "result", "data", "outcome"})

_silent: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def silence() -> Iterator[None]:
    """Say nothing meanwhile: a simulation kills workers by the thousand, on purpose."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


class Logger:
    """A line and its details.

    Until an application sets logs up, it is a plain library logger: silent below a warning, and
    never on standard output. Where a line cannot be written, whoever logged it goes on.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, event: str, **details: object) -> None:
        """Something worth knowing."""
        self._say("info", event, details)

    def warning(self, event: str, *, exc_info: bool = False, **details: object) -> None:
        """Something worth a look."""
        self._say("warning", event, details, exc_info=exc_info)

    def exception(
        self, event: str, *, problem: BaseException | None = None, **details: object
    ) -> None:
        """Something that failed, with its traceback: of ``problem``, or of what is handled now."""
        self._say("error", event, details, exc_info=problem or True)

    def _say(
        self,
        level: str,
        event: str,
        details: dict[str, object],
        *,
        exc_info: bool | BaseException = False,
    ) -> None:
        if _silent.get():
            return
        if structlog.is_configured():
            extra = {"exc_info": exc_info} if exc_info else {}
            with suppress(OSError, ValueError):  # a full disk, a pipe nobody reads, a closed file
                getattr(structlog.get_logger(self._name), level)(event, **details, **extra)
            return
        shown = " ".join(f"{name}={value}" for name, value in details.items())
        getattr(logging.getLogger(self._name), level)("%s %s", event, shown, exc_info=exc_info)


def without_payloads(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Drop what belongs to the job: a log is read by more people than a queue."""
    for name in PRIVATE & event.keys():
        del event[name]
    return event


def short_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut what an exception says: a handler may throw one as long as a book."""
    told = event.get("exception")
    if isinstance(told, str) and len(told) > LONGEST_TRACEBACK:
        event["exception"] = f"{told[:LONGEST_TRACEBACK]}… ({len(told)} characters)"
    return event


def set_up_logs(style: Style = "console", level: Level = "warning") -> None:
    """Send every log line of this process, libraries' included, to standard error in one form."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        without_payloads,
    ]
    ending = _ending(style, colors=sys.stderr.isatty())
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = _Libraries()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    root = logging.getLogger()
    for one in root.handlers[:]:
        if isinstance(one, _Libraries):
            root.removeHandler(one)
    root.addHandler(handler)


class _Libraries(logging.Handler):
    """What libraries log, from a warning on, in the same form."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  # as in every handler: a library goes on
            self.handleError(record)


def _ending(style: Style, *, colors: bool) -> list[Processor]:
    traceback: list[Processor] = [structlog.processors.format_exc_info, short_traceback]
    if style == "json":
        return [*traceback, structlog.processors.JSONRenderer(ensure_ascii=False)]
    plain = structlog.dev.plain_traceback
    return [*traceback, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
