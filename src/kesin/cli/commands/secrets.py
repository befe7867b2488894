"""`kesin secrets`: the keys that seal the credentials of workers; the database holds none."""

from typing import Annotated

import typer

from kesin.cli.support.arguments import AsJson, option
from kesin.cli.support.context import local_operator, open_context
from kesin.cli.support.errors import FAILED
from kesin.cli.support.records import record_of
from kesin.engine.access.vault import Vault
from kesin.foundation import encryption, terminal
from kesin.foundation.encryption import key_ring

app = typer.Typer(no_args_is_help=True)


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


@app.command("rotate")
def rotate_secrets(as_json: AsJson = False) -> None:
    """Seal all secrets with the first key.

    Safe to run twice, at once and while secrets change. Tells which could not be opened, and exits
    with 1 if any other key is still needed.
    """
    with open_context(create=False) as context:
        vault = Vault(context.accounts, key_ring(context.settings))
        done, key = vault.rotate(local_operator()), vault.keys().first
    if as_json:
        unopened = [record_of(secret, "name", "key", "code") for secret in done.unopened]
        record = record_of(done, "resealed", "current", "busy")
        terminal.say_json({"key": key, **record, "unopened": unopened})
    else:
        terminal.say(f"{done.resealed} sealed again with {key}, {done.current} already under it")
        for secret in done.unopened:
            missing = f"its key {secret.key!r} is not in KESIN_SECRET_KEYS"
            whys = {"secret_key_missing": missing, "secret_altered": "it is not what was sealed"}
            why = whys.get(secret.code, secret.code)
            terminal.warn(f"{terminal.visible(secret.name)} was left as it is: {why}")
        if done.busy:
            terminal.warn(f"{done.busy} changed meanwhile: run it again")
    if not done.complete:
        raise typer.Exit(FAILED)
