"""`kesin oci import`, `export-dead-letters`, `enqueue-fix`: conversions from and into files."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kesin.engine.workload import WorkloadContext
from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.terminal import error_console, say, say_json, tally, visible, warn
from kesin.store.directory import Site
from kesin.workloads.oci.cli.context import (
    FAILED,
    AsJson,
    InLanguage,
    SiteOption,
    open_house,
    operator,
    site_of,
)
from kesin.workloads.oci.conversions.corrections import COLUMNS, dead_letters, fix
from kesin.workloads.oci.conversions.csv_cells import safe, said
from kesin.workloads.oci.conversions.ingest import Result, RowResult, ingest
from kesin.workloads.oci.conversions.parsing import (
    MAX_ROWS,
    STDIN,
    Batch,
    Format,
    Read,
    Source,
    format_of,
    opened,
)
from kesin.workloads.oci.site import WORKLOAD

FIX_ROWS: Final = 1_000  # mended together; each is looked up by itself
MOST_TOLD: Final = 20  # rejected rows that are told one by one
RESULTS: Final[tuple[Result, ...]] = ("queued", "duplicate", "corrected", "rejected")
REJECTED: Final = (
    *("row", "externalId", "revision", "gclid", "wbraid", "gbraid", "conversionName"),
    *("conversionTime", "conversionValue", "conversionCurrency"),
    *("errorCode", "errorField", "errorMessage"),
)

_AGAIN: Final = "mend the file and run it again, what is done already stays as it is"
_NOT_AGAIN: Final = "mend the file and take what is done out of it, or it is sent once more"

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A CSV, NDJSON or JSON file; - is standard input.")
]
AsFormat = Annotated[
    Format | None,
    typer.Option(
        "--format", metavar="csv|ndjson|json", help="What the file is, if its name does not say."
    ),
]
Do = Callable[[WorkloadContext, Site, Sequence[Read]], list[RowResult]]


def import_conversions(
    file: FileArgument,
    *,
    site: SiteOption,
    file_format: AsFormat = None,
    rejects: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.csv", dir_okay=False, help="Write what was rejected here, with reasons."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take conversions in from a file.

    Of any size, 10 000 at a time; importing the same again changes nothing, and a row that failed
    because of its data is corrected when it comes with other data. Columns or fields: externalId,
    gclid (or wbraid, gbraid), conversionName, conversionTime, conversionValue, conversionCurrency.
    One bad row never sinks the others: the file of --rejects can be mended and imported. Exits with
    1 if any row was rejected. JSON is read as a whole: for millions of rows use CSV or NDJSON.
    """
    kind = format_of(file, file_format)
    if rejects and file != STDIN and rejects.exists() and rejects.samefile(file):
        raise Invalid("--rejects would overwrite the file that is imported: name another")
    with open_house() as house:
        place = site_of(house, site, "oci.import")
        with opened(file, kind) as source, _rejects(rejects) as reject:
            told = _take(house, place, source, _import, reject=reject)
    _tell(told, place, as_json=as_json, rejects=rejects)


def _import(house: WorkloadContext, site: Site, rows: Sequence[Read]) -> list[RowResult]:
    actor = operator()
    with house.queue.store.transaction():
        results = ingest(house, site, rows, actor=actor.name)
        counts: Counter[str] = Counter(one.result for one in results)
        house.commands.accounts.note(
            actor, "oci.import", queue=WORKLOAD, site=site.id, details=dict(counts)
        )
    return results


