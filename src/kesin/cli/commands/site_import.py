"""`kesin site import`: the sites of a spreadsheet, all of them or none."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from kesin.cli.support.arguments import AsJson, Yes, argument, confirm, flag, option
from kesin.cli.support.context import local_operator, open_context
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.site_changes import create_site
from kesin.foundation.files import write_atomically
from kesin.foundation.problems import Problem
from kesin.foundation.terminal import print_table, say_json
from kesin.workloads import workloads
from kesin.workloads.common.cli import FAILED
from kesin.workloads.common.columns import detect_encoding, separator

SITE_COLUMNS: Final = ("name", "channel", "timezone", "currency")
Row = tuple[int, dict[str, str]]  # the number of a line, and its cells by column


class SiteLine(NamedTuple):
    """What becomes of a line of the file."""

    line: int
    site: str
    result: str  # new, changed, same or refused
    detail: str = ""


class _UndoneError(Exception):
    """Ends the transaction of a preview."""


def import_sites(
    file: Annotated[Path, argument("FILE", "A CSV file with the column id.")],
    *,
    like: Annotated[str | None, option("SITE", "New sites get the settings of this one.")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would change.")] = False,
    keys: Annotated[
        Path | None, option("FILE", "Write a script key of each new site to this new file.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Add and change sites by a CSV file.

    Its columns: id, name, channel, timezone, currency, customer_id and any oci setting by its name.
    An empty cell changes nothing. If a line is refused, nothing is stored.
    """
    rows = _read_rows(file)
    if keys and keys.exists():
        raise Problem(f"{keys} is there already: name a new file for the keys")
    with open_context(create=True) as context:
        accounts, lines = context.accounts, list[SiteLine]()
        with suppress(_UndoneError), accounts.directory.transaction():
            lines = _store_rows(accounts, rows, like)
            raise _UndoneError
        if as_json:
            say_json([line._asdict() for line in lines])
        else:
            print_table(SiteLine._fields, lines, empty="the file names no site")
        if any(line.result == "refused" for line in lines):
            raise typer.Exit(FAILED)
        changes = sum(line.result != "same" for line in lines)
        if dry_run or not changes:
            return
        if not yes:
            confirm(f"Store {changes} sites?", "this changes sites")
        with accounts.directory.transaction():
            if _store_rows(accounts, rows, like) != lines:
                raise Problem("the sites changed meanwhile and nothing was stored: try again")
            if keys:
                new = [line.site for line in lines if line.result == "new"]
                make = partial(accounts.create_key, local_operator(), "script", ["oci:script"])
                made = "".join(f"{site},{make(site=site)[0]}\n" for site in new)
                write_atomically(keys, f"site,key\n{made}".encode(), mode=0o600)


def _read_rows(file: Path) -> list[Row]:
    """The lines with their cells by column, in the order of sites; raises Problem."""
    with file.open("rb") as raw:
        codec = detect_encoding(raw)[1]
    text = file.read_text(codec)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator(text.partition("\n")[0]))
    try:
        [(_, header), *rows] = [(lines.line_num, row) for row in lines if "".join(row).strip()]
        columns = [cell.strip().lower() for cell in header]
        named = [(n, dict(zip(columns, map(str.strip, row), strict=True))) for n, row in rows]
    except (csv.Error, ValueError) as problem:
        raise Problem(f"{file} is no CSV with as many cells in each line: {problem}") from None
    known = ["id", *SITE_COLUMNS, *sorted(_setting_columns())]
    if "id" not in columns or len({*columns}) < len(columns) or not {*columns} <= {*known}:
        raise Problem(f"the first line names columns, id and once any of: {', '.join(known[1:])}")
    return sorted(named, key=lambda row: row[1]["id"])  # the order in which sites are locked


def _store_rows(accounts: Accounts, rows: list[Row], like: str | None) -> list[SiteLine]:
    """Store the sites of these lines, except for those that are refused."""
    lines, times = [], Counter(cells["id"] for _, cells in rows)
    for number, cells in rows:
        result = ("refused", "the file names this site twice")
        if times[cells["id"]] == 1:
            try:
                result = _store_site(accounts, cells["id"], cells, like)
            except Problem as problem:
                result = ("refused", problem.message)
        lines.append(SiteLine(number, cells["id"], *result))
    return sorted(lines)


def _store_site(
    accounts: Accounts, site_id: str, given: dict[str, str], like: str | None
) -> tuple[str, str]:
    """Add or change a site; returns the result and the columns that changed."""
    actor, values = local_operator(), {k: given[k] for k in SITE_COLUMNS if given.get(k)}
    settings: dict[str, dict[str, Any]] = {}
    for column, (workload, parse) in _setting_columns().items():
        if given.get(column):
            settings.setdefault(workload, {})[column] = parse(given[column])
    site, result = accounts.directory.lock_site(site_id), "same"
    changed = [name for name in values if site and getattr(site, name) != values[name]]
    if site is None:
        site, _ = create_site(accounts, workloads(), actor, site_id, like=like, **values)
        result = "new"
    elif changed:
        accounts.set_site(actor, site_id, **values)
    stored = json.loads(site.settings)
    for workload, new in settings.items():
        own = stored.get(workload, {})
        changes = {name: value for name, value in new.items() if own.get(name) != value}
        changed += changes
        if changes:
            accounts.set_site_settings(actor, site_id, workload, changes)
    return ("changed" if changed and result == "same" else result), ", ".join(changed)


@cache
def _setting_columns() -> dict[str, tuple[str, Callable[[str], Any]]]:
    """The settings that workloads read from cells, each with its workload."""
    return {
        column: (name, parse)
        for name, workload in workloads().items()
        for column, parse in (workload.site_settings() if workload.site_settings else {}).items()
    }
