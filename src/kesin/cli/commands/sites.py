"""`kesin site`: the sites, each a tenant whose jobs only its own users and keys see."""

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kesin.cli.support.arguments import AsJson, Yes, argument, confirm, flag, option
from kesin.cli.support.context import local_operator, open_context
from kesin.cli.support.errors import FAILED, UsageError
from kesin.cli.support.records import print_records, record_of
from kesin.engine.access import site_changes
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.sites import site_uuid
from kesin.engine.workload import Workload
from kesin.foundation.files import write_atomically
from kesin.foundation.problems import Problem
from kesin.foundation.terminal import answer, print_table
from kesin.store.directory import Site
from kesin.workloads import workloads
from kesin.workloads.common.columns import detect_encoding, separator

app = typer.Typer(no_args_is_help=True)
SITE_COLUMNS: Final = ("id", "name", "channel", "timezone", "currency")
SHOWN: Final = ("line", "site", "result", "detail")  # the result: new, changed, same or refused
Cells = dict[str, str]  # by column, without those that are empty

SiteId = Annotated[str, argument("SITE", "The site's id; `siteId` over HTTP.")]
Called = Annotated[str | None, option("NAME", "The display name; defaults to the id.", "--name")]
CHANNEL = option("script|api|data_manager", "How the site's conversions reach Google Ads.")
TIMEZONE = option("ZONE", "The time zone of the site's Google Ads account.")
CURRENCY = option("CODE", "The currency of the site's values, as a three-letter code.")


@app.command("add")
def add_site(
    site: SiteId,
    *,
    name: Called = None,
    channel: Annotated[str, CHANNEL] = "script",
    timezone: Annotated[str, TIMEZONE] = "Europe/Istanbul",
    currency: Annotated[str, CURRENCY] = "TRY",
    as_json: AsJson = False,
) -> None:
    """Add a site."""
    with open_context(create=True) as context:
        made = context.accounts.add_site(
            local_operator(), site, name=name, channel=channel, timezone=timezone, currency=currency
        )
    _print_site(made, "added", as_json=as_json)


@app.command("list")
def list_sites(as_json: AsJson = False) -> None:
    """List the sites."""
    with open_context(create=True) as context:
        sites = context.accounts.sites(local_operator())
    print_records(
        [site_record(row) for row in sites],
        SITE_COLUMNS,
        {"id": "site", "timezone": "time zone"},
        as_json=as_json,
        empty="there is no site yet: `kesin site add` creates one",
    )


@app.command("set")
def set_site(
    site: SiteId,
    *,
    name: Annotated[str | None, option("NAME", "The display name.", "--name")] = None,
    channel: Annotated[str | None, CHANNEL] = None,
    timezone: Annotated[str | None, TIMEZONE] = None,
    currency: Annotated[str | None, CURRENCY] = None,
    as_json: AsJson = False,
) -> None:
    """Change a site; settings that are not given stay as they are."""
    if not (name or channel or timezone or currency):
        raise UsageError("nothing to change: give --name, --channel, --timezone or --currency")
    with open_context(create=True) as context:
        changed = context.accounts.set_site(
            local_operator(), site, name=name, channel=channel, timezone=timezone, currency=currency
        )
    _print_site(changed, "changed", as_json=as_json)