def enqueue_fix(
    file: FileArgument,
    *,
    site: SiteOption,
    file_format: AsFormat = None,
    again: Annotated[
        bool, typer.Option("--again", help="Send delivered rows again even if nothing changed.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; kept in the history of each row.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Mend conversions from a file, delivered ones too.

    Each row names its externalId and what is to change; what it does not say stays. A COMPLETED
    row, one that Google refused afterwards, is sent as a new revision with an orderId of its own,
    and the old row stays. A row that FAILED because of its data is corrected. Any other is left as
    it is. Exits with 1 if any row was rejected.
    """
    kind = format_of(file, file_format)

    def do(house: WorkloadContext, site: Site, rows: Sequence[Read]) -> list[RowResult]:
        return fix(house, operator(), site, rows, reason=reason, again=again)

    with open_house() as house:
        place = site_of(house, site, "oci.fix")
        hint = _NOT_AGAIN if again else _AGAIN
        with opened(file, kind) as source:
            told = _take(house, place, source, do, size=FIX_ROWS, hint=hint)
    _tell(told, place, as_json=as_json, renamed={"duplicate": "left"})


# Rows in


@dataclass(slots=True)
class _Taken:
    """What became of the rows of a file."""

    rows: int = 0
    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    first: list[tuple[int, RowResult]] = field(default_factory=list)  # rejected, by row


Reject = Callable[[int, Read, RowResult], None]


def _keep_none(_number: int, _row: Read, _result: RowResult) -> None:
    """Rejected rows are only told."""


def _take(
    house: WorkloadContext,
    site: Site,
    source: Source,
    do: Do,
    *,
    reject: Reject = _keep_none,
    size: int = MAX_ROWS,
    hint: str = _AGAIN,
) -> _Taken:
    taken = _Taken()
    with _progress(source) as show:
        batches = source.batches(size)
        while batch := _next(batches, taken, hint):
            _check_site(house, site, batch.site)
            for row, result in zip(batch.rows, do(house, site, batch.rows), strict=True):
                taken.rows += 1
                taken.results[result.result] += 1
                if result.result == "rejected":
                    taken.reasons[result.code or ""] += 1
                    reject(taken.rows, row, result)
                    if len(taken.first) < MOST_TOLD:
                        taken.first.append((taken.rows, result))
            show(taken)
    return taken


def _next(batches: Iterator[Batch], taken: _Taken, hint: str) -> Batch | None:
    """The next batch; where the file cannot be read any further, what is in already is told."""
    try:
        return next(batches, None)
    except Problem as problem:
        if not taken.rows:
            raise
        done = f"the {taken.rows} rows before it are done ({_counts(taken)})"
        raise Problem(f"{problem.message}; {done}: {hint}", code=problem.code) from None


def _check_site(house: WorkloadContext, site: Site, named: str | None) -> None:
    found = house.commands.accounts.find_site(named) if named else site
    if found is None or found.id != site.id:
        raise Invalid(f"the file is for the site {named!r}, and --site says {site.id!r}")


def _counts(taken: _Taken, renamed: Mapping[str, str] | None = None) -> str:
    names = {one: (renamed or {}).get(one, one) for one in RESULTS}
    return ", ".join(f"{name} {taken.results[one]}" for one, name in names.items())


def _tell(
    taken: _Taken,
    site: Site,
    *,
    as_json: bool,
    rejects: Path | None = None,
    renamed: Mapping[str, str] | None = None,
) -> None:
    names = {one: (renamed or {}).get(one, one) for one in RESULTS}
    if as_json:
        say_json(
            {
                "site": site.id,
                "rows": taken.rows,
                **{name: taken.results[one] for one, name in names.items()},
                "reasons": dict(taken.reasons.most_common()),
                "rejects": str(rejects) if rejects else None,
                "first_rejected": [_rejected(number, one) for number, one in taken.first],
            }
        )
    else:
        _tell_rejected(taken, rejects)
        say(f"{taken.rows} rows for {site.id}: {_counts(taken, renamed)}")
    if taken.results["rejected"]:
        raise typer.Exit(FAILED)


def _tell_rejected(taken: _Taken, rejects: Path | None) -> None:
    for number, one in taken.first if rejects is None else ():
        named = f" ({visible(one.external_id)})" if one.external_id else ""
        warn(f"row {number}{named}: {one.code}, {visible(one.message or '')}")
    if rejects is None and taken.results["rejected"] > len(taken.first):
        more = taken.results["rejected"] - len(taken.first)
        warn(f"and {more} more rows; --rejects OUT.csv keeps them all")
    if taken.reasons:
        warn(f"rejected: {tally(dict(taken.reasons.most_common()))}")
    if rejects is not None and taken.reasons:
        warn(f"they are in {rejects}: mend them there and import that file")


def _rejected(number: int, one: RowResult) -> dict[str, Any]:
    return {
        "row": number,
        "external_id": one.external_id,
        "code": one.code,
        "field": one.field,
        "message": one.message,
    }


@contextmanager
def _rejects(path: Path | None) -> Iterator[Reject]:
    """Keeps rejected rows in a file from which they can be imported once they are mended."""
    if path is None:
        yield _keep_none
        return
    with path.open("w", encoding="utf-8-sig", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(REJECTED)

        def keep(number: int, row: Read, result: RowResult) -> None:
            given = row if isinstance(row, Mapping) else {}
            why = {
                "row": number,
                "errorCode": result.code,
                "errorField": result.field,
                "errorMessage": result.message,
            }
            writer.writerow([safe({**given, **why}.get(name)) for name in REJECTED])

        yield keep


@contextmanager
def _progress(source: Source) -> Iterator[Callable[[_Taken], None]]:
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=error_console(), transient=True) as bar:
        task = bar.add_task("reading", total=source.size)
        yield lambda taken: bar.update(
            task, completed=source.read, description=f"{taken.rows} rows: {_counts(taken)}"
        )


# Rows out


def export_dead_letters(
    *,
    site: SiteOption,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", dir_okay=False, help="Into this file."),
    ] = None,
    lang: InLanguage = "en",
    as_json: AsJson = False,
) -> None:
    """Write a site's FAILED conversions as CSV.

    Each comes with what to do. Mended and imported again, they are corrected and queued. No cell is
    a formula to a spreadsheet. With --json the rows come as JSON, one a line; together with -o the
    CSV goes into the file and the summary is JSON.
    """
    with open_house() as house:
        place = site_of(house, site, "oci.dead_letters")
        house.commands.accounts.note(operator(), "oci.dead_letters", queue=WORKLOAD, site=place.id)
        parts = dead_letters(house, place, language=lang)
        if out is None and as_json:
            for one in _records(parts):
                say_json(one, line=True)
            return
        rows = _written(parts, out)
    if as_json:
        say_json({"site": place.id, "rows": rows, "file": str(out)})
    elif out is not None:
        say(f"wrote {rows} rows to {out}")
    elif not rows:
        warn(f"{place.id} has no dead letters")


def _written(parts: Iterable[str], out: Path | None) -> int:
    """Write all of it; how many rows there were."""
    rows = -1  # the header is none
    with nullcontext(sys.stdout.buffer) if out is None else out.open("wb") as file:
        for part in parts:
            file.write(part.encode())
            rows += sum(1 for _ in _cells(part))
        file.flush()
    return rows


def _records(parts: Iterable[str]) -> Iterator[dict[str, str]]:
    """The rows as they were before they became safe cells."""
    lines = (cells for part in parts for cells in _cells(part))
    next(lines)
    for cells in lines:
        yield dict(zip(COLUMNS, map(said, cells), strict=True))


def _cells(part: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(part, newline=""))
