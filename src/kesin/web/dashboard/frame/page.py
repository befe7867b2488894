"""Pages: a template, the language and the theme of whoever looks, and the frame around it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import RedirectResponse, Response

from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem, Unavailable
from kesin.store.errors import StoreUnreachable
from kesin.web.auth import NOBODY, service_of
from kesin.web.dashboard.frame import sparklines
from kesin.web.dashboard.frame.formatting import Figures, name_of
from kesin.web.dashboard.frame.i18n import LANGUAGES, Language, Words, chosen, told_in, words_of
from kesin.web.dashboard.frame.masking import masked_text
from kesin.web.dashboard.frame.navigation import links, marks_of, switch_of, wanting
from kesin.web.dashboard.state_groups import ORDER, SHOWN
from kesin.web.service import Service

LANGUAGE_COOKIE: Final = "kesin_language"
THEME_COOKIE: Final = "kesin_theme"
MOST_IN_BAR: Final = 3  # places on a phone, beside the one that opens the rest
THEMES: Final = ("auto", "light", "dark")
TITLES: Final = {
    "oci": "Conversions",
    "pdf": "PDFs",
    "pdf_batches": "PDF batches",
    "pdf_webhooks": "PDF webhooks",
    "optiplan": "Orders",
}


class SentToSignIn(Exception):  # not an error: a turn of the way
    """Nobody is signed in: the page asked for comes after the sign-in."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the navigation."""

    title: str
    path: str
    badge: int = 0
    here: bool = False
    away: bool = False  # its store does not answer
    trade: str = ""  # the places of one trade stand together
    under: bool = False  # below the first of its trade
    in_bar: bool = False  # on a phone too, where there is room for few


