"""The commands: a module for each command or group of commands, and the table that names them."""

import tomllib
from pathlib import Path
from typing import Any, Final

_TABLE: Final = Path(__file__).with_name("commands.toml").read_text("utf-8")
# By name: the ``place`` (module:attribute), ``summary`` and ``examples`` that the help shows before
# the module is loaded; the examples of a group by command.
COMMANDS: Final[dict[str, Any]] = tomllib.loads(_TABLE)
