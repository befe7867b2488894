"""Adds a site like another one, and removes a site, whose jobs and audit lines stay."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.validation import invalid_field
from kesin.engine.workload import Workload
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Invalid, RequestConflict
from kesin.store.directory import Site


@dataclass(frozen=True, slots=True)
class RemovalPreview:
    """What removing a site deletes and keeps."""

    site: str
    open: dict[str, int]  # jobs that are not at rest or finished, by queue: they forbid it
    ended: dict[str, int]  # the others, by queue: they stay
    keys: list[str]  # ids of keys that it revokes
    secrets: list[str]  # names of sealed credentials that it deletes
    users: list[str]  # names of users who are limited to it, among others or alone


def create_site(
    accounts: Accounts,
    served: Mapping[str, Workload],
    actor: Actor,
    site_id: str,
    *,
    like: str | None = None,
    **given: str | None,
) -> tuple[Site, bool]:
    """Add a site, with the values of ``like`` for the rest; False if it exists like that."""
    accounts.require(actor, "admin", "site.add", site=site_id)
    directory = accounts.directory
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    inherited: dict[str, Any] = {}
    model = directory.site(like) if like is not None else None
    if model is not None:
        stored = {k: v for k, v in json.loads(model.settings).items() if k in served}
        for name, own in stored.items():
            stored[name] = {k: own[k] for k in own.keys() - served[name].account_settings}
        inherited = {name: getattr(model, name) for name in ("channel", "timezone", "currency")}
        inherited["settings"] = stored
    elif like is not None and directory.site(site_id) is None:
        raise invalid_field("like", "there is no site %(site)s", site=repr(like))
    try:
        return accounts.add_site(actor, site_id, **inherited | values), True
    except RequestConflict:
        there = directory.site(site_id)
        if there is None or any(getattr(there, name) != values[name] for name in values):
            raise
        return there, False


def preview_removal(commands: Commands, actor: Actor, site_id: str) -> RemovalPreview:
    """What `remove_site` would do now, for admins; raises NotFound."""
    commands.accounts.require(actor, "admin", "site.remove", site=site_id)
    with commands.accounts.kept_site(site_id):
        return _preview(commands, site_id)


def _sited_queues(commands: Commands) -> list[Queue]:
    return [commands.queues[n] for n in sorted(commands.queues) if commands.workload(n).has_sites]


def _preview(commands: Commands, site_id: str) -> RemovalPreview:
    directory, waiting, ended = commands.accounts.directory, Counter[str](), Counter[str]()
    queues = _sited_queues(commands)
    for queue in queues:
        for state, n in queue.stats().tenants.get(site_id, {}).items():
            known = queue.lifecycle.state.get(state)
            (ended if known and not known.working else waiting)[queue.name] += n
    keys = [key.id for key in directory.api_keys() if key.site == site_id and not key.revoked_at]
    secrets = [name for q in queues if directory.secret(name := f"{q.name}/{site_id}")]
    users = [user.name for user in directory.users() if site_id in user.sites]
    return RemovalPreview(site_id, dict(+waiting), dict(+ended), keys, secrets, users)


def remove_site(commands: Commands, actor: Actor, site_id: str, confirm: str) -> RemovalPreview:
    """Remove a site, in one transaction with its audit line; return what that ended.

    Raises Invalid unless ``confirm`` is the id again, and RequestConflict while it has open jobs. A
    job that arrives meanwhile is counted here, or it finds the site gone and is refused. A later
    site of this id gets none of its pauses and metadata.
    """
    accounts, directory = commands.accounts, commands.accounts.directory
    accounts.require(actor, "admin", "site.remove", site=site_id)
    with directory.transaction():
        if not directory.delete_site(site_id):  # it waits for all who keep the site
            raise accounts.missing_site(site_id)
        if confirm != site_id:
            why = "repeat the id of the site to confirm its removal"
            raise Invalid(why, code="not_confirmed", details={"field": "confirm"})
        preview = _preview(commands, site_id)
        why = "the site %(site)s has open jobs (%(jobs)s): let them finish, or mark them as failed"
        if preview.open:
            jobs = ", ".join(f"{name}: {n}" for name, n in preview.open.items())
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
        for queue in _sited_queues(commands):
            queue.resume(tenant=site_id)
            for entry in directory.metadata_entries(queue.name, site=site_id):
                directory.delete_metadata(queue.name, site_id, entry.name)
        accounts.note(actor, "site.remove", site=site_id, details=asdict(preview))
    return preview