@app.command("remove")
def remove_site(site: SiteId, *, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a site with its keys and credentials.

    A site with open jobs cannot be removed. Its jobs and audit lines are kept.
    """
    with open_context() as context:
        commands = context.workload_context(next(iter(workloads().values()))).commands
        found = asdict(site_changes.preview_removal(commands, local_operator(), site))
        if not yes:
            print_table(("what", "found"), [(name, str(found[name] or "—")) for name in found])
            confirm(f"Remove {site}?", "this cannot be undone")
        found = asdict(site_changes.remove_site(commands, local_operator(), site, site))
    answer(found, f"removed {site}", as_json=as_json)


@app.command("import")
def import_sites(
    file: Annotated[Path, argument("FILE", "A CSV file with an id column.")],
    *,
    like: Annotated[str | None, option("SITE", "New sites get the settings of this site.")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would change.")] = False,
    keys: Annotated[Path | None, option("FILE", "Write each new site's key to this file.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Add and change sites from a CSV file.

    The columns are id, name, channel, timezone, currency, customer_id and the names of any oci
    settings. An empty cell changes nothing. If any line is refused, nothing is stored.
    """
    rows = _read_rows(file)
    if keys and keys.exists():
        raise Problem(f"{keys} already exists: name a new file for the keys")
    with open_context(create=True) as context:
        accounts, lines = context.accounts, list[dict[str, Any]]()
        with suppress(typer.Abort), accounts.directory.transaction():
            lines = store_rows(accounts, rows, like)
            raise typer.Abort  # it was a preview
        print_records(lines, SHOWN, {}, as_json=as_json, empty="the file does not name a site")
        results = [line["result"] for line in lines]
        if "refused" in results:
            raise typer.Exit(FAILED)
        if dry_run or {*results} <= {"same"}:
            return
        if not yes:
            confirm("Store these sites?", "this changes sites")
        with accounts.directory.transaction():
            if store_rows(accounts, rows, like) != lines:
                raise Problem("the sites have since changed and nothing was stored: try again")
            if keys:
                new = [line["site"] for line in lines if line["result"] == "new"]
                make = partial(accounts.create_key, local_operator(), scopes=["oci:script"])
                made = "".join(f"{s},{make(f'script of {s}', site=s)[0]}\n" for s in new)
                write_atomically(keys, f"site,key\n{made}".encode(), mode=0o600)


def _read_rows(file: Path) -> list[tuple[int, Cells]]:
    """The lines with their cells, in the order in which sites are locked; raises Problem."""
    with file.open("rb") as raw:
        text = file.read_text(detect_encoding(raw)[1])
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator(text.partition("\n")[0]))
    try:
        [(_, header), *rows] = [(lines.line_num, row) for row in lines if "".join(row).strip()]
        columns = [cell.strip().lower() for cell in header]
        named = [(n, dict(zip(columns, map(str.strip, row), strict=True))) for n, row in rows]
    except (csv.Error, ValueError) as problem:
        raise Problem(f"{file} is not a CSV with lines of equal length: {problem}") from None
    settings = (each.site_settings() for each in workloads().values() if each.site_settings)
    known = [*SITE_COLUMNS, *(name for names in settings for name in names)]
    wrong = [name for name, n in Counter(columns).items() if n > 1 or name not in known]
    if wrong or "id" not in columns:
        bad, names = [*wrong, "id"][0], ", ".join(known)
        raise Problem(f"column {bad!r} is unknown, missing or repeated; known: {names}")
    return sorted(named, key=lambda row: row[1]["id"])


def store_rows(accounts: Accounts, rows: list[tuple[int, Cells]], like: str | None) -> list[dict[str, Any]]:
    """Store the sites of these lines, except for those that are refused; what became of each."""
    lines, times, served = [], Counter(cells["id"] for _, cells in rows), workloads()
    for number, cells in rows:
        result, detail = "refused", "the file names this site twice"
        try:
            if times[cells["id"]] == 1:
                result, detail = _store_site(accounts, served, cells, like)
        except Problem as problem:
            detail = problem.message
        lines.append(dict(zip(SHOWN, (number, cells["id"], result, detail), strict=True)))
    return sorted(lines, key=lambda line: line["line"])


def _store_site(accounts: Accounts, served: Mapping[str, Workload], cells: Cells, like: str | None) -> tuple[str, str]:
    """Add or change a site; returns the result and what changed."""
    actor, site_id, is_new = local_operator(), cells["id"], False
    site = accounts.directory.lock_site(site_id)
    values = {name: cells[name] for name in SITE_COLUMNS[1:] if cells.get(name)}
    changed = [name for name in values if site and getattr(site, name) != values[name]]
    if changed:
        accounts.set_site(actor, site_id, **values)
    if site is None:
        site, is_new = site_changes.create_site(accounts, served, actor, site_id, like=like, **values)
    for workload, each in served.items():
        own = json.loads(site.settings).get(workload, {})
        reads = each.site_settings() if each.site_settings else {}
        given = {name: read(cells[name]) for name, read in reads.items() if cells.get(name)}
        changes = {name: value for name, value in given.items() if own.get(name) != value}
        if changes:
            accounts.set_site_settings(actor, site_id, workload, changes)
        changed += changes
    return ("new" if is_new else "changed" if changed else "same"), ", ".join(changed)


def _print_site(site: Site, done: str, *, as_json: bool) -> None:
    text = f"{done} {site.id} ({site.channel}, {site.timezone}, {site.currency})"
    answer(site_record(site), text, as_json=as_json)


def site_record(site: Site) -> dict[str, Any]:
    names = ("name", "channel", "timezone", "currency", "created_at", "changed_at")
    return {"id": site.id, "uuid": site_uuid(site.id), **record_of(site, *names)}
