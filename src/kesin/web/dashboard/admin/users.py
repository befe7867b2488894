"""Who may come in: people, their roles, sites and queues."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends
from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse, Response

from kesin.foundation.passwords import one_time_password
from kesin.foundation.permissions import ROLES
from kesin.foundation.problems import Clash, Invalid, Problem, Refused
from kesin.store.directory import Person
from kesin.web.auth import guarded_router
from kesin.web.dashboard.frame.page import Context, PageContext
from kesin.web.dashboard.frame.routes import form_lists

router = guarded_router(include_in_schema=False)
PATH: Final = "/dashboard/admin/people"
Fields = Annotated[dict[str, list[str]], Depends(form_lists)]
ROLE_WORDS: Final = {
    "viewer": "looks at the jobs of their sites and queues",
    "operator": "also moves, pauses and resumes them",
    "admin": "may do everything, everywhere",
}


def one(fields: dict[str, list[str]], name: str) -> str:
    """The field, once, without the blanks around it."""
    return fields.get(name, [""])[0].strip()


def is_sure(fields: dict[str, list[str]]) -> None:
    """Raise Invalid unless the box that says so was ticked."""
    if one(fields, "sure") != "1":
        raise Invalid("tick the box to say that you are sure", details={"field": "sure"})


@router.get(PATH, response_class=HTMLResponse)
def people(looking: Context) -> HTMLResponse:
    """Everybody, and a form for one more."""
    return _list(looking)


@router.post(PATH, response_class=HTMLResponse)
def add(looking: Context, fields: Fields) -> Response:
    """Somebody new; without a password of theirs, a first one is made and shown once."""
    name, given = one(fields, "name"), fields.get("password", [""])[0]
    password = given or one_time_password()
    try:
        looking.service.accounts.add_person(
            looking.actor, name, password, role=one(fields, "role"), **_reach(fields)
        )
    except Refused:
        raise
    except Problem as problem:
        return _list(looking, problem=problem, fields=fields)
    if given:
        return RedirectResponse(f"{PATH}/{name}", status_code=303)
    return _one(looking, name, secret=password)


@router.get(PATH + "/{name}", response_class=HTMLResponse)
def person(looking: Context, name: str, done: str = "") -> HTMLResponse:
    """One of them."""
    return _one(looking, name, done=bool(done))


@router.post(PATH + "/{name}", response_class=HTMLResponse)
def change(looking: Context, name: str, fields: Fields) -> Response:
    """Another role or reach, a new password, an end of every session, or of coming in at all."""
    accounts, actor = looking.service.accounts, looking.actor
    what = one(fields, "what")
    myself = actor.name == f"user:{name}"
    try:
        if what == "may":
            accounts.person(actor, name)
            _stay(myself=myself and one(fields, "role") != "admin")
            accounts.set_person(actor, name, role=one(fields, "role"), **_reach(fields))
        elif what == "password":
            given = fields.get("password", [""])[0]
            password = given or one_time_password()
            accounts.set_password(actor, name, password)
            if not given and not myself:
                return _one(looking, name, secret=password)
        elif what == "sign_out":
            accounts.end_sessions(actor, name)
        elif what in {"disable", "enable"}:
            accounts.person(actor, name)
            if what == "disable":
                is_sure(fields)
            _stay(myself=myself)
            accounts.set_person(actor, name, disabled=what == "disable")
        else:
            accounts.person(actor, name)
            return _one(looking, name, problem=Invalid("there is no such form"))
    except (Invalid, Clash) as problem:
        return _one(looking, name, problem=problem)
    return RedirectResponse(f"{PATH}/{name}?done=true", status_code=303)


def _stay(*, myself: bool) -> None:
    """Whoever locks themselves out cannot undo it."""
    if myself:
        raise Clash("you would lock yourself out: ask another admin")


def _reach(fields: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "all_sites": one(fields, "all_sites") == "1",
        "sites": [site for site in fields.get("site", []) if site],
        "queues": [queue for queue in fields.get("queue", []) if queue],
    }


def _list(
    looking: PageContext,
    *,
    problem: Problem | None = None,
    fields: dict[str, list[str]] | None = None,
) -> HTMLResponse:
    everybody = looking.service.accounts.people(looking.actor)
    return looking.page(
        "admin_people.html",
        status=problem.status if problem else 200,
        tab="people",
        people=everybody,
        problem=problem,
        given=fields or {},
        **_choices(looking),
    )


def _one(
    looking: PageContext,
    name: str,
    *,
    problem: Problem | None = None,
    secret: str | None = None,
    done: bool = False,
) -> HTMLResponse:
    accounts = looking.service.accounts
    found: Person = accounts.person(looking.actor, name)
    return looking.page(
        "admin_person.html",
        status=problem.status if problem else 200,
        tab="people",
        person=found,
        sessions=accounts.directory.sessions_of(found.name),
        myself=looking.actor.name == f"user:{found.name}",
        problem=problem,
        secret=secret,
        done=done,
        now=accounts.now(),
        **_choices(looking),
    )


def _choices(looking: PageContext) -> dict[str, Any]:
    return {
        "roles": [(role, looking.say(ROLE_WORDS[role])) for role in ROLES],
        "sites": [site.id for site in looking.service.accounts.sites(looking.actor)],
        "queues": [(name, looking.title_of(name)) for name in looking.service.queues],
    }
