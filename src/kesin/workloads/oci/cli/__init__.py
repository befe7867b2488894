"""`kesin oci …`: conversions from files, a site's health and credentials, the script simulator."""

from collections.abc import Callable
from typing import Final

from kesin.foundation.terminal import format_examples
from kesin.workloads.common.cli import command_group
from kesin.workloads.oci.cli import files, site
from kesin.workloads.oci.cli.script_simulator import simulate_script

COMMANDS: Final[dict[str, tuple[Callable[..., None], str]]] = {  # with an example
    "import": (files.import_conversions, "sales.csv --site ankara"),
    "export-dead-letters": (files.export_dead_letters, "--site ankara -o failed.csv --lang tr"),
    "enqueue-fix": (files.enqueue_fix, "corrected.csv --site ankara --reason 'wrong currency'"),
    "doctor": (site.doctor, "ankara"),
    "credentials": (site.credentials, "ankara --file google.json"),
    "simulate-script": (simulate_script, "--site s1 --url http://localhost:8000 --key-env K"),
}

app = command_group("Upload offline conversions to Google Ads.")

for _name, (_command, _example) in COMMANDS.items():
    app.command(
        _name,
        epilog=format_examples(f"kesin oci {_name} {_example}"),
        context_settings=site.CREDENTIALS_CONTEXT if _command is site.credentials else None,
    )(_command)
