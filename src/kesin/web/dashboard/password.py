"""The page on which users change their own password."""

from typing import Any, Final

from fastapi.responses import HTMLResponse, RedirectResponse, Response

from kesin.foundation.passwords import MIN_PASSWORD_LENGTH
from kesin.foundation.problems import Forbidden, Invalid, TooManyRequests
from kesin.web.auth import change_own_password, set_session_cookie
from kesin.web.dashboard.frame.page import Context, PageContext, page_router
from kesin.web.dashboard.frame.routes import FirstFields

router = page_router()
PATH: Final = "/dashboard/password"


@router.get(PATH, response_class=HTMLResponse)
def password_page(ctx: Context, done: str = "") -> HTMLResponse:
    return _page(ctx, done=bool(done))


@router.post(PATH, response_class=HTMLResponse)
async def change_password(ctx: Context, fields: FirstFields) -> Response:
    """Change the password; other sessions end. A problem is shown with the form."""
    new = fields.get("password", "")
    if new != fields.get("again", ""):
        differs = Invalid("the two new passwords are not the same", details={"field": "again"})
        return _page(ctx, problem=differs)
    try:
        token, _ = await change_own_password(ctx.request, ctx.actor, fields.get("current", ""), new)
    except (Forbidden, Invalid, TooManyRequests) as problem:
        return _page(ctx, problem=problem)
    changed = RedirectResponse(f"{PATH}?done=true", status_code=303)
    set_session_cookie(ctx.request, changed, token)
    return changed


def _page(ctx: PageContext, **outcome: Any) -> HTMLResponse:
    is_user = ctx.actor.name.startswith("user:")
    return ctx.page("password.html", is_user=is_user, least=MIN_PASSWORD_LENGTH, **outcome)
