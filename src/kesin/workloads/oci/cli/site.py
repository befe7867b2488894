"""`kesin oci doctor`, `credentials`: a site and its connection; what all commands share."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kesin.engine.access.sites import site_uuid
from kesin.foundation import terminal
from kesin.foundation.clock import iso
from kesin.foundation.encryption import MAX_SECRET_BYTES
from kesin.foundation.problems import Invalid, NotFound, Problem
from kesin.foundation.terminal import argument, flag, option, print_table, say, say_json, warn
from kesin.foundation.text import decode_json
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.workloads.common.advice import Language
from kesin.workloads.common.cli import FAILED, JsonOption, local_operator, open_workload
from kesin.workloads.oci.google.circuit_breaker import seal_credentials
from kesin.workloads.oci.google.connection_check import check_site
from kesin.workloads.oci.google.credentials import vault_name
from kesin.workloads.oci.lifecycle import ADVICE, DECISIONS
from kesin.workloads.oci.operations import SiteStats
from kesin.workloads.oci.site import WORKLOAD, SiteContext, require_site

SiteArgument = Annotated[str, argument("SITE", "The site's id or dashed uuid.")]
SiteOption = Annotated[str, option("SITE", "The site's id or dashed uuid.", "--site")]
LanguageOption = Annotated[Language, option("en|tr", "The language of the advice.", "--lang")]
MAX_REASONS: Final = 5  # of recent failures that `doctor` explains


@contextmanager
def open_site(name: str, action: str) -> Iterator[SiteContext]:
    """Open an existing store, with the site of this id or uuid; NotFound says how to add one."""
    with open_workload(WORKLOAD, made_by="create it with `kesin site add`") as context:
        yield require_site(context, local_operator(), name, "read", action=action)


def doctor(site: SiteArgument, *, lang: LanguageOption = "en", as_json: JsonOption = False) -> None:
    """Check whether a site can upload.

    Shows the site's settings, counts and warnings, and why rows failed recently. Then tests the
    token, the account and the conversion action with Google (validateOnly: nothing is recorded), or
    checks when the script last reported. If every check passes, uploads that stopped because of
    wrong credentials resume. Exits with 1 if a check fails or there is a warning.
    """
    with open_site(site, "oci.check") as found:
        stats = SiteStats(found)
        reasons = _failure_reasons(found, lang)
        findings = check_site(found, language=lang)
        found.note(local_operator(), "oci.check")
        settings = _settings_record(found)
    ok = all(finding.ok for finding in findings) and not stats.warnings
    if as_json:
        counts = {"site": found.id, "channel": found.channel, **stats.record()}
        record = {"ok": ok, "settings": settings, "stats": counts}
        checks = [asdict(finding) for finding in findings]
        say_json({**record, "reasons": reasons, "checks": checks})
    else:
        shown = [(name.replace("_", " "), value) for name, value in settings.items()]
        print_table(("setting", "value"), shown)
        say(f"\n{terminal.format_counts(stats.totals) or 'no conversions yet'}\n")
        warned = [("!", each["code"], each["message"], stats.advice(each["code"], lang).act) for each in stats.warnings]
        signs = {True: "✓", False: "✗"}
        checked = [(signs[each.ok], each.name, each.detail, each.advice) for each in findings]
        print_table(("", "check", "found", "what to do"), [*warned, *checked])
        if reasons:
            lines = [(reason["code"], reason["rows"], reason["act"]) for reason in reasons]
            print_table(("failed recently", "rows", "what to do"), lines)
    if not ok:
        raise typer.Exit(FAILED)


def _failure_reasons(site: SiteContext, language: Language) -> list[dict[str, Any]]:
    """The reasons of the newest failures, the most frequent first."""
    where = Filter(states=("FAILED",), tenants=(site.id,))
    newest = site.queue.jobs(where, limit=MAX_PAGE).jobs
    failed = (job for job in newest if job.error_code not in DECISIONS)  # those need no one
    counts = Counter((job.error_code or "", job.error_category or "") for job in failed)
    reasons = []
    for (code, category), rows in counts.most_common(MAX_REASONS):
        act = ADVICE.find(code, category, language).act
        reasons.append({"code": code, "category": category, "rows": rows, "act": act})
    return reasons


def _settings_record(site: SiteContext) -> dict[str, Any]:
    secret = site.context.commands.accounts.directory.secret(vault_name(site.id))
    return {
        "site": site.id,
        "uuid": site_uuid(site.id),
        "name": site.record.name,
        "channel": site.channel,
        "timezone": site.record.timezone,
        "currency": site.record.currency,
        **{name: None if value == "" else value for name, value in asdict(site.settings).items()},
        "silent_hours": site.silent_hours,
        "actions": ", ".join(action.name for action in site.settings.actions) or None,
        "credentials_changed_at": iso(secret.changed_at) if secret else None,
    }


# Extra arguments may be secrets: the command takes them, so that no error message repeats them.
_SITE_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
CREDENTIALS_CONTEXT: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
_DOCUMENT: Final = "The document; defaults to standard input."


def credentials(
    ctx: typer.Context,
    site: SiteArgument,
    *,
    file: Annotated[Path | None, option("FILE", _DOCUMENT)] = None,
    drop: Annotated[bool, flag("--drop", "Delete the stored credentials.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Seal and store a site's Google credentials.

    The credentials are a JSON document with customer_id, client_id, client_secret, refresh_token,
    conversion_action_resource_name, and optionally developer_token and login_customer_id. They are
    read from a file or standard input, because other users can see command lines. They replace the
    stored credentials and are never shown again. The command needs KESIN_SECRET_KEYS; `kesin oci
    doctor` tests the credentials with Google.
    """
    if ctx.args or not _SITE_PATTERN.fullmatch(site):
        raise Invalid(
            "credentials are read from --file or standard input, not from the command line; "
            "nothing was stored, and if the argument was a secret, others may have seen it"
        )
    if drop and file:
        raise Invalid("--drop deletes credentials and --file stores them: give only one of them")
    with open_site(site, "oci.credentials") as found:
        if drop:
            try:
                found.context.vault.drop(local_operator(), vault_name(found.id))
            except NotFound:
                raise NotFound(f"no credentials are stored for {found.id}") from None
        else:
            found.context.vault.keys()  # fails here if there is no key, before the input is read
            seal_credentials(found, local_operator(), _read_document(file))
    if as_json:
        say_json({"site": found.id, "kept": not drop})
        return
    say(f"{'deleted' if drop else 'stored'} the credentials of {found.id}")
    if not drop and found.channel == "script":
        command = f"kesin site set {found.id} --channel api"
        warn(f"the site uses a script: run `{command}` to use the credentials")
    elif not drop:
        warn(f"`kesin oci doctor {found.id}` tests them with Google")


def _read_document(file: Path | None) -> dict[str, Any]:
    """Read the credentials document; no error repeats any of it."""
    if file is None and sys.stdin.isatty():
        raise Invalid("give the document with --file FILE or on standard input")
    with file.open("rb") if file else nullcontext(sys.stdin.buffer) as source:
        raw = source.read(MAX_SECRET_BYTES + 1)
    document = decode_json(raw.decode("utf-8-sig", "replace"))
    if not isinstance(document, dict) or len(raw) > MAX_SECRET_BYTES:
        raise Problem(
            f"the document must be a JSON object of at most {MAX_SECRET_BYTES} bytes: "
            '{"customer_id": "123-456-7890", "client_id": …}; nothing was stored'
        )
    return document
