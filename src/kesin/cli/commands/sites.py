"""`kesin site`: the sites, each a tenant whose jobs only its own users and keys see."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from kesin.cli.commands.site_import import import_sites
from kesin.cli.support.arguments import AsJson, Yes, argument, confirm, option
from kesin.cli.support.context import local_operator, open_context
from kesin.cli.support.errors import UsageError
from kesin.cli.support.records import print_records, record_of
from kesin.engine.access import site_changes
from kesin.engine.access.sites import site_uuid
from kesin.foundation.terminal import answer, print_table
from kesin.store.directory import Site
from kesin.workloads import workloads

app = typer.Typer(no_args_is_help=True)

SiteId = Annotated[str, argument("SITE", "The site's id, in every path.")]
Called = Annotated[str | None, option("NAME", "What people call it; its id if unset.", "--name")]
CHANNEL = option("script|api|data_manager", "How its conversions reach Google Ads.")
TIMEZONE = option("ZONE", "The time zone of its account.")
CURRENCY = option("CODE", "The currency of its values, three letters.")


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
        ("id", "name", "channel", "timezone", "currency"),
        {"id": "site", "timezone": "time zone"},
        as_json=as_json,
        empty="there is no site yet: `kesin site add` makes one",
    )


@app.command("set")
def set_site(
    site: SiteId,
    *,
    name: Annotated[str | None, option("NAME", "What people call it.", "--name")] = None,
    channel: Annotated[str | None, CHANNEL] = None,
    timezone: Annotated[str | None, TIMEZONE] = None,
    currency: Annotated[str | None, CURRENCY] = None,
    as_json: AsJson = False,
) -> None:
    """Change a site; what is not named stays."""
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

    Refused while it has open jobs. Its jobs and audit lines stay.
    """
    with open_context() as context:
        commands = context.workload_context(next(iter(workloads().values()))).commands
        found = asdict(site_changes.preview_removal(commands, local_operator(), site))
        if not yes:
            print_table(("what", "found"), [(name, str(found[name] or "—")) for name in found])
            confirm(f"Remove {site}?", "this cannot be undone")
        found = asdict(site_changes.remove_site(commands, local_operator(), site, site))
    answer(found, f"removed {site}", as_json=as_json)


app.command("import")(import_sites)


def _print_site(site: Site, done: str, *, as_json: bool) -> None:
    text = f"{done} {site.id} ({site.channel}, {site.timezone}, {site.currency})"
    answer(site_record(site), text, as_json=as_json)


def site_record(site: Site) -> dict[str, Any]:
    """A site as scripts read it."""
    names = ("name", "channel", "timezone", "currency", "created_at", "changed_at")
    return {"id": site.id, "uuid": site_uuid(site.id), **record_of(site, *names)}
