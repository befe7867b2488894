"""`kesin secrets`: the credentials workers use, sealed with keys the database does not hold."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from kesin.cli.support.arguments import AsJson, argument, option
from kesin.cli.support.context import local_operator, open_context
from kesin.cli.support.errors import FAILED, CommandError, UsageError
from kesin.cli.support.records import print_records, record_of
from kesin.engine.access.vault import Rotation, Vault
from kesin.foundation import encryption, terminal
from kesin.foundation.encryption import MAX_SECRET_BYTES, key_ring
from kesin.foundation.permissions import Actor

app = typer.Typer(no_args_is_help=True)

SecretName = Annotated[str, argument("NAME", "The secret's name.")]


@app.command("new-key")
def new_key(
    name: Annotated[str | None, option("NAME", "The key's name; made up if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, once.

    The line is an entry of KESIN_SECRET_KEYS. Nothing is stored. Put it before the other entries
    to seal with it from now on, and keep those until `kesin secrets rotate` has run.
    """
    entry = encryption.new_key(name)
    record = {"name": entry.partition(":")[0], "entry": entry}
    terminal.answer(record, entry, as_json=as_json)


@app.command("list")
def list_secrets(as_json: AsJson = False) -> None:
    """Show the names of all secrets, never the values."""
    with _open_vault() as (vault, actor):
        secrets = vault.list_secrets(actor)
    names = ("name", "key", "opens", "changed_at", "changed_by")
    records = [record_of(secret, *names) for secret in secrets]
    headings = {"changed_at": "changed", "changed_by": "by"}
    print_records(records, names, headings, as_json=as_json, empty="there are no secrets")


@app.command("put", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def put_secret(context: typer.Context, name: SecretName) -> None:
    """Keep a value under a name.

    The value is asked for, or read from standard input to its end, without a last line break. It
    is not taken from the command line, which other users and the shell's history can see.
    """
    if context.args:
        raise UsageError(
            "a secret's value is read from standard input or asked for, not taken from the command "
            "line; nothing was kept, and if that was the value, others may have seen it"
        )
    with _open_vault(create=True) as (vault, actor):
        vault.keys()
        vault.put(actor, name, _read_value())
    terminal.say(f"kept {name}")


@app.command("drop")
def drop_secret(name: SecretName) -> None:
    """Forget a secret."""
    with _open_vault() as (vault, actor):
        vault.drop(actor, name)
    terminal.say(f"dropped {name}")


@app.command("rotate")
def rotate_secrets(as_json: AsJson = False) -> None:
    """Seal all secrets with the first key.

    Safe to run twice, at once and while secrets change. Tells which could not be opened, and exits
    with 1 if any other key is still needed.
    """
    with _open_vault() as (vault, actor):
        done = vault.rotate(actor)
        key = vault.keys().first
    if as_json:
        unopened = [record_of(secret, "name", "key", "code") for secret in done.unopened]
        record = record_of(done, "resealed", "current", "busy")
        terminal.say_json({"key": key, **record, "unopened": unopened})
    else:
        _print_rotation(done, key)
    if not done.complete:
        raise typer.Exit(FAILED)


def _print_rotation(done: Rotation, key: str) -> None:
    terminal.say(f"{done.resealed} sealed again with {key}, {done.current} already under it")
    for secret in done.unopened:
        missing = f"its key {secret.key!r} is not in KESIN_SECRET_KEYS"
        whys = {"secret_key_missing": missing, "secret_altered": "it is not what was sealed"}
        why = whys.get(secret.code, secret.code)
        terminal.warn(f"{terminal.visible(secret.name)} was left as it is: {why}")
    if done.busy:
        terminal.warn(f"{done.busy} changed meanwhile: run it again")


def _read_value() -> str:
    if sys.stdin.isatty():
        typed: str = typer.prompt("value", hide_input=True, err=True)
        return typed
    raw = sys.stdin.buffer.read(MAX_SECRET_BYTES + len(b"\r\n") + 1)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise CommandError(
            f"the value must be UTF-8 text of at most {MAX_SECRET_BYTES} bytes; nothing was kept"
        ) from None
    return text.removesuffix("\r\n" if text.endswith("\r\n") else "\n")


@contextmanager
def _open_vault(*, create: bool = False) -> Iterator[tuple[Vault, Actor]]:
    with open_context(create=create) as context:
        yield Vault(context.accounts, key_ring(context.settings)), local_operator()
