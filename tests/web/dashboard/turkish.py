"""The Turkish catalogue of a service with every workload that comes with Kesin."""

from functools import cache
from pathlib import Path

from kesin.web.dashboard.frame.i18n import Catalogue, Language
from kesin.web.dashboard.frame.templates import build_frame
from kesin.workloads import built_in
from tests.web.dashboard.python_texts import SOURCE

PAGES = (SOURCE / "web" / "dashboard", *sorted(SOURCE.glob("workloads/*/pages")))
TEMPLATES: tuple[Path, ...] = tuple(sorted(file for page in PAGES for file in page.glob("templates/*.html")))
CATALOGUES: tuple[Path, ...] = tuple(sorted(file for page in PAGES for file in page.glob("locale/tr/*.po")))


@cache
def catalogue(language: Language = "tr") -> Catalogue:
    return build_frame(built_in()).catalogue(language)


def template_name(file: Path) -> str:
    """As the pages name it: a workload's with the workload before it."""
    workload = file.parents[2].name
    return file.name if workload == "web" else f"{workload}/{file.name}"
