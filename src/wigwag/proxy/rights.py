"""What an account may read, once the API server has said whose token it is: the policies of `--auth-policy`.

| policy | an account may read |
|---|---|
| `rbac` | what Kubernetes lets it `get`; or `list`, where the target is what labels choose |
| `grant` | its own namespace, and objects of others whose annotation `openfeature.dev/allow-from` names that |
| `deny` | its own namespace |
| `allow` | everything |

By namespace, nobody needs a Role, and the proxy needs no SubjectAccessReview. An object that does not exist in another
namespace is refused as one without a grant is, so that nobody finds out what is there. A grant is that of one object:
what labels choose in another namespace is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from wigwag.kube.grants import is_granted
from wigwag.kube.kinds import SUBJECT_ACCESS_REVIEW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.kube.kinds import Kind
    from wigwag.sources.kubernetes.address import ObjectsAddress

POLICIES = ("rbac", "grant", "deny", "allow")
_ACCOUNT = ["system", "serviceaccount"]


class TokenUser(Struct, frozen=True):
    """The user of a token, as the API server sees it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}

    @property
    def namespace(self) -> str:
        """The namespace of a service account; empty for anybody else.

        >>> TokenUser("system:serviceaccount:team-a:app").namespace, TokenUser("jane").namespace
        ('team-a', '')
        """
        *kind, namespace, name = ["", "", *self.username.split(":")]
        return namespace if kind[2:] == _ACCOUNT and name else ""


class Reviews(Protocol):
    """Asks an API server to review something."""

    async def create(self, kind: Kind, made: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object; return it with the server's answer in it."""
        ...


class Metadata(Protocol):
    """Reads the metadata of objects."""

    async def find_metadata(self, kind: Kind, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        """Return the metadata of an object; None if there is none."""
        ...


class Rights(Protocol):
    """Decides by one of the policies."""

    async def __call__(self, user: TokenUser, place: ObjectsAddress) -> bool:
        """Tell whether a user may read objects."""
        ...


@dataclass(frozen=True)
class RbacRights:
    """Those that Kubernetes gives."""

    reviews: Reviews

    async def __call__(self, user: TokenUser, place: ObjectsAddress) -> bool:
        """Ask whether a user may `get` an object, or `list` objects."""
        wanted = {
            "verb": "get" if place.name else "list",
            "group": place.kind.group,
            "version": place.kind.version,
            "resource": place.kind.plural,
            "namespace": place.namespace,
            "name": place.name,
        }
        spec = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        spec |= {"resourceAttributes": wanted}
        status = await review_status(self.reviews, SUBJECT_ACCESS_REVIEW, "SubjectAccessReview", spec)
        return status.get("allowed") is True


@dataclass(frozen=True)
class NamespaceRights:
    """Those of an account's namespace."""

    metadata: Metadata
    policy: str

    async def __call__(self, user: TokenUser, place: ObjectsAddress) -> bool:
        """Compare namespaces; ask for the grant of an object elsewhere, if grants count."""
        if self.policy == "allow" or (user.namespace and user.namespace == place.namespace):
            return True
        if self.policy == "deny" or not (user.namespace and place.name):
            return False
        about = await self.metadata.find_metadata(place.kind, place.name, place.namespace)
        return about is not None and is_granted(about.get("annotations") or {}, user.namespace)


async def review_status(reviews: Reviews, kind: Kind, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Have the API server review something; return its answer, which may be empty."""
    made = await reviews.create(kind, {"apiVersion": kind.api, "kind": name, "spec": spec})
    status = made.get("status")
    return status if isinstance(status, dict) else {}
