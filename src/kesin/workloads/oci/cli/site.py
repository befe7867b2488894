"""`kesin oci doctor`, `stats`, `settings`, `credentials`, `explain`: a site and its connection."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kesin.engine.access.sites import site_uuid
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import iso
from kesin.foundation.encryption import LARGEST_BYTES
from kesin.foundation.problems import Invalid, Problem, Unknown
from kesin.foundation.terminal import print_table, say, say_json, tally, warn
from kesin.store.directory import Site
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.workloads.oci.advice import Advice, Language, advice, codes
from kesin.workloads.oci.cli.context import (
    FAILED,
    AsJson,
    InLanguage,
    SiteArgument,
    open_house,
    operator,
    site_of,
)
from kesin.workloads.oci.google.channels import channels_of
from kesin.workloads.oci.google.connection_check import check_site
from kesin.workloads.oci.google.credentials import Credentials, vault_name
from kesin.workloads.oci.operations import SiteStats, site_stats
from kesin.workloads.oci.site import WORKLOAD, Place, checked, visible

REASONS: Final = 5  # of the latest failures that a doctor explains
_REMEDIES: Final = {
    "FAILED_SHARE_HIGH": "Mend the causes below; `kesin oci export-dead-letters` has every row.",
    "STUCK_PROCESSING": "Is the sweeper running? `kesin sweep` takes them back now.",
    "EXPIRING_SOON": "Get them uploaded: after 90 days Google no longer knows the click.",
    "PAUSED": "`kesin resume oci` hands out rows again.",
    "SCRIPT_SILENT": "Look at the script's history in Google Ads, and at its schedule.",
    "UPLOAD_NOT_TAKEN": "Look at the request in Google, then send rows again with enqueue-fix.",
}
_TURN: Final[dict[Language, tuple[str, dict[str, str]]]] = {
    "en": (
        "Whose turn it is",
        {
            "you": "you, the operator",
            "producer": "whoever sends the data",
            "google_admin": "whoever administers the Google Ads account",
            "nobody": "nobody: it mends itself",
            "us": "the makers of Kesin",
        },
    ),
    "tr": (
        "Sıra kimde",
        {
            "you": "sizde, operatörde",
            "producer": "veriyi gönderende",
            "google_admin": "Google Ads hesabını yönetende",
            "nobody": "kimsede değil: kendiliğinden düzelir",
            "us": "Kesin'i yapanlarda",
        },
    ),
}


def doctor(site: SiteArgument, *, lang: InLanguage = "en", as_json: AsJson = False) -> None:
    """Check whether a site can upload now.

    Shows its settings, counts, warnings and why rows failed lately; then tries token, account and
    conversion action at Google (validateOnly: nothing is recorded), or looks for the script's sign
    of life. If all is well, a breaker that wrong credentials opened closes. Exits with 1 when a
    check fails or there is a warning.
    """
    with open_house() as house:
        place = site_of(house, site, "oci.check")
        stats = site_stats(house, place, house.queue.store.flows(house.queue.name))
        reasons = _reasons(house, place, lang)
        ours = {} if place.channel == "script" else channels_of(house.settings)
        findings = check_site(house, place, ours, language=lang)
        house.commands.accounts.note(operator(), "oci.check", queue=WORKLOAD, site=place.id)
        settings = _settings(house, place)
        told = _record(house, place, stats)
    good = all(one.ok for one in findings) and not stats.warnings
    if as_json:
        say_json(
            {
                "ok": good,
                "settings": settings,
                "stats": told,
                "reasons": reasons,
                "checks": [asdict(one) for one in findings],
            }
        )
    else:
        _print_settings(settings)
        say(f"\n{tally(stats.totals) or 'no conversions yet'}\n")
        breaker = advice(stats.breaker.code, stats.breaker.kind, lang).act
        remedies = {**_REMEDIES, "BREAKER_OPEN": breaker}
        print_table(
            ("", "check", "found", "what to do"),
            [
                *(
                    ("!", one["code"], one["message"], remedies.get(one["code"], ""))
                    for one in stats.warnings
                ),
                *(("✓" if one.ok else "✗", one.name, one.detail, one.advice) for one in findings),
            ],
        )
        if reasons:
            print_table(
                ("failed lately", "rows", "what to do"),
                [(one["code"], one["rows"], one["act"]) for one in reasons],
            )
    if not good:
        raise typer.Exit(FAILED)


def _reasons(house: WorkloadContext, site: Site, language: Language) -> list[dict[str, Any]]:
    """Why the newest dead letters are dead, the most frequent first."""
    where = Filter(states=("FAILED",), tenants=(site.id,))
    newest = house.queue.jobs(where, limit=MAX_PAGE).jobs
    seen = Counter((job.error_code or "", job.error_category or "") for job in newest)
    return [
        {
            "code": code,
            "category": category,
            "rows": rows,
            "act": advice(code, category, language).act,
        }
        for (code, category), rows in seen.most_common(REASONS)
    ]


def stats(
    site: Annotated[
        str | None, typer.Argument(metavar="SITE", help="Only this site; all without.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show how the sites stand.

    How many conversions are in each state, how many are stuck past their lease, which share of the
    finished ones failed, and what deserves a look.
    """
    with open_house() as house:
        flows = house.queue.store.flows(house.queue.name)
        chosen = [site_of(house, site, "oci.stats")] if site else visible(house, operator())
        told = [_record(house, one, site_stats(house, one, flows)) for one in chosen]
    if as_json:
        say_json(told)
        return
    states = list(told[0]["totals"]) if told else []
    print_table(
        ("site", "channel", *map(str.lower, states), "stuck", "failed %", "breaker", "warnings"),
        [
            (
                one["site"],
                one["channel"],
                *one["totals"].values(),
                one["stuck"],
                round(100 * one["failed_share"], 1),
                one["breaker"],
                ", ".join(warning["code"] for warning in one["warnings"]),
            )
            for one in told
        ],
        empty="there is no site yet: `kesin site add` makes one",
    )


