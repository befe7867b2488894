"""`kesin oci …`: conversions from files, a site's health and credentials, the script played."""

from __future__ import annotations

import sys

import typer

from kesin.workloads.oci.cli_files import enqueue_fix, export_dead_letters, import_conversions
from kesin.workloads.oci.cli_script import simulate_script
from kesin.workloads.oci.cli_site import (
    CREDENTIALS_CONTEXT,
    credentials,
    doctor,
    explain,
    settings,
    stats,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Offline conversions to Google Ads.",
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
)

app.command("import")(import_conversions)
app.command("export-dead-letters")(export_dead_letters)
app.command("enqueue-fix")(enqueue_fix)
app.command("stats")(stats)
app.command("doctor")(doctor)
app.command("settings")(settings)
app.command("credentials", context_settings=CREDENTIALS_CONTEXT)(credentials)
app.command("explain")(explain)
app.command("simulate-script")(simulate_script)
