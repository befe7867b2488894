"""`kesin oci import`, `export-dead-letters`, `enqueue-fix`: conversions from and into files."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kesin.foundation import terminal
from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.terminal import argument, flag, format_counts, option, say, say_json, warn
from kesin.foundation.text import csv_text
from kesin.workloads.common.cli import FAILED, JsonOption, local_operator
from kesin.workloads.common.columns import column_names
from kesin.workloads.oci.cli.site import LanguageOption, SiteOption, open_site
from kesin.workloads.oci.conversions import corrections, ingest, parsing
from kesin.workloads.oci.conversions.conversion import CONVERSION_FIELDS, ParsedRow
from kesin.workloads.oci.conversions.ingest import IngestOutcome, IngestResult
from kesin.workloads.oci.conversions.parsing import FileFormat, RowSource
from kesin.workloads.oci.site import SiteContext

FIX_ROWS: Final = 1_000  # fixed together; each is looked up by itself
MAX_LISTED_REJECTS: Final = 20  # rejected rows listed on the terminal
RESULTS: Final[tuple[IngestOutcome, ...]] = ("queued", "duplicate", "corrected", "rejected")
REJECT_FIELDS: Final = ("external_id", "code", "field", "message")  # of a rejected row, as JSON
_RERUN_HINT: Final = "fix the file and run the command again; finished rows stay as they are"
_NO_RERUN_HINT: Final = "fix the file and remove the finished rows, or they will be sent again"

FileArgument = Annotated[str, argument("FILE", "A CSV, NDJSON or JSON file, or - for standard input.")]
FormatOption = Annotated[
    FileFormat | None, option("csv|ndjson|json", "The format, if the file name does not show it.", "--format")
]
_IGNORED: Final = "CSV columns to ignore, separated by commas; repeatable."
IgnoreColumnsOption = Annotated[list[str] | None, option("NAMES", _IGNORED, "--ignore-columns")]
_TAKEN: Final = "Assume that Google accepted the rows: restate their values instead of resending."
ProcessRows = Callable[[SiteContext, Sequence[ParsedRow]], list[IngestResult]]


def import_conversions(
    file: FileArgument,
    *,
    site: SiteOption,
    file_format: FormatOption = None,
    ignore_columns: IgnoreColumnsOption = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what the import would change.")] = False,
    yes: terminal.Yes = False,
    as_json: JsonOption = False,
) -> None:
    """Import conversions from a file.

    The file can have any size; it is read 10,000 rows at a time. Importing it again changes only
    the rows that failed because of their data, and corrects them if the data is now different.
    Columns or fields: externalId, gclid (or wbraid, gbraid), conversionName, conversionTime,
    conversionValue, conversionCurrency; or the names in Google's template. In a terminal, the
    command first shows how it reads the file and what would change, and asks for confirmation
    unless you add --yes. A rejected row does not stop the others. Exits with 1 if any row was
    rejected. A CSV with other columns is refused unless --ignore-columns names them. JSON, and CSV
    from standard input, are read into memory; for millions of rows, use a CSV file or NDJSON.
    """
    with parsing.open_source(file, file_format) as source, open_site(site, "oci.import") as found:
        read = partial(_process_file, found, source, ignored=column_names(ignore_columns))
        asks = sys.stdin.isatty() and file != parsing.STDIN and not (yes or as_json or dry_run)
        if dry_run or asks:
            preview = ingest.IngestPreview()
            changed_at = Path(file).stat().st_mtime_ns if asks else 0
            summary = read(partial(preview.add, actor=local_operator()))
            sums = {currency: str(value) for currency, value in preview.sums.items()}
            read_as = source.csv.describe() if source.csv else {}
            if not as_json:
                fields = [n for n in CONVERSION_FIELDS if any(n in row for row in preview.first)]
                rows = [[row.get(name) for name in fields] for row in preview.first]
                terminal.print_table(("read as", ""), list(read_as.items()))
                terminal.print_table(fields, rows)
                say("".join(f"{value} {currency} in total\n" for currency, value in sums.items()))
            shown: dict[str, Any] = {"file": read_as, "sums": sums, "first": preview.first}
            _print_summary(summary, found.id, as_json=as_json, goes_on=asks, **shown)
            if dry_run:
                return
            typer.confirm(f"Import {summary.rows:,} rows into {found.id}?", abort=True, err=True)
            if Path(file).stat().st_mtime_ns != changed_at:
                raise Problem("the file changed after it was shown: nothing was imported")
        summary = read(partial(ingest.import_rows, actor=local_operator()))
    _print_summary(summary, found.id, as_json=as_json)


def enqueue_fix(
    file: FileArgument,
    *,
    site: SiteOption,
    file_format: FormatOption = None,
    again: Annotated[bool, flag("--again", "Send uploaded rows again even if nothing changed.")] = False,
    taken: Annotated[bool, flag("--taken", _TAKEN)] = False,
    reason: Annotated[str | None, option("TEXT", "The reason, stored in the history of each row.")] = None,
    ignore_columns: IgnoreColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Correct conversions, even uploaded ones, from a file.

    Each row has an externalId and the fields to change. A COMPLETED row, or a row that Google later
    refused, is sent as a new revision with its own orderId, and the old row is kept. A row that
    FAILED because of its data is corrected. Other rows do not change. Exits with 1 if any row was
    rejected.
    """

    def process(site: SiteContext, rows: Sequence[ParsedRow]) -> list[IngestResult]:
        how: dict[str, Any] = {"reason": reason, "again": again, "taken": taken}
        return corrections.fix_rows(site, local_operator(), rows, **how)

    hint = _NO_RERUN_HINT if again else _RERUN_HINT
    ignored = column_names(ignore_columns)
    with parsing.open_source(file, file_format) as source, open_site(site, "oci.fix") as found:
        summary = _process_file(found, source, process, size=FIX_ROWS, hint=hint, ignored=ignored)
    _print_summary(summary, found.id, as_json=as_json, duplicates="left")