def _record(house: WorkloadContext, site: Site, stats: SiteStats) -> dict[str, Any]:
    breaker = None if site.channel == "script" else stats.breaker.state(house.queue.now())
    return {
        "site": site.id,
        "channel": site.channel,
        "totals": stats.totals,
        "stuck": stats.stuck,
        "failed_share": round(stats.failed_share, 4),
        "oldest_queued_at": iso(stats.oldest_queued_at),
        "expiring_soon": stats.expiring_soon,
        "last_updated_at": iso(stats.last_updated_at),
        "last_ack_at": iso(stats.last_ack_at),
        "breaker": breaker,
        "warnings": stats.warnings,
    }


def settings(
    site: SiteArgument,
    *,
    recover_minutes: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="A script's claim lasts so long, 15 if unset; 45 for slow scripts."
        ),
    ] = None,
    silent_hours: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Warn when its script is silent so long; 0 goes back to KESIN_OCI_SILENT_HOURS.",
        ),
    ] = None,
    conversion_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The action of rows that name none; '' takes it away."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings of a site, or change them.

    Channel, time zone and currency are changed with `kesin site set`.
    """
    changes: dict[str, Any] = {}
    if recover_minutes is not None:
        changes["recover_minutes"] = recover_minutes
    if silent_hours is not None:
        changes["silent_hours"] = silent_hours or None
    if conversion_name is not None:
        changes["conversion_name"] = conversion_name.strip() or None
    with open_house() as house:
        place = site_of(house, site, "site.set")
        if changes:
            accounts = house.commands.accounts
            accounts.set_site_settings(operator(), place.id, WORKLOAD, checked(changes))
            place = site_of(house, place.id, "site.set")
        told = _settings(house, place)
    if as_json:
        say_json(told)
    else:
        _print_settings(told)


def _settings(house: WorkloadContext, site: Site) -> dict[str, Any]:
    kept = Place.of(site)
    secret = house.commands.accounts.directory.secret(vault_name(site.id))
    return {
        "site": site.id,
        "uuid": site_uuid(site.id),
        "name": site.name,
        "channel": site.channel,
        "timezone": site.timezone,
        "currency": site.currency,
        "recover_minutes": kept.recover_minutes,
        "silent_hours": kept.silent_hours or house.settings.oci_silent_hours,
        "conversion_name": kept.conversion_name or None,
        "credentials_changed_at": iso(secret.changed_at) if secret else None,
    }


def _print_settings(told: dict[str, Any]) -> None:
    print_table(("setting", "value"), [(name.replace("_", " "), told[name]) for name in told])


# What else is on the line may be a secret: it must come here, not into an error message.
_SITE: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
CREDENTIALS_CONTEXT: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


def credentials(
    context: typer.Context,
    site: SiteArgument,
    *,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read the document here, not from standard input."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Forget what is kept.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep a site's Google credentials, sealed.

    A JSON document with customer_id, client_id, client_secret, refresh_token,
    conversion_action_resource_name and maybe developer_token and login_customer_id, from a file or
    standard input: never from the command line, which others can see. It replaces what was kept
    and is never shown again. Needs KESIN_SECRET_KEYS; `kesin oci doctor` tries it at Google.
    """
    if context.args or not _SITE.fullmatch(site):
        raise Invalid(
            "credentials come from --file or standard input, not from the command line; nothing "
            "was kept, and if that was a secret, others may have seen it"
        )
    if drop and file:
        raise Invalid("--drop forgets credentials and --file keeps some: give one of them")
    with open_house() as house:
        place = site_of(house, site, "oci.credentials")
        if drop:
            _drop(house, place)
        else:
            house.vault.keys()  # before anything is asked for
            kept = Credentials.read(_document(file))
            house.vault.put(operator(), vault_name(place.id), kept.sealed_text())
    if as_json:
        say_json({"site": place.id, "kept": not drop})
        return
    say(f"dropped the credentials of {place.id}" if drop else f"kept, for {place.id}")
    if not drop and place.channel == "script":
        warn(f"they are used after `kesin site set {place.id} --channel api`: now it has a script")
    elif not drop:
        warn(f"`kesin oci doctor {place.id}` tries them at Google")


