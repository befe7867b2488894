"""The body of an offcut for tests, as JSON sends it."""

from typing import Any, Final

BODY: Final[dict[str, Any]] = {
    "material": "18MM 210*280",
    "color": "Beyaz",
    "thickness_mm": 18,
    "length_mm": 900,
    "width_mm": 700,
    "place": "B3",
}
