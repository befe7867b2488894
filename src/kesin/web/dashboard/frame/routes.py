"""Routes of the page frame: what users set for themselves, the live navigation, unknown pages."""

from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.foundation.passwords import MIN_PASSWORD_LENGTH
from kesin.foundation.problems import Forbidden, Invalid, NotFound, TooManyRequests
from kesin.web.auth import change_own_password, check_origin, is_secure, set_session_cookie
from kesin.web.bodies import form_reader, read_form
from kesin.web.dashboard.frame import page
from kesin.web.dashboard.frame.i18n import LANGUAGES
from kesin.web.dashboard.frame.navigation import below, navigation
from kesin.web.dashboard.frame.page import Context, PageContext, page_router

router = page_router()
fallback_router = page_router()  # included last: matches any path
YEAR_S: Final = 365 * 86_400
MAX_FORM_BYTES: Final = 65_536
MAX_FIELDS: Final = 1_000
read_fields = form_reader(MAX_FORM_BYTES, MAX_FIELDS)


@router.post("/dashboard/look")
async def set_preferences(request: Request) -> Response:
    check_origin(request, required=True)
    fields = await read_fields(request)
    response = RedirectResponse(safe_path(fields.get("back", "")), status_code=303)
    for name, cookie, allowed in (
        ("language", page.LANGUAGE_COOKIE, LANGUAGES),
        ("theme", page.THEME_COOKIE, page.THEMES),
        ("clock", page.CLOCK_COOKIE, page.CLOCKS),
    ):
        if (value := fields.get(name)) is None:
            continue
        if value not in allowed:
            raise Invalid("%(field)s must be one of %(known)s", field=name, known=", ".join(allowed))
        response.set_cookie(cookie, value, max_age=YEAR_S, path="/", samesite="lax", secure=is_secure(request))
    return response


@router.get("/dashboard/nav", response_class=HTMLResponse)
def nav(ctx: Context, at: Annotated[str, Query(max_length=2_000)] = "") -> HTMLResponse:
    return ctx.page("part_nav.html", nav_at=at, nav=navigation(ctx, at), nav_below=below(ctx, at))


@fallback_router.get("/dashboard/{rest:path}")
def page_not_found(_ctx: Context, rest: str) -> Response:
    """Answer an unknown path with an error page; a trailing slash redirects to the page."""
    if rest == "" or rest.endswith("/"):
        path = f"/dashboard/{rest.strip('/')}".rstrip("/")
        return RedirectResponse(safe_path(path), status_code=307)
    raise NotFound("There is no such page. The address may be mistyped or out of date.")


def safe_path(text: str) -> str:
    """The path if it is in the dashboard, else the first page: prevents open redirects."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/dashboard"
    in_dashboard = f"{parts.path}/".startswith("/dashboard/") and ".." not in parts.path
    is_local = text.startswith("/dashboard") and not parts.scheme and not parts.netloc
    is_safe = in_dashboard and is_local and "\\" not in text and text.isprintable()
    return text if is_safe else "/dashboard"


async def read_field_lists(request: Request) -> dict[str, list[str]]:
    """All values of each field of a form; raises TooLarge."""
    return await read_form(request, max_bytes=MAX_FORM_BYTES, max_fields=MAX_FIELDS)


FormFields = Annotated[dict[str, list[str]], Depends(read_field_lists)]
FirstFields = Annotated[dict[str, str], Depends(read_fields)]


@router.get("/dashboard/password", response_class=HTMLResponse)
def password_page(ctx: Context, done: str = "") -> HTMLResponse:
    return _password_page(ctx, done=bool(done))


@router.post("/dashboard/password", response_class=HTMLResponse)
async def change_password(ctx: Context, fields: FirstFields) -> Response:
    """Change the password; other sessions end. A problem is shown with the form."""
    new = fields.get("password", "")
    if new != fields.get("again", ""):
        differs = Invalid("the two new passwords are not the same", details={"field": "again"})
        return _password_page(ctx, problem=differs)
    try:
        token, _ = await change_own_password(ctx.request, ctx.actor, fields.get("current", ""), new)
    except (Forbidden, Invalid, TooManyRequests) as problem:
        return _password_page(ctx, problem=problem)
    changed = RedirectResponse("/dashboard/password?done=true", status_code=303)
    set_session_cookie(ctx.request, changed, token)
    return changed


def _password_page(ctx: PageContext, **outcome: Any) -> HTMLResponse:
    is_user = ctx.actor.name.startswith("user:")
    return ctx.page("password.html", is_user=is_user, least=MIN_PASSWORD_LENGTH, **outcome)
