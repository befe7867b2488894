"""The texts of drawings and lists, in English and Turkish."""

from __future__ import annotations

from typing import Final, Literal

Language = Literal["en", "tr"]

ENGLISH: Final = {
    "band": "Edge bands",
    "bands": "Edge bands (m)",
    "board": "Board",
    "boards": "Boards",
    "cost": "Cost",
    "cross": "cross",
    "cut_list": "Cut list",
    "cuts": "Cuts",
    "fence": "Fence",
    "kerf": "kerf",
    "minutes": "Saw time (min)",
    "more": "more",
    "name": "Part",
    "no_bands": "none",
    "no_offcuts": "none worth keeping",
    "offcuts": "Offcuts to keep",
    "of": "of",
    "panel": "Panel",
    "parts": "Parts on this board",
    "pieces": "Pieces",
    "plan": "Cutting plan",
    "rip": "rip",
    "runs": "Runs",
    "finished": "Finished",
    "sawn": "Sawn (m)",
    "size": "Cut size",
    "trim": "trim",
    "yield": "Yield",
}
TURKISH: Final = {
    "band": "Kenar bantları",
    "bands": "Kenar bandı (m)",
    "board": "Levha",
    "boards": "Levha",
    "cost": "Maliyet",
    "cross": "enine",
    "cut_list": "Kesim listesi",
    "cuts": "Kesim",
    "fence": "Dayama",
    "kerf": "testere",
    "minutes": "Süre (dk)",
    "more": "daha",
    "name": "Parça",
    "no_bands": "yok",
    "no_offcuts": "saklanacak yok",
    "offcuts": "Saklanacak artıklar",
    "of": "/",
    "panel": "Panel",
    "parts": "Bu levhadaki parçalar",
    "pieces": "Adet",
    "plan": "Kesim planı",
    "rip": "boyuna",
    "runs": "Yön",
    "finished": "Bitmiş",
    "sawn": "Kesim (m)",
    "size": "Kesim ölçüsü",
    "trim": "tıraş",
    "yield": "Verim",
}
TEXTS: Final[dict[Language, dict[str, str]]] = {"en": ENGLISH, "tr": TURKISH}
