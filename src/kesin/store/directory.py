"""Sites, users, keys (as hashes only), secrets, metadata; `engine/access` checks permissions."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from kesin.store.audit_log import AuditLog, Row

Record = TypeVar("Record")


class Site(NamedTuple):
    """A client's site: the tenant its jobs carry."""

    id: str
    name: str
    channel: str  # script, api or data_manager
    timezone: str
    currency: str
    settings: str  # JSON of its workloads' settings
    created_at: int
    changed_at: int


class User(NamedTuple):
    """A person who can sign in."""

    name: str
    password_hash: str
    role: str
    all_sites: bool
    sites: tuple[str, ...]
    queues: tuple[str, ...]
    created_at: int
    changed_at: int
    disabled_at: int | None = None


class Session(NamedTuple):
    """A user's session; only the hash of the cookie's value is stored."""

    token_hash: str
    person: str
    created_at: int
    used_at: int
    expires_at: int
    address: str


class ApiKey(NamedTuple):
    """An API key; only the hash of its secret is stored."""

    id: str
    secret_hash: str
    name: str
    scopes: tuple[str, ...]
    site: str | None
    created_at: int
    created_by: str
    expires_at: int | None = None
    used_at: int | None = None
    revoked_at: int | None = None


class Secret(NamedTuple):
    """An encrypted value; `foundation/encryption.py` decrypts it."""

    name: str
    sealed: str
    changed_at: int
    changed_by: str


class MetadataEntry(NamedTuple):
    """A value that a workload keeps for a site, or with '' for all sites."""

    workload: str
    site: str
    name: str
    value: str  # JSON
    changed_at: int


