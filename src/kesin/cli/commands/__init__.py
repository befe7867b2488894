"""The commands: a module for each command or group of commands, and the table that names them."""

from __future__ import annotations

from typing import Final, NamedTuple


class ListedCommand(NamedTuple):
    """A command or group of commands, as the help lists it without loading its module."""

    place: str  # module:attribute, below kesin.cli
    summary: str  # the first sentence of its help
    examples: tuple[str, ...] = ()  # those of a group are in its module


COMMANDS: Final = {
    "serve": ListedCommand(
        "commands.serve:serve",
        "Serve the API, work and sweep, until SIGTERM or Ctrl-C.",
        ("kesin serve", "kesin serve --host 0.0.0.0 --port 8080", "kesin serve --no-workers"),
    ),
    "migrate": ListedCommand(
        "commands.store:migrate",
        "Bring the database up to date.",
        ("kesin migrate --dry-run", "kesin migrate"),
    ),
    "stats": ListedCommand(
        "commands.stats:stats",
        "Count jobs by queue and state.",
        ("kesin stats", "kesin stats emails --watch --interval 5"),
    ),
    "enqueue": ListedCommand(
        "commands.queues:enqueue",
        "Put a job into a queue, or many.",
        (
            'kesin enqueue emails \'{"to": "ada@example.org"}\' --lifecycle task',
            "kesin enqueue emails - --tenant ankara < payloads.ndjson",
        ),
    ),
    "worker": ListedCommand(
        "commands.worker:worker",
        "Run a handler over queues.",
        (
            "kesin worker emails --handler mails.tasks:send --threads 8",
            "kesin worker pdf pdf_batches pdf_webhooks --processes 2",
        ),
    ),
    "sweep": ListedCommand(
        "commands.sweep:sweep", "Make the clock's moves.", ("kesin sweep", "kesin sweep --every 60")
    ),
    "pause": ListedCommand(
        "commands.queues:pause",
        "Hand out no more jobs of a queue.",
        (
            "kesin pause emails --reason 'the server is being moved'",
            "kesin pause oci --tenant ankara",
        ),
    ),
    "resume": ListedCommand(
        "commands.queues:resume", "Hand out jobs again.", ("kesin resume emails",)
    ),
    "backup": ListedCommand(
        "commands.backup:backup",
        "Write a backup into a new folder.",
        ("kesin backup /backups/monday",),
    ),
    "restore": ListedCommand(
        "commands.backup:restore",
        "Put a backup where the settings say.",
        ("kesin restore /backups/monday --check", "kesin restore /backups/monday --replace"),
    ),
    "simulate": ListedCommand(
        "commands.simulate:simulate",
        "Run queues under an adversary, and check every step.",
        ("kesin simulate task --seed 7 --steps 100000",),
    ),
    "doctor": ListedCommand(
        "commands.doctor:doctor",
        "Check everything Kesin needs here.",
        ("kesin doctor", "kesin doctor --json"),
    ),
    "demo": ListedCommand(
        "demo:demo",
        "Run the service with demonstration data.",
        ("kesin demo", "kesin demo --for 60 --keep"),
    ),
    "jobs": ListedCommand("commands.jobs:app", "Look at jobs and move them."),
    "lifecycle": ListedCommand("commands.lifecycle:app", "Show and prove the rules jobs move by."),
    "audit": ListedCommand(
        "commands.audit:app", "Check and export the append-only history, and see who did what."
    ),
    "user": ListedCommand("commands.users:app", "Manage the people who sign in."),
    "key": ListedCommand("commands.keys:app", "Manage the keys of machines."),
    "site": ListedCommand("commands.sites:app", "Manage sites, the tenants of jobs."),
    "secrets": ListedCommand(
        "commands.secrets:app", "Keep credentials sealed, and rotate the keys."
    ),
    "store": ListedCommand("commands.store:app", "Take queues from one store to another."),
}
