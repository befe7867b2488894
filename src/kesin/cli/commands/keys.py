"""`kesin key`: the API keys of machines. A key is shown once, when it is created."""

from typing import Annotated, Any

import typer

from kesin.cli.support.arguments import AsJson, argument, flag, option
from kesin.cli.support.context import local_operator, open_context
from kesin.cli.support.errors import check_choice
from kesin.cli.support.records import print_records, record_of
from kesin.foundation.passwords import key_id_of
from kesin.foundation.permissions import SCOPES
from kesin.foundation.terminal import answer, warn
from kesin.store.directory import ApiKey

app = typer.Typer(no_args_is_help=True)


@app.command("create")
def create_key(
    *,
    name: Annotated[str, option("NAME", "What the key is for.")],
    scope: Annotated[
        list[str], option("SCOPE", f"What the key allows: {', '.join(SCOPES[:-1])} or {SCOPES[-1]}; repeatable.")
    ],
    site: Annotated[
        str | None,
        option(
            "SITE", "Only this site; defaults to all sites. Cannot be combined with pdf, optiplan, metrics or admin."
        ),
    ] = None,
    all_sites: Annotated[bool, flag("--all-sites", "All sites, for a manager script.")] = False,
    days: Annotated[int | None, option("N", "Days until the key expires; by default, it never does.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once.

    Kesin stores only a hash of the key. A key with oci:ingest or oci:script belongs to one site.
    """
    for word in scope:
        check_choice("scope", word, SCOPES)
    with open_context(create=True) as context:
        key, stored = context.accounts.create_key(
            local_operator(), name, scope, site=site, all_sites=all_sites, days=days
        )
    answer({"key": key, "id": stored.id}, key, as_json=as_json)
    if not as_json:
        warn(f"store the key now: it is not shown again; `kesin key revoke {stored.id}` revokes it")


@app.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List the keys, including revoked and expired ones.

    The list does not contain the keys themselves, which Kesin does not store.
    """
    with open_context(create=True) as context:
        accounts = context.accounts
        now = accounts.now()
        keys = accounts.keys(local_operator())
    print_records(
        [key_record(key, now) for key in keys],
        ("id", "name", "scopes", "site", "state", "created_by", "used_at", "expires_at"),
        {"created_by": "created by", "used_at": "last used", "expires_at": "expires"},
        as_json=as_json,
        empty="there is no key yet: `kesin key create` creates one",
    )


@app.command("revoke")
def revoke_key(key_id: Annotated[str, argument("ID", "The key's id, from the list.")], as_json: AsJson = False) -> None:
    """Revoke a key immediately and permanently."""
    with open_context(create=True) as context:
        ended = context.accounts.revoke_key(local_operator(), key_id)
    shown_id = key_id_of(key_id) or key_id
    text = f"revoked {shown_id}" if ended else f"{shown_id} was already revoked"
    answer({"id": shown_id, "revoked": ended}, text, as_json=as_json)


def key_record(key: ApiKey, now: int) -> dict[str, Any]:
    """A key as scripts read it, without the secret."""
    is_over = key.expires_at is not None and key.expires_at <= now
    return {
        **record_of(key, "id", "name", "scopes", "site"),
        "state": "revoked" if key.revoked_at is not None else "expired" if is_over else "valid",
        **record_of(key, "created_at", "created_by", "used_at", "expires_at", "revoked_at"),
    }
