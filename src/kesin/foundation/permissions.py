"""Permissions: one table of what a scope or a role allows. Every command checks here first."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from kesin.foundation.problems import Forbidden

Scope = Literal[
    "oci:ingest", "oci:script", "pdf", "pdf:html", "optiplan",
    "read", "operate", "reveal", "metrics", "admin",
]  # fmt: skip
Permission = Scope | Literal["cron"]
UserRole = Literal["viewer", "operator", "admin"]

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
ROLES: Final[tuple[UserRole, ...]] = get_args(UserRole)
SCOPE_PURPOSES: Final[dict[Scope, str]] = {
    "oci:ingest": "post conversions for its site",
    "oci:script": "export and acknowledge conversions for its site",
    "pdf": "request PDFs and download its own",
    "pdf:html": "in addition to pdf: request PDFs from any HTML",
    "optiplan": "create and read orders and customers",
    "read": "see jobs",
    "operate": "see jobs and act on them",
    "reveal": "see personal data and click ids unmasked",
    "metrics": "read the metrics",
    "admin": "everything",
}
# An API key with one of these scopes belongs to a site.
SITE_SCOPES: Final = frozenset({"oci:ingest", "oci:script"})
# A site does not narrow what these allow, so an API key with one of them has no site.
SITELESS_SCOPES: Final = frozenset({"pdf", "pdf:html", "optiplan", "metrics", "admin"})

# What each scope and role allows. Admin allows everything but the cron endpoints.
PERMISSIONS: Final[dict[str, frozenset[Permission]]] = {
    **{scope: frozenset({scope}) for scope in SCOPES},
    "operate": frozenset({"read", "operate", "reveal"}),
    "viewer": frozenset({"read"}),
    "operator": frozenset({"read", "operate", "reveal"}),
    "admin": frozenset(SCOPES),
    "cron": frozenset({"cron"}),
}


@dataclass(frozen=True, slots=True)
class Actor:
    """The caller of a command. ``name`` is the caller's name in the audit log."""

    name: str
    grants: frozenset[str]  # scopes, or the role
    all_sites: bool = False
    sites: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    address: str | None = None
    request_id: str | None = None
    by_token: bool = False  # authenticated by a short-lived token, so it gets no further token

    def has(self, permission: Permission) -> bool:
        """Whether any of the actor's grants gives the permission, for any site."""
        # A grant that this version does not know allows nothing.
        return any(permission in PERMISSIONS.get(grant, ()) for grant in self.grants)

    @property
    def is_admin(self) -> bool:
        """Whether the actor has all permissions."""
        return self.has("admin")

    def sites_in(self, queue: str, *, sited: bool = True) -> frozenset[str] | None:
        """The sites whose jobs the actor may see in this queue; all if None, none if empty.

        A queue whose tenants are not sites (``sited=False``) is visible entirely or not at all.
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
        """Whether the actor may see the site's jobs in the queue."""
        sites = self.sites_in(queue, sited=sited)
        return sites is None or site in sites


def system_actor(name: str) -> Actor:
    """An actor of the machine itself, such as the command line or the service."""
    return Actor(name, frozenset({"admin"}), all_sites=True)


def require(actor: Actor, *permissions: Permission) -> None:
    """Raise Forbidden unless the actor has one of the permissions."""
    if not any(map(actor.has, permissions)):
        needed, names = {"needs": permissions[0]}, " / ".join(map(repr, permissions))
        raise Forbidden("this needs the permission %(right)s", details=needed, right=names)
