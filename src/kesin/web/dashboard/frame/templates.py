"""The templates of an app: those of the dashboard and those that workloads bring."""

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup

from kesin.engine.access.masking import mask_text
from kesin.engine.workload import Workload
from kesin.web.dashboard.frame.formatting import Formatter, count_ticks, shown_zone
from kesin.web.dashboard.frame.i18n import DASHBOARD, LANGUAGES, Language, catalogue_for
from kesin.web.dashboard.frame.navigation import below, navigation, site_switch
from kesin.web.dashboard.frame.page import Frame, WorkloadPages
from kesin.web.dashboard.state_groups import glossed


def build_frame(workloads: Iterable[Workload]) -> Frame:
    """What all pages of an app share, with the pages of these workloads."""
    pages: dict[str, WorkloadPages] = {}
    for workload in workloads:
        brought = workload.pages() if workload.pages else None
        if isinstance(brought, WorkloadPages):
            pages[workload.name] = brought
        elif workload.pages:
            raise TypeError(
                f"the pages of the workload {workload.name} must be a WorkloadPages, not {type(brought).__name__}"
            )
    folders = tuple((name, part.package) for name, part in pages.items() if part.package)
    packages = tuple(dict.fromkeys(package for _, package in folders))
    return Frame(
        pages,
        lambda language: _environment(language, folders, packages),
        lambda language: catalogue_for(language, packages),
    )


@cache
def _environment(language: Language, folders: tuple[tuple[str, str], ...], packages: tuple[str, ...]) -> Environment:
    """The templates in a language; a workload's are named ``<workload>/<file>``."""
    own = {name: PackageLoader(package, "templates") for name, package in folders}
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(DASHBOARD, "templates"), PrefixLoader(own)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        extensions=["jinja2.ext.i18n"],
    )
    catalogue = catalogue_for(language, packages)
    environment.install_gettext_translations(catalogue, newstyle=True)  # type: ignore[attr-defined]

    @cache
    def sentence(text: str) -> Markup:
        return Markup(catalogue.gettext(text))  # noqa: S704  # our own text

    @cache
    def without_values(text: str) -> Markup:
        return sentence(text) % {}

    def say(text: str, **values: Any) -> Markup:
        return sentence(text) % values if values else without_values(text)

    figures = Formatter(language)

    def in_zone(say: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *values: say(Formatter(language, shown_zone.get()), *values)

    plain = ("number", "percent", "unit", "relative", "utc", "iso", "city", "duration_axis")
    zoned = ("when", "stamp", "moment", "clock", "time_axis")
    filters: dict[str, Callable[..., Any]] = {
        **{name: getattr(figures, name) for name in plain},
        **{name: in_zone(getattr(Formatter, name)) for name in zoned},
        "lasted": figures.duration,
        "count_axis": lambda top: [(tick, figures.number(tick)) for tick in count_ticks(top)],
        "covered": mask_text,
        "glossed": partial(glossed, catalogue.gettext),
    }
    environment.filters |= filters
    environment.globals |= {
        "LANGUAGES": LANGUAGES,
        "gettext": say,  # Jinja's own takes three calls for each of a page's hundred sentences
        # What the frame shows; only the templates of whole pages ask for it.
        "navigation": navigation,
        "below": below,
        "site_switch": site_switch,
    }
    # In every template, without an import: those of a page would take a tenth of its time.
    environment.globals["bits"] = environment.get_template("bits.html").module
    dialogs = cache(environment.get_template("part_dialogs.html").render)
    environment.globals["dialogs"] = lambda: Markup(dialogs())  # noqa: S704  # our own template
    return environment