class Directory(AuditLog):
    """The tables in a store that are not about jobs."""

    # Sites

    def sites(self) -> list[Site]:
        return [Site._make(row) for row in self._read("sites", id=None)]

    def site(self, site_id: str) -> Site | None:
        return _first(Site._make, self._read("sites", id=site_id))

    def lock_site(self, site_id: str) -> Site | None:
        """Lock the site until the transaction ends, and return it."""
        return _first(Site._make, self._rows("hold_site", id=site_id))

    def add_site(self, site: Site) -> bool:
        """Insert a site; return False if its id exists."""
        return self._write("add_site", **site._asdict())

    def update_site(self, site: Site) -> bool:
        return self._write("change_site", **_as_params(site, "created_at"))

    def keep_site(self, site_id: str) -> bool:
        """Let no one delete the site until the transaction ends; return whether there is one."""
        return self._write("keep_site", id=site_id)

    def delete_site(self, site_id: str) -> bool:
        """Delete a site and nothing else, once no transaction keeps it."""
        return self._write("drop_site", id=site_id)

    # Users

    def users(self) -> list[User]:
        return [_user_from_row(row) for row in self._read("people", name=None)]

    def user(self, name: str) -> User | None:
        return _first(_user_from_row, self._read("people", name=name))

    def lock_user(self, name: str) -> User | None:
        """Lock the user until the transaction ends, and return it."""
        return _first(_user_from_row, self._rows("hold_person", name=name))

    def add_user(self, user: User) -> bool:
        """Insert a user; return False if the name is taken."""
        return self._write("add_person", **_as_params(user))

    def update_user(self, user: User) -> bool:
        return self._write("change_person", **_as_params(user, "created_at"))

    # Sessions

    def session(self, token_hash: str) -> Session | None:
        return _first(Session._make, self._read("session", token_hash=token_hash))

    def sessions_of(self, person: str) -> list[Session]:
        return [Session._make(row) for row in self._read("sessions_of", person=person)]

    def add_session(self, session: Session) -> None:
        self._write("add_session", **session._asdict())

    def touch_session(self, token_hash: str, now: int) -> None:
        self._write("use_session", token_hash=token_hash, used_at=now)

    def end_session(self, token_hash: str) -> bool:
        return self._write("end_session", token_hash=token_hash)

    def end_sessions_of(self, person: str) -> int:
        return len(self._rows("end_sessions_of", person=person))

    def end_old_sessions(self, now: int, idle_since: int) -> int:
        return len(self._rows("end_old_sessions", now=now, idle_since=idle_since))

    # Keys

    def api_keys(self) -> list[ApiKey]:
        return [_key_from_row(row) for row in self._read("keys", id=None)]

    def api_key(self, key_id: str) -> ApiKey | None:
        return _first(_key_from_row, self._read("keys", id=key_id))

    def add_key(self, key: ApiKey) -> bool:
        return self._write("add_key", **_as_params(key))

    def touch_key(self, key_id: str, now: int) -> None:
        self._write("use_key", id=key_id, used_at=now)

    def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; return whether it was valid until now."""
        return self._write("revoke_key", id=key_id, revoked_at=now)

    # Secrets

    def secrets(self) -> list[Secret]:
        return [Secret._make(row) for row in self._read("secrets", name=None)]

    def secret(self, name: str) -> Secret | None:
        return _first(Secret._make, self._read("secrets", name=name))

    def put_secret(self, secret: Secret) -> None:
        self._write("put_secret", **secret._asdict())

    def reseal(self, name: str, before: str, sealed: str) -> bool:
        """Store a secret encrypted with another key, unless it has changed meanwhile."""
        return self._write("reseal", name=name, before=before, sealed=sealed)

    def delete_secret(self, name: str) -> bool:
        return self._write("drop_secret", name=name)

    # Metadata

    def metadata_entries(
        self, workload: str, *, site: str | None = None, name: str | None = None
    ) -> list[MetadataEntry]:
        """The entries of a workload, or of one of its sites, or of one name."""
        rows = self._read("facts", workload=workload, site=site, name=name)
        return [MetadataEntry._make(row) for row in rows]

    def metadata_page(
        self, workload: str, site: str, *, after: str = "", skip: int = 0, limit: int
    ) -> list[MetadataEntry]:
        """Some entries of a site, in the order of their names, from after a name on."""
        params = {"workload": workload, "site": site, "after": after, "skip": skip, "most": limit}
        return [MetadataEntry._make(row) for row in self._read("fact_page", **params)]

    def metadata_entry(self, workload: str, site: str, name: str) -> MetadataEntry | None:
        return next(iter(self.metadata_entries(workload, site=site, name=name)), None)

    def put_metadata(self, entry: MetadataEntry) -> None:
        self._write("put_fact", **entry._asdict())

    def lock_metadata(self, workload: str, site: str, name: str, now: int) -> MetadataEntry:
        """Lock an entry until the transaction ends and return it; a new one holds ``null``."""
        rows = self._rows("hold_fact", workload=workload, site=site, name=name, now=now)
        return MetadataEntry._make(rows[0])

    def delete_metadata(self, workload: str, site: str, name: str) -> bool:
        """Delete an entry; return whether there was one."""
        return self._write("drop_fact", workload=workload, site=site, name=name)

    # Statements

    def _write(self, statement: str, **params: Any) -> bool:
        return bool(self._rows(statement, **params))


def _as_params(record: NamedTuple, *without: str) -> dict[str, Any]:
    """The record as statement parameters: lists as JSON, booleans as numbers."""
    params: dict[str, Any] = {k: v for k, v in record._asdict().items() if k not in without}
    for name, value in params.items():
        if isinstance(value, tuple):
            params[name] = json.dumps(value)
        elif isinstance(value, bool):
            params[name] = int(value)
    return params


def _first(decode: Callable[[Row], Record], rows: list[Row]) -> Record | None:
    return decode(rows[0]) if rows else None


def _user_from_row(row: Row) -> User:
    user = User._make(row)
    sites, queues = (tuple(json.loads(str(names))) for names in (user.sites, user.queues))
    return user._replace(all_sites=bool(user.all_sites), sites=sites, queues=queues)


def _key_from_row(row: Row) -> ApiKey:
    key = ApiKey._make(row)
    return key._replace(scopes=tuple(json.loads(str(key.scopes))))
