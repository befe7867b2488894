"""Cut the fonts of the PDF templates to what they print, as woff2.

Needs fonttools and brotli (only here: the service reads the files this leaves) and Debian's
``fonts-dejavu-core``. The same fonts give the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fontTools import subset

TEMPLATES = Path(__file__).parents[1] / "src" / "kesin" / "workloads" / "pdf" / "templates"
FACES = {"DejaVuSans.ttf": "sans-regular.woff2", "DejaVuSans-Bold.ttf": "sans-bold.woff2"}
ABOUT = """\
sans-regular.woff2 and sans-bold.woff2 are DejaVu Sans and DejaVu Sans Bold, cut by
scripts/make-pdf-fonts.py to the letters our documents use. Their licence:"""
WANTED = (
    (0x20, 0x7E),  # Latin
    (0xA0, 0xFF),  # Latin-1
    (0x100, 0x17F),  # Latin Extended-A: ğ ı İ ş
    (0x218, 0x21B),  # Ș ș Ț ț
    (0x2C6, 0x2DD),  # spacing accents
    (0x2002, 0x200A),  # spaces
    (0x2010, 0x2027),  # dashes, quotation marks, bullet, ellipsis
    (0x202F, 0x203A),  # narrow space, per mille, primes, angle quotes
    (0x20AC, 0x20AC),  # €
    (0x20BA, 0x20BA),  # ₺
    (0x2116, 0x2122),  # № ™
    (0x2190, 0x2199),  # arrows
    (0x2212, 0x2212),  # minus
    (0x2248, 0x2265),  # ≈ ≠ ≤ ≥
    (0x25A0, 0x25CF),  # squares and discs
    (0x2713, 0x2717),  # ticks and crosses
)


def cut(source: Path, target: Path) -> str:
    """Write the wanted glyphs of one face; answers with its licence."""
    options = subset.Options()
    options.flavor = "woff2"
    options.hinting = False  # paper has no pixels
    options.layout_features = [
        "kern",
        "locl",
        "mark",
        "mkmk",
        "ccmp",
    ]  # no fi: Turkish keeps its dots
    options.name_IDs = [0, 1, 2, 3, 4, 5, 6, 13, 14]  # with the copyright and the licence
    options.recalc_timestamp = False
    options.drop_tables += ["FFTM"]
    font = subset.load_font(str(source), options)
    licence = font["name"].getDebugName(13)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=[code for first, last in WANTED for code in range(first, last + 1)])
    cutter.subset(font)
    subset.save_font(font, str(target), options)
    return "\n".join(line.rstrip() for line in licence.splitlines()).strip()


def main() -> None:
    """Make every face again."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--fonts", type=Path, default=Path("/usr/share/fonts/truetype/dejavu"))
    folder = arguments.parse_args().fonts
    fonts = TEMPLATES / "fonts"
    licences = {cut(folder / name, fonts / target) for name, target in FACES.items()}
    (fonts / "LICENSE.txt").write_text("\n\n".join([ABOUT, *sorted(licences)]) + "\n", "utf-8")


if __name__ == "__main__":
    main()
