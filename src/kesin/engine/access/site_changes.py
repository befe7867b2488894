"""A site like another one, and the removal of a site: what stops it, what goes, what stays.

Jobs and audit lines of a removed site stay: actors who see all sites can read them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.validation import invalid_field
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, NotFound, RequestConflict
from kesin.store.directory import Site

if TYPE_CHECKING:
    from kesin.engine.workload import Workload


@dataclass(frozen=True, slots=True)
class RemovalPreview:
    """What the removal of a site ends and leaves."""

    site: str
    open: dict[str, int]  # jobs that are not at rest or finished, by queue: they forbid it
    ended: dict[str, int]  # the others, by queue: they stay
    keys: tuple[str, ...]  # ids of keys that it revokes
    secrets: tuple[str, ...]  # names of sealed credentials that it deletes
    users: tuple[str, ...]  # names of users who are limited to it, among others or alone


def create_site(
    accounts: Accounts,
    served: Mapping[str, Workload],
    actor: Actor,
    site_id: str,
    *,
    like: str | None = None,
    **given: str | None,
) -> tuple[Site, bool]:
    """Add a site, with what is not given as the site ``like`` has it; return whether it is new.

    A site that exists with these values stays as it is; with others it is a RequestConflict.
    """
    accounts.require(actor, "admin", "site.add", site=site_id)
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    there = accounts.directory.site(site_id)
    if there and all(getattr(there, name) == value for name, value in values.items()):
        return there, False
    if like is not None:
        model = accounts.directory.site(like)
        if model is None:
            raise invalid_field("like", "there is no site %(site)s", site=repr(like))
        alike = {name: getattr(model, name) for name in ("channel", "timezone", "currency")}
        stored = {k: v for k, v in json.loads(model.settings).items() if k in served}
        for name, own in stored.items():
            stored[name] = {k: own[k] for k in own.keys() - served[name].account_settings}
        values = {"settings": stored, **alike, **values}
    return accounts.add_site(actor, site_id, **values), True


def preview_removal(commands: Commands, actor: Actor, site_id: str) -> RemovalPreview:
    """What `remove_site` would do now, for admins; raises NotFound."""
    commands.accounts.require(actor, "admin", "site.remove", site=site_id)
    if commands.accounts.directory.site(site_id) is None:
        raise NotFound("there is no site %(site)s", site=repr(site_id))
    return _preview(commands, site_id)


def _preview(commands: Commands, site_id: str) -> RemovalPreview:
    directory, waiting, ended = commands.accounts.directory, Counter[str](), Counter[str]()
    sited = commands.queues.keys() - commands.queues_without_sites
    queues = [commands.queues[name] for name in sorted(sited)]
    for queue in queues:
        for state, n in queue.stats().tenants.get(site_id, {}).items():
            known = queue.lifecycle.state.get(state)
            (ended if known and not known.working else waiting)[queue.name] += n
    keys = [key for key in directory.api_keys() if key.site == site_id and not key.revoked_at]
    secrets = [f"{queue.name}/{site_id}" for queue in queues]
    return RemovalPreview(
        site_id,
        dict(+waiting),
        dict(+ended),
        tuple(key.id for key in keys),
        tuple(name for name in secrets if directory.secret(name)),
        tuple(user.name for user in directory.users() if site_id in user.sites),
    )


def remove_site(commands: Commands, actor: Actor, site_id: str, confirm: str) -> RemovalPreview:
    """Remove a site, in one transaction with its audit line; return what that ended.

    Raises Invalid unless ``confirm`` is the id again, and RequestConflict while it has open jobs. A
    job that arrives meanwhile is counted here, or it finds the site gone and is refused.
    """
    accounts, directory = commands.accounts, commands.accounts.directory
    with directory.transaction():
        preview_removal(commands, actor, site_id)  # raises
        if confirm != site_id:
            why = "repeat the id of the site to confirm that it goes"
            raise Invalid(why, code="not_confirmed", details={"field": "confirm"})
        directory.delete_site(site_id)  # it waits for all who keep the site
        preview = _preview(commands, site_id)
        if preview.open:
            jobs = ", ".join(f"{name}: {n}" for name, n in preview.open.items())
            why = "the site %(site)s has open jobs (%(jobs)s): let them finish, or fail them first"
            details, site = asdict(preview), repr(site_id)
            raise RequestConflict(why, code="open_jobs", details=details, site=site, jobs=jobs)
        now = accounts.now()
        for key_id in preview.keys:
            directory.revoke_key(key_id, now)
        for name in preview.secrets:
            directory.delete_secret(name)
        for user in filter(None, map(directory.lock_user, preview.users)):
            others = tuple(other for other in user.sites if other != site_id)
            directory.update_user(user._replace(sites=others, changed_at=now))
        accounts.note(actor, "site.remove", site=site_id, details=asdict(preview))
    return preview