@dataclass(slots=True)
class _FileSummary:
    rows: int = 0
    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    differing: int = 0  # duplicates with other data, which were not taken
    listed_rejects: list[tuple[int, int, IngestResult]] = field(default_factory=list)  # row, line

    def counts(self, duplicates: str = "duplicate") -> dict[str, int]:
        """The number of rows of each result; those that changed nothing under this name."""
        names = {outcome: outcome for outcome in RESULTS} | {"duplicate": duplicates}
        return {name: self.results[outcome] for outcome, name in names.items()}


def _process_file(
    site: SiteContext,
    source: RowSource,
    process: ProcessRows,
    *,
    size: int = parsing.MAX_ROWS,
    hint: str = _RERUN_HINT,
    ignored: frozenset[str] = frozenset(),
) -> _FileSummary:
    summary = _FileSummary()
    with terminal.bars(of_bytes=True) as bar:
        advance, shown = bar("reading", source.size), 0
        batches = source.batches(size, ignored, site.defaults)
        while batch := _next_batch(batches, summary, hint):
            of = site.context.commands.accounts.find_site(source.site) if source.site else site
            if of is None or of.id != site.id:
                why = f"the file is for the site {source.site!r}, but --site is {site.id!r}"
                raise Invalid(why)
            results = process(site, [row for _, row in batch])
            for (line, _), result in zip(batch, results, strict=True):
                summary.rows += 1
                summary.results[result.result] += 1
                summary.differing += bool(result.differs)
                if result.result == "rejected":
                    summary.reasons[result.code or ""] += 1
                    if len(summary.listed_rejects) < MAX_LISTED_REJECTS:
                        summary.listed_rejects.append((summary.rows, line, result))
            advance(source.bytes_read - shown)
            shown = source.bytes_read
    return summary


def _next_batch(batches: Iterator[Any], summary: _FileSummary, hint: str) -> Any:
    """The next batch; an error in the middle of the file says how many rows are done."""
    try:
        return next(batches, None)
    except Problem as problem:
        if not summary.rows:
            raise
        done = f"the {summary.rows:,} rows before it are done ({_format_counts(summary.counts())})"
        raise Problem(f"{problem.message}; {done}: {hint}", code=problem.code) from None


def _print_summary(
    summary: _FileSummary,
    site_id: str,
    *,
    as_json: bool,
    duplicates: str = "duplicate",
    goes_on: bool = False,
    **more: Any,
) -> None:
    counts = summary.counts(duplicates)
    if as_json:
        listed = [
            {"row": n, "line": line, **{name: getattr(result, name) for name in REJECT_FIELDS}}
            for n, line, result in summary.listed_rejects
        ]
        reasons = dict(summary.reasons.most_common())
        counted = {"site": site_id, "rows": summary.rows, **counts, "differing": summary.differing}
        say_json({**counted, "reasons": reasons, "first_rejected": listed, **more})
    else:
        for number, line, result in summary.listed_rejects:
            suffix = f" ({terminal.visible(result.external_id)})" if result.external_id else ""
            why = terminal.visible(result.message or "")
            warn(f"line {line}, row {number}{suffix}: {result.code}, {why}")
        if left := summary.results["rejected"] - len(summary.listed_rejects):
            warn(f"and {left} more rows")
        if summary.reasons:
            warn(f"rejected: {format_counts(dict(summary.reasons.most_common()))}")
        if summary.differing:
            warn(f"{summary.differing} duplicates differ from the stored rows, which do not change")
        rows, when = terminal.pluralize(summary.rows, "row"), ", once imported" if more else ""
        say(f"{rows} for {site_id}{when}: {_format_counts(counts)}")
    if summary.results["rejected"] and not goes_on:
        raise typer.Exit(FAILED)


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items())


def export_dead_letters(
    *,
    site: SiteOption,
    out: Annotated[
        Path | None, option("FILE", "The file to write; defaults to standard output.", "--out", "-o", dir_okay=False)
    ] = None,
    lang: LanguageOption = "en",
    as_json: JsonOption = False,
) -> None:
    """Write a site's FAILED conversions as CSV.

    Each row includes advice. Correct the file and import it again to queue the rows. Spreadsheets
    do not interpret any cell as a formula. With --json, rows are written as JSON, one per line;
    with both --json and -o, the file contains CSV and the printed summary is JSON.
    """
    with open_site(site, "oci.dead_letters") as found:
        found.note(local_operator(), "oci.dead_letters", {"revealed": True})
        pages = corrections.dead_letter_pages(found, local_operator(), lang)
        if out is None and as_json:
            [columns] = next(pages)
            for cells in chain.from_iterable(pages):
                say_json(dict(zip(columns, cells, strict=True)), line=True)
            return
        rows = -1  # the header does not count
        with nullcontext(sys.stdout.buffer) if out is None else out.open("wb") as file:
            file.write(corrections.BYTE_ORDER_MARK.encode())
            for page in pages:
                file.write(csv_text(page).encode())
                rows += len(page)
            file.flush()
    if as_json:
        say_json({"site": found.id, "rows": rows, "file": str(out)})
    elif out is not None:
        say(f"wrote {rows} rows to {out}")
    elif not rows:
        warn(f"{found.id} has no dead letters")
