"""The texts of drawings and lists, in English and Turkish, from `texts.toml`."""

import tomllib
from importlib.resources import files
from typing import Final, Literal

Language = Literal["en", "tr"]

_PAIRS: Final = tomllib.loads(files(__package__).joinpath("texts.toml").read_text("utf-8"))
TEXTS: Final[dict[Language, dict[str, str]]] = {
    "en": {name: english for name, (english, _) in _PAIRS.items()},
    "tr": {name: turkish for name, (_, turkish) in _PAIRS.items()},
}