@dataclass(frozen=True, slots=True)
class PageContext:
    """Who looks at a page, and how they like it."""

    request: Request
    actor: Actor
    words: Words
    theme: str

    @property
    def service(self) -> Service:
        return service_of(self.request)

    @property
    def language(self) -> Language:
        return self.words.language

    @property
    def in_part(self) -> bool:
        """Whether a page that is there already asks for a part of itself."""
        headers = self.request.headers
        restored = headers.get("hx-history-restore-request") == "true"  # going back: a whole page
        return headers.get("hx-request") == "true" and not restored

    def say(self, sentence: str, **values: Any) -> str:
        """A sentence of ours in the looker's language."""
        return self.words.gettext(sentence) % values if values else self.words.gettext(sentence)

    def title_of(self, queue: str) -> str:
        """What people call a queue."""
        return self.say(TITLES.get(queue, queue))

    def tell(self, message: str | None) -> Markup:
        """A message from below the pages; what is none of ours is marked as English."""
        text = told_in(self.language, message) if message else ""
        if text is None:
            return Markup('<span lang="en">{}</span>').format(message)
        return escape(text)

    def page(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """The template, filled in; every value is escaped."""
        text = _environment(self.language).get_template(template).render(looker=self, **values)
        headers = {"Cache-Control": "no-store", "Vary": "HX-Request, Cookie"}
        return HTMLResponse(text, status_code=status, headers=headers)


async def looker(request: Request) -> PageContext:
    """Whoever is signed in; nobody is sent to the sign-in page."""
    actor: Actor = request.state.actor
    if not actor.grants:
        raise SentToSignIn
    return unknown_looker(request)


def unknown_looker(request: Request) -> PageContext:
    """Whoever it is."""
    language = chosen(
        request.cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language", "")
    )
    theme = request.cookies.get(THEME_COOKIE, "auto")
    return PageContext(
        request,
        getattr(request.state, "actor", NOBODY),
        words_of(language),
        theme if theme in THEMES else "auto",
    )


Context = Annotated[PageContext, Depends(looker)]


def to_sign_in(request: Request) -> Response:
    """To the sign-in page, and back here afterwards; a part of a page sends the whole one."""
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.headers.get("hx-request") == "true":
        whole = request.headers.get("hx-current-url", "")
        back = "/" + whole.split("/", 3)[3] if whole.count("/") > 2 else "/dashboard"  # noqa: PLR2004
        return Response(status_code=204, headers={"HX-Redirect": f"/sign-in?next={quote(back)}"})
    return RedirectResponse(f"/sign-in?next={quote(here)}", status_code=303)


def failure(
    request: Request, problem: Problem, *, status: int | None = None, bare: bool = False
) -> HTMLResponse:
    """A page that says what went wrong, for people; a bare one asks nobody anything."""
    looking = unknown_looker(request)
    template = "part_problem.html" if looking.in_part else "problem.html"
    # When the store does not answer, neither do the counts of the navigation.
    unasked: dict[str, Any] = {"nav": [], "switch": None}
    away = unasked if bare or isinstance(problem, Unavailable) else {}
    if bare:
        away["nav_below"] = []
    return looking.page(template, status=status or problem.status, problem=problem, **away)


def navigation(looking: PageContext, at: str = "") -> list[Place]:
    """The queues that may be seen, each with how many jobs need a person, and their trades."""
    path = at or looking.request.url.path
    places = [Place(looking.say("Overview"), "/dashboard", here=path == "/dashboard")]
    if not looking.actor.has("read"):
        return _with_bar(places)
    queues = _queue_places(looking, path)
    own = [
        Place(one.title, one.path, here=path.startswith(one.path), trade=one.queue)
        for one in links(looking)
    ]
    for trade in dict.fromkeys(one.trade for one in (*queues, *own)):
        [first, *others] = [one for one in (*queues, *own) if one.trade == trade]
        places += [first, *(replace(one, under=True) for one in others)]
    return _with_bar(places)


def _queue_places(looking: PageContext, path: str) -> list[Place]:
    actor, commands, marks = looking.actor, looking.service.commands, marks_of(looking)
    places = []
    for queue in commands.readable(actor):
        badge, away = 0, False
        try:
            badge = wanting(looking, queue, commands.seen(actor, queue.stats()), marks)
        except StoreUnreachable:  # the others may live elsewhere
            away = True
        where = f"/dashboard/queues/{queue.name}"
        title = looking.title_of(queue.name)
        here = path == where or path.startswith(f"{where}/")
        trade = queue.name.partition("_")[0] if queue.name in TITLES else queue.name
        places.append(Place(title, where, badge, here=here, away=away, trade=trade))
    return places


def _with_bar(places: list[Place]) -> list[Place]:
    """What a phone shows at once: first what needs a person, then where one is."""
    by_need = sorted(places, key=lambda one: (not (one.badge or one.away), not one.here))
    chosen = {one.path for one in by_need[:MOST_IN_BAR]}
    return [replace(one, in_bar=one.path in chosen) for one in places]


def below(looking: PageContext, at: str = "") -> list[Place]:
    """What is about the house itself, for those who may see it."""
    path, actor = at or looking.request.url.path, looking.actor
    places = []
    if actor.is_admin:
        places.append(Place(looking.say("Audit"), "/dashboard/audit"))
    if actor.has("operate"):
        places.append(Place(looking.say("Workers"), "/dashboard/workers"))
    if actor.is_admin:
        places.append(Place(looking.say("Admin"), "/dashboard/admin/people"))
    return [replace(one, here=path.startswith(one.path.removesuffix("/people"))) for one in places]


@cache
def _environment(language: Language) -> Environment:
    made = Environment(
        loader=PackageLoader("kesin.web.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    made.install_gettext_translations(words_of(language), newstyle=True)  # type: ignore[attr-defined]
    figures = Figures(language)
    filters: dict[str, Callable[..., Any]] = {
        "number": figures.number,
        "percent": figures.percent,
        "lasted": figures.lasted,
        "moment": figures.moment,
        "clock": figures.clock,
        "iso": figures.iso,
        "covered": masked_text,
    }
    made.filters |= filters
    made.globals |= {
        "stacked": sparklines.stacked,
        "sparkline": sparklines.sparkline,
        "name_of": name_of,
        "FAMILIES": ORDER,
        "FAMILY_WORDS": SHOWN,
        "LANGUAGES": LANGUAGES,
        # What the frame shows, asked for by the templates of it alone: parts have no frame.
        "navigation": navigation,
        "below": below,
        "switch_of": switch_of,
    }
    return made


_T = TypeVar("_T")
_making = threading.Lock()


def once(app: FastAPI, name: str, make: Callable[[], _T]) -> _T:
    """What is kept under this name."""
    with _making:
        if not hasattr(app.state, name):
            setattr(app.state, name, make())
        found: _T = getattr(app.state, name)
        return found
