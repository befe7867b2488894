"""The commands: a module for each command or group of commands, and the table that names them."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple


class ListedCommand(NamedTuple):
    """A command or group of commands, as the help lists it without loading its module."""

    place: str  # module:attribute, below kesin.cli
    summary: str  # the first sentence of its help
    examples: Sequence[str] | Mapping[str, Sequence[str]]  # those of a group by command


_TABLE: Final = Path(__file__).with_name("commands.toml").read_text("utf-8")
COMMANDS: Final = {name: ListedCommand(**row) for name, row in tomllib.loads(_TABLE).items()}
