"""The texts of drawings and lists, in English and Turkish."""

from __future__ import annotations

from typing import Final, Literal

Language = Literal["en", "tr"]

_PAIRS: Final = {
    "band": ("Edge bands", "Kenar bantları"),
    "bands": ("Edge bands (m)", "Kenar bandı (m)"),
    "board": ("Board", "Levha"),
    "boards": ("Boards", "Levha"),
    "cost": ("Cost", "Maliyet"),
    "cross": ("cross", "enine"),
    "cut_list": ("Cut list", "Kesim listesi"),
    "cuts": ("Cuts", "Kesim"),
    "fence": ("Fence", "Dayama"),
    "kerf": ("kerf", "testere"),
    "minutes": ("Saw time (min)", "Süre (dk)"),
    "more": ("more", "daha"),
    "name": ("Part", "Parça"),
    "no_bands": ("none", "yok"),
    "no_offcuts": ("none worth keeping", "saklanacak yok"),
    "offcuts": ("Offcuts to keep", "Saklanacak artıklar"),
    "of": ("of", "/"),
    "panel": ("Panel", "Panel"),
    "parts": ("Parts on this board", "Bu levhadaki parçalar"),
    "pieces": ("Pieces", "Adet"),
    "plan": ("Cutting plan", "Kesim planı"),
    "rip": ("rip", "boyuna"),
    "runs": ("Runs", "Yön"),
    "finished": ("Finished", "Bitmiş"),
    "sawn": ("Sawn (m)", "Kesim (m)"),
    "size": ("Cut size", "Kesim ölçüsü"),
    "trim": ("trim", "tıraş"),
    "yield": ("Yield", "Verim"),
}
TEXTS: Final[dict[Language, dict[str, str]]] = {
    "en": {name: english for name, (english, _) in _PAIRS.items()},
    "tr": {name: turkish for name, (_, turkish) in _PAIRS.items()},
}
