"""Who may do what. The one place that answers; everything that acts asks here first.

An actor is a person, a key, the cron caller or the command line. Rights are few: what a scope or a
role allows is one table. Sites are tenants: rows of a site are seen by whoever has that site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from kesin.foundation.problems import Refused

Scope = Literal[
    "oci:ingest", "oci:script", "pdf", "optiplan", "read", "operate", "metrics", "admin"
]
Right = Scope | Literal["cron"]
Role = Literal["viewer", "operator", "admin"]

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
ROLES: Final[tuple[Role, ...]] = get_args(Role)
SITE_SCOPES: Final = frozenset({"oci:ingest", "oci:script"})  # a key with one of these names a site

# What each scope and role allows. Admin allows everything but the cron caller's doors.
RIGHTS: Final[dict[str, frozenset[Right]]] = {
    "oci:ingest": frozenset({"oci:ingest"}),
    "oci:script": frozenset({"oci:script"}),
    "pdf": frozenset({"pdf"}),
    "optiplan": frozenset({"optiplan"}),
    "read": frozenset({"read"}),
    "operate": frozenset({"read", "operate"}),
    "metrics": frozenset({"metrics"}),
    "viewer": frozenset({"read"}),
    "operator": frozenset({"read", "operate"}),
    "admin": frozenset(
        {"oci:ingest", "oci:script", "pdf", "optiplan", "read", "operate", "metrics", "admin"}
    ),
    "cron": frozenset({"cron"}),
}
_NOTHING: Final[frozenset[Right]] = frozenset()  # what a grant of another version allows


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who asks. ``name`` is what the audit log says."""

    name: str
    grants: frozenset[str]  # scopes, or the role
    all_sites: bool = False
    sites: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    address: str | None = None
    request_id: str | None = None
    by_token: bool = False  # a short-lived token stands for it: it gets no further one

    def has(self, right: Right) -> bool:
        """Whether any of its grants allows this, somewhere."""
        return any(right in RIGHTS.get(grant, _NOTHING) for grant in self.grants)

    @property
    def is_admin(self) -> bool:
        """Whether everything is open to it."""
        return self.has("admin")

    def sites_in(self, queue: str, *, sited: bool = True) -> frozenset[str] | None:
        """Whose rows of this queue it may see; None is everybody's, the empty set nobody's.

        A queue whose tenants are no sites is seen whole or not at all.
        """
        if self.is_admin:
            return None
        named = queue in self.queues
        if not sited:
            return None if named or (self.all_sites and not self.queues) else frozenset()
        if self.queues and not named:
            return frozenset()
        return None if self.all_sites else self.sites

    def sees(self, queue: str, site: str, *, sited: bool = True) -> bool:
        """Whether it may know of a row of that site in that queue."""
        sites = self.sites_in(queue, sited=sited)
        return sites is None or site in sites


def system(name: str) -> Actor:
    """Whoever sits at the machine itself: the command line, the service."""
    return Actor(name, frozenset({"admin"}), all_sites=True)


def require(actor: Actor, right: Right) -> None:
    """Raise Refused unless the actor has this right."""
    if not actor.has(right):
        raise Refused(f"this needs the right {right!r}", details={"needs": right})
