"""Cut the fonts of the PDF templates to what they print, as woff2.

*Kesin Sans* is Inter with TrueType outlines: Chromium prints those of OpenType as Type 3 fonts,
twice as large. *Kesin Symbols* is DejaVu Sans, with the characters that Inter lacks.

Needs fonttools and brotli (only here: the service reads the files this leaves) and Debian's
``fonts-inter`` and ``fonts-dejavu-core``. The same fonts give the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fontTools import subset
from fontTools.pens.cu2quPen import Cu2QuPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont, newTable

FONTS = Path(__file__).parents[1] / "src" / "kesin" / "workloads" / "pdf" / "templates" / "fonts"
FAMILY = "Kesin Sans"
FACES = {  # of Inter, and what Kesin Sans calls them
    "Regular": ("sans-regular.woff2", "Regular"),
    "Italic": ("sans-italic.woff2", "Italic"),
    "SemiBold": ("sans-semibold.woff2", "SemiBold"),
    "SemiBoldItalic": ("sans-semibold-italic.woff2", "SemiBold Italic"),
}
BEHIND = {"DejaVuSans.ttf": "symbols-regular.part.woff2", "DejaVuSans-Bold.ttf": "symbols-semibold.part.woff2"}
ABOUT = """\
symbols-regular.part.woff2 and symbols-semibold.part.woff2 are DejaVu Sans and DejaVu Sans Bold, cut
by scripts/make-pdf-fonts.py to the characters of our documents that Kesin Sans lacks. (Kesin Sans,
the other files, is a modified version of Inter: see OFL.txt.) Their licence:"""
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
CODES = {code for first, last in WANTED for code in range(first, last + 1)}
SPACES = {0x20, 0xA0}  # WeasyPrint sets a space in the font of the character before it
FEATURES = ["kern", "locl", "mark", "mkmk", "ccmp", "tnum"]  # no fi: Turkish keeps its dots
KEPT_NAMES = [0, 1, 2, 3, 4, 5, 6, 13, 14]  # with the copyright and the licence
CURVE_ERROR = 2.0  # of 2816 units to the em: 0.006 pt in type of 9 pt


def cut(source: Path, codes: set[int]) -> tuple[TTFont, subset.Options]:
    """Return a font with the glyphs of these characters alone."""
    options = subset.Options()
    options.flavor = "woff2"
    options.hinting = False  # paper has no pixels
    options.layout_features = FEATURES
    options.name_IDs = KEPT_NAMES
    options.glyph_names = False
    options.recalc_timestamp = False
    options.drop_tables += ["FFTM"]
    font = subset.load_font(str(source), options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=codes)
    cutter.subset(font)
    return font, options


def use_truetype_outlines(font: TTFont) -> None:
    """Replace the cubic curves of a font by quadratic ones."""
    glyphs, drawn = font.getGlyphSet(), {}
    for name in font.getGlyphOrder():
        pen = TTGlyphPen(None)
        glyphs[name].draw(Cu2QuPen(pen, CURVE_ERROR, reverse_direction=True))
        drawn[name] = pen.glyph()
    font["loca"], font["glyf"] = newTable("loca"), newTable("glyf")
    font["glyf"].glyphOrder, font["glyf"].glyphs = font.getGlyphOrder(), drawn
    del font["CFF "]
    for glyph in drawn.values():
        glyph.recalcBounds(font["glyf"])
    font["hmtx"].metrics = {
        name: (width, getattr(drawn[name], "xMin", 0)) for name, (width, _) in font["hmtx"].metrics.items()
    }
    limits = font["maxp"]
    limits.tableVersion = 0x00010000
    limits.maxZones, limits.maxTwilightPoints, limits.maxStorage = 1, 0, 0
    limits.maxFunctionDefs = limits.maxInstructionDefs = limits.maxStackElements = 0
    limits.maxSizeOfInstructions = limits.maxComponentElements = limits.maxComponentDepth = 0
    limits.recalc(font)
    font.sfntVersion = "\x00\x01\x00\x00"


def rename(font: TTFont, style: str) -> None:
    """Name a face of Kesin Sans: a modified font does not carry the name of the original."""
    version = font["name"].getDebugName(5)
    plain = style.replace(" ", "")
    names = {
        1: FAMILY if "SemiBold" not in style else f"{FAMILY} SemiBold",
        2: "Italic" if "Italic" in style else "Regular",
        3: f"{FAMILY.replace(' ', '')}-{plain}; Inter {version}",
        4: f"{FAMILY} {style}",
        6: f"{FAMILY.replace(' ', '')}-{plain}",
    }
    for number, text in names.items():
        font["name"].removeNames(nameID=number)
        font["name"].setName(text, number, 3, 1, 0x409)


def main() -> None:
    """Make every face again."""
    arguments = argparse.ArgumentParser(description=__doc__)
    system = Path("/usr/share/fonts")
    arguments.add_argument("--inter", type=Path, default=system / "opentype" / "inter")
    arguments.add_argument("--dejavu", type=Path, default=system / "truetype" / "dejavu")
    folders = arguments.parse_args()
    covered: set[int] = set()
    for source, (target, style) in FACES.items():
        font, options = cut(folders.inter / f"Inter-{source}.otf", CODES)
        use_truetype_outlines(font)
        rename(font, style)
        covered |= set(font.getBestCmap())
        subset.save_font(font, str(FONTS / target), options)
    licences = set()
    for source, target in BEHIND.items():
        font, options = cut(folders.dejavu / source, (CODES - covered) | SPACES)
        licences.add(font["name"].getDebugName(13))
        subset.save_font(font, str(FONTS / target), options)
    lines = "\n\n".join([ABOUT, *sorted(licences)]).splitlines()
    text = "\n".join(line.rstrip() for line in lines).strip()
    (FONTS / "LICENSE.txt").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
