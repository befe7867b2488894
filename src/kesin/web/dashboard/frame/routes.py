"""The frame's own doors: language and theme, and the navigation as it is now."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.foundation.problems import Invalid, Unknown
from kesin.web.auth import check_origin, guarded_router, is_secure
from kesin.web.dashboard.frame.i18n import LANGUAGES
from kesin.web.dashboard.frame.page import (
    LANGUAGE_COOKIE,
    THEME_COOKIE,
    THEMES,
    Context,
    below,
    navigation,
)
from kesin.web.forms import firsts, read_form

router = guarded_router(include_in_schema=False)
last = guarded_router(include_in_schema=False)  # after every other page: it takes what is left
YEAR_S: Final = 365 * 86_400
MOST_FORM_BYTES: Final = 65_536
MOST_FIELDS: Final = 200


@router.post("/dashboard/look")
async def look(request: Request) -> Response:
    """Remember a language or a theme in this browser, and go back to the page."""
    check_origin(request, required=True)
    fields = await form(request)
    answer = RedirectResponse(safe_path(fields.get("back", "")), status_code=303)
    for name, cookie, known in (
        ("language", LANGUAGE_COOKIE, LANGUAGES),
        ("theme", THEME_COOKIE, THEMES),
    ):
        value = fields.get(name)
        if value is None:
            continue
        if value not in known:
            raise Invalid(f"{name} is one of {', '.join(known)}")
        answer.set_cookie(
            cookie, value, max_age=YEAR_S, path="/", samesite="lax", secure=is_secure(request)
        )
    return answer


@router.get("/dashboard/nav", response_class=HTMLResponse)
def nav(looking: Context, at: Annotated[str, Query(max_length=2_000)] = "") -> HTMLResponse:
    """The navigation of the page ``at`` this path, with what needs a person now."""
    places, others = navigation(looking, at), below(looking, at)
    return looking.page("part_nav.html", nav_at=at, nav=places, nav_below=others)


@last.get("/dashboard/{rest:path}")
def nowhere(looking: Context, rest: str) -> Response:
    """No page of ours: told as a page, in the frame of whoever asked."""
    if rest == "" or rest.endswith("/"):
        where = f"/dashboard/{rest.strip('/')}".rstrip("/")
        return RedirectResponse(safe_path(where), status_code=307)
    raise Unknown(looking.say("There is no such page. The address may be mistyped, or old."))


def safe_path(text: str) -> str:
    """A path of ours: whatever leads elsewhere leads to the first page."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/dashboard"
    fine = f"{parts.path}/".startswith("/dashboard/") and ".." not in parts.path
    ours = text.startswith("/dashboard") and not parts.scheme and not parts.netloc
    return text if fine and ours and "\\" not in text and text.isprintable() else "/dashboard"


async def form(request: Request) -> dict[str, str]:
    """The fields of a form, each once; raises TooLarge."""
    return firsts(await form_lists(request))


async def form_lists(request: Request) -> dict[str, list[str]]:
    """The fields of a form, each as often as it came; raises TooLarge."""
    return await read_form(request, most_bytes=MOST_FORM_BYTES, most_fields=MOST_FIELDS)
