"""Structured logs on standard error, as text or JSON: a line is one write, without any payload."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

ExcInfo = bool | BaseException
Style = Literal["console", "json"]
Level = Literal["info", "warning", "error"]
MAX_TRACEBACK_LENGTH: Final = 20_000  # characters
PRIVATE_FIELDS: Final = frozenset({"payload", "new_payload", "old_payload", "result", "data", "outcome"})

_silent: ContextVar[bool] = ContextVar("silent", default=False)
_processors: list[Processor] = []  # as `set_up_logs` configured them
_bound: dict[str, Any] = {}  # loggers by name, made with these


@contextmanager
def silence() -> Iterator[None]:
    """Log nothing inside the block: a simulation kills workers by the thousand, on purpose."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


class Logger:
    """Logs events; silent below a warning until an application calls ``set_up_logs``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, event: str, **details: object) -> None:
        self._log("info", event, details)

    def warning(self, event: str, *, exc_info: bool = False, **details: object) -> None:
        self._log("warning", event, details, exc_info=exc_info)

    def error(self, event: str, **details: object) -> None:
        """Log a failure that an operator or developer must fix."""
        self._log("error", event, details)

    def exception(self, event: str, *, problem: BaseException | None = None, **details: object) -> None:
        """Log a failure with the traceback of ``problem``, or of the exception being handled."""
        self._log("error", event, details, exc_info=problem or True)

    def _log(self, level: str, event: str, details: dict[str, object], *, exc_info: ExcInfo = False) -> None:
        if _silent.get():
            return
        if structlog.is_configured():
            ours = structlog.get_config()["processors"] is _processors
            if (logger := _bound.get(self._name) if ours else None) is None:
                logger = structlog.get_logger(self._name).bind()
                if ours:
                    _bound[self._name] = logger
            if exc_info:
                details["exc_info"] = exc_info
            with suppress(OSError, ValueError):  # a full disk, a closed pipe or file
                getattr(logger, level)(event, **details)
            return
        shown = " ".join(f"{name}={value}" for name, value in details.items())
        getattr(logging.getLogger(self._name), level)("%s %s", event, shown, exc_info=exc_info)


def drop_payloads(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Drop a job's data from an event: more people read logs than queues."""
    for name in PRIVATE_FIELDS & event.keys():
        del event[name]
    return event


def truncate_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Truncate a traceback: the message of a handler's exception may be of any length."""
    text = event.get("exception")
    if isinstance(text, str) and len(text) > MAX_TRACEBACK_LENGTH:
        event["exception"] = f"{text[:MAX_TRACEBACK_LENGTH]}… ({len(text)} characters)"
    return event


def set_up_logs(style: Style = "console", level: Level = "warning") -> None:
    """Send all logs of this process, including those of libraries, to standard error."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        drop_payloads,
    ]
    renderers: list[Processor] = [structlog.processors.format_exc_info, truncate_traceback]
    if style == "json":
        renderers.append(structlog.processors.JSONRenderer(ensure_ascii=False))
    else:  # without local variables, which would show payloads
        colors, plain = sys.stderr.isatty(), structlog.dev.plain_traceback
        renderers.append(structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain))
    least = logging.getLevelNamesMapping()[level.upper()]
    global _processors  # noqa: PLW0603
    _processors = [*shared, *renderers]
    structlog.configure(
        processors=_processors,
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=lambda *_: _StderrLogger(),
        cache_logger_on_first_use=False,
    )
    _bound.clear()
    handler, formatter = _LibraryHandler(), structlog.stdlib.ProcessorFormatter
    processors = [formatter.remove_processors_meta, *renderers]
    handler.setFormatter(formatter(foreign_pre_chain=shared, processors=processors))
    root = logging.getLogger()
    for existing in root.handlers[:]:
        if isinstance(existing, _LibraryHandler):
            root.removeHandler(existing)
    root.addHandler(handler)


class _StderrLogger:
    """Writes lines to standard error, as that is when a line is written."""

    def info(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    warning = error = info


class _LibraryHandler(logging.Handler):
    """Writes the warnings and errors that libraries log, in the same form."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  # as in every logging handler: the library continues
            self.handleError(record)
