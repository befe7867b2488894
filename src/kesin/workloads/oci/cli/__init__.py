"""`kesin oci …`: conversions from files, a site's health and credentials, the script simulator."""

from __future__ import annotations

from kesin.foundation.terminal import format_examples
from kesin.workloads.common.cli import command_group
from kesin.workloads.oci.cli.files import enqueue_fix, export_dead_letters, import_conversions
from kesin.workloads.oci.cli.script_simulator import simulate_script
from kesin.workloads.oci.cli.site import (
    CREDENTIALS_CONTEXT,
    credentials,
    doctor,
    explain,
    settings,
    stats,
)

app = command_group("Take offline conversions to Google Ads.")

app.command(
    "import", epilog=format_examples("kesin oci import sales.csv --site ankara --rejects bad.csv")
)(import_conversions)
app.command(
    "export-dead-letters",
    epilog=format_examples("kesin oci export-dead-letters --site ankara -o failed.csv --lang tr"),
)(export_dead_letters)
app.command(
    "enqueue-fix",
    epilog=format_examples(
        "kesin oci enqueue-fix mended.csv --site ankara --reason 'wrong currency'"
    ),
)(enqueue_fix)
app.command("stats", epilog=format_examples("kesin oci stats", "kesin oci stats ankara --json"))(
    stats
)
app.command("doctor", epilog=format_examples("kesin oci doctor ankara"))(doctor)
app.command(
    "settings",
    epilog=format_examples(
        "kesin oci settings ankara", "kesin oci settings ankara --recover-minutes 45"
    ),
)(settings)
app.command(
    "credentials",
    epilog=format_examples("kesin oci credentials ankara --file google.json"),
    context_settings=CREDENTIALS_CONTEXT,
)(credentials)
app.command("explain", epilog=format_examples("kesin oci explain EXPIRED_EVENT --lang tr"))(explain)
app.command(
    "simulate-script",
    epilog=format_examples(
        "kesin oci simulate-script --site s1 --url http://localhost:8000 --key-env K"
    ),
)(simulate_script)
