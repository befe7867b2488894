"""Draw the first page of every shipped template's samples, as Chromium prints them.

A name ends in `-en` for English; the others are Turkish.
Needs the extras `pdf` and `dev`, and Chromium. The same Chromium gives the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pypdfium2
from PIL import Image, ImageOps

from kesin.foundation.settings import load_settings
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.services import create_pdf_engine
from kesin.workloads.pdf.templating.library import TemplateLibrary

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
LANGUAGES = {"tr": "", "en": "-en"}
WIDTH = 700
EDGE = (216, 220, 226)  # white paper on a white page has none of its own
TIMEOUT_S = 60


def first_page(pdf: bytes) -> Image.Image:
    """The first sheet as wide as the documentation shows it, with a thin line around it."""
    with pypdfium2.PdfDocument(pdf) as document:
        page = document[0]
        drawn = page.render(scale=3).to_pil().convert("RGB")
    width = WIDTH - 2
    small = drawn.resize((width, round(drawn.height * width / drawn.width)), Image.Resampling.LANCZOS)
    return ImageOps.expand(small, 1, EDGE).quantize(
        method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
    )  # it keeps the few strong colours, at a fifth of the bytes


def main() -> None:
    """Make every picture again."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=PICTURES, help="where they go")
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    book = TemplateLibrary.load()
    engine = create_pdf_engine(load_settings(), "chromium")
    try:
        for name in book.names:
            for language, ending in LANGUAGES.items():
                html = book.render_html(name, book.get(name).sample_in(language))
                rendered = engine.render(html, Paper(), timeout_s=TIMEOUT_S)
                first_page(rendered.pdf).save(out / f"{name}{ending}.png", optimize=True)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
