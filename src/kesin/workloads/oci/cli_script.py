"""`kesin oci simulate-script`: the Google Ads script played against a running server."""

from __future__ import annotations

import os
import random
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from kesin.foundation.problems import Invalid, Problem
from kesin.foundation.terminal import print_table, say, say_json, warn
from kesin.workloads.oci.cli_desk import AsJson, SiteOption
from kesin.workloads.oci.export import MOST
from kesin.workloads.oci.simulate import (
    CRASHES,
    Crash,
    Ran,
    ScriptSimulator,
    checked_url,
    is_loopback,
)

MOST_RUNS: Final = 1_000
_MOST_KEY_BYTES: Final = 1_000
_NEVER: Final = "it acknowledges rows that never went to Google: they count as delivered ever after"


def simulate_script(
    *,
    site: SiteOption,
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where `kesin serve` is, http://127.0.0.1:8000.")
    ],
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="A file with a key for oci:script."),
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Or the environment variable that holds it."),
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, max=MOST_RUNS, metavar="N", help="Run so many times.")
    ] = 1,
    crash: Annotated[
        list[str] | None,
        typer.Option(
            metavar="after-export|after-upload|before-ack",
            help="Die there; repeatable: the first is for the first run, and so on.",
        ),
    ] = None,
    fail_share: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Of the rows, report as failed.")
    ] = 0.1,
    upload_error_share: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Of the uploads, let throw.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same runs.")] = 1,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Rows of one export.")
    ] = MOST,
    yes_really: Annotated[
        bool, typer.Option("--yes-really", help="Also against another machine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play the Google Ads script, for tests only.

    Against a running server: it takes rows over HTTP, uploads nothing, and acknowledges them all
    the same, so whatever it touches is lost for Google. It fails and crashes as told: what a
    crashed run held comes back when its claim has run out. Refuses every server but one on this
    machine.
    """
    base = checked_url(url)
    if not is_loopback(base) and not yes_really:
        raise Invalid(f"{base} is another machine, and {_NEVER}; --yes-really does it")
    crashes = [_crash(one) for one in crash or ()]
    if len(crashes) > runs:
        raise Invalid(f"{len(crashes)} crashes need as many runs: --runs {len(crashes)}")
    key = _key(key_file, key_env)
    warn(f"this is no script of Google's: {_NEVER}")
    script = ScriptSimulator(
        base,
        site,
        key,
        chance=random.Random(seed),
        fail_share=fail_share,
        upload_error_share=upload_error_share,
        limit=limit,
    )
    done = [script.run(crashes[n] if n < len(crashes) else None) for n in range(runs)]
    if as_json:
        uploaded = {"conversions": len(script.uploaded), "more_than_once": script.twice}
        say_json({"runs": [asdict(one) for one in done], "uploaded": uploaded})
        return
    _print(done)
    told = f"{len(script.uploaded)} conversions would be at Google, {script.twice} of them sent"
    say(f"{told} more than once under the same orderId, which Google counts once")


def _crash(word: str) -> Crash:
    for one in CRASHES:
        if one == word:
            return one
    raise Invalid(f"a script dies {', '.join(CRASHES[:-1])} or {CRASHES[-1]}, not {word!r}")


def _print(done: list[Ran]) -> None:
    print_table(
        ("run", "exported", "acked", "failed", "refused", "end"),
        [
            (
                number,
                one.exported,
                one.acked,
                one.failed,
                one.refused,
                f"crashed {one.crashed}" if one.crashed else "paused" if one.paused else "well",
            )
            for number, one in enumerate(done, 1)
        ],
    )


def _key(file: Path | None, variable: str | None) -> str:
    if (file is None) == (variable is None):
        raise Invalid(
            "say where the key is, with --key-file or --key-env; "
            "`kesin key create --scope oci:script --site SITE` makes one"
        )
    if file is not None:
        with file.open("rb") as source:
            key = source.read(_MOST_KEY_BYTES).decode("utf-8", "replace").strip()
    else:
        key = os.environ.get(variable or "", "").strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        where = file if file is not None else f"the variable {variable}"
        raise Problem(f"there is no key in {where}")
    return key