def _drop(house: WorkloadContext, site: Site) -> None:
    try:
        house.vault.drop(operator(), vault_name(site.id))
    except Unknown:
        raise Unknown(f"there are no credentials of {site.id}") from None


def _document(file: Path | None) -> dict[str, Any]:
    """What somebody wrote; no error repeats any of it."""
    if file is None and sys.stdin.isatty():
        raise Invalid("give the document with --file FILE or on standard input")
    with file.open("rb") if file else nullcontext(sys.stdin.buffer) as source:
        raw = source.read(LARGEST_BYTES + 1)
    try:
        given = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or len(raw) > LARGEST_BYTES:
        raise Problem(
            f"the document must be a JSON object of at most {LARGEST_BYTES} bytes: "
            '{"customer_id": "123-456-7890", "client_id": …}; nothing was kept'
        )
    return given


def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="An error code, as rows have it.")],
    *,
    lang: InLanguage = "en",
    as_json: AsJson = False,
) -> None:
    """Say what an error code means and what to do."""
    known = {one.casefold(): one for one in codes()}
    found = advice(known.get(code.casefold(), code), None, lang)
    if _is_general(found, lang):
        from difflib import get_close_matches

        near = get_close_matches(code.casefold(), list(known), n=1, cutoff=0.5)
        meant = f": did you mean {known[near[0]]}?" if near else ""
        raise Unknown(f"nobody has written about the code {code!r}{meant}")
    if as_json:
        say_json(asdict(found))
        return
    say(found.code)
    for text in (found.means, found.act, found.next):
        say(f"  {text}")
    turn, who = _TURN[lang]
    say(f"  {turn}: {who[found.who]}.")


def _is_general(found: Advice, language: Language) -> bool:
    return found.means == advice(None, None, language).means
