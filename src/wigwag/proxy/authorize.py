"""Whether a subscriber may have a target: always, or if Kubernetes says so.

With `--auth=kubernetes` a subscriber shows the token of its service account. The API server tells whose it is
(TokenReview), and a policy whether that account may read the object (`rights`). Answers are cached for a short time, so
that pods that start or reconnect together do not ask twice; refusals for a shorter time, because a role may just be
being added. Equal questions that come while one is under way share its answer. If the API server does not answer, new
streams are refused; open ones go on (`permissions`).
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.errors import WigwagError
from wigwag.kube.kinds import TOKEN_REVIEW
from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.proxy.rights import NamespaceRights, RbacRights, TokenUser, review_status
from wigwag.sources.kubernetes.address import read_address
from wigwag.wire.rpc import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from wigwag.kube.hub import Hub
    from wigwag.proxy.options import ProxyOptions
    from wigwag.proxy.rights import Reviews, Rights
    from wigwag.sources.kubernetes.address import ObjectsAddress
    from wigwag.sources.source import Source

ALLOWED_SECONDS, REFUSED_SECONDS = 60.0, 5.0
MOST_KEPT = 10_000
AT_ONCE = 16
"""Questions to the API server at one time."""
LONGEST_TOKEN = 16 * 1024
NO_TOKEN = "say who subscribes, by the metadata authorization: Bearer TOKEN of a service account"  # noqa: S105 - a message
STRANGER = "Kubernetes does not know this token, it has expired, or is meant for another audience; send the current one"
NOT_ALLOWED = (
    "this service account may not read that, or it does not exist; use a FeatureFlag of its namespace, "
    "bind the account to a role (--auth-policy=rbac), or have the FeatureFlag grant it (openfeature.dev/allow-from)"
)
ONLY_FLAGS = "with --auth=kubernetes only objects of Kubernetes can be subscribed to"
_OBJECTS = ("kubernetes", "configmap")
CANNOT_ASK = "the proxy cannot ask Kubernetes who may subscribe; try again later"


def authorizer(options: ProxyOptions, hub: Hub) -> Review | None:
    """Return what the options ask for; None: every subscriber is admitted."""
    if options.auth == "none":
        return None
    by_namespace = None if options.auth_policy == "rbac" else NamespaceRights(hub.kube, options.auth_policy)
    return Review(hub.kube, audience=options.auth_audience, rights=by_namespace)


class Review:
    """Asks an API server, and remembers what it said."""

    def __init__(
        self,
        reviews: Reviews,
        clock: Clock = LoopClock(),  # noqa: B008 - it has no state
        most: int = MOST_KEPT,
        audience: str = "",
        rights: Rights | None = None,
    ) -> None:
        """`most`: answers of each kind in the cache. `audience`: for whom tokens are issued; empty: the API server.

        `rights` decide what an account may read; None: those of RBAC.
        """
        self._reviews, self._clock, self._most, self._audience = reviews, clock, most, audience
        self._may = rights or RbacRights(reviews)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._users: dict[bytes, tuple[float, TokenUser | None]] = {}
        self._rights: dict[tuple[bytes, ObjectsAddress], tuple[float, bool]] = {}
        self._asking: dict[object, asyncio.Future[Any]] = {}

    async def __call__(self, token: str | None, source: Source, *, cached: bool = True) -> str:
        """Return the namespace of a token that may have a source, or raise `RpcError`.

        Without `cached`, the answer is asked for anew.
        """
        if source.provider not in _OBJECTS:
            raise RpcError(Code.PERMISSION_DENIED, ONLY_FLAGS)
        if token is None or len(token) > LONGEST_TOKEN:
            raise RpcError(Code.UNAUTHENTICATED, NO_TOKEN)
        digest = sha256(token.encode()).digest()  # the cache holds no token
        place = read_address(source.name, source.provider)
        if not cached:
            self._users.pop(digest, None)
            self._rights.pop((digest, place), None)
        user = await self._kept(self._users, digest, lambda: self._user(token))
        if user is None:
            raise RpcError(Code.UNAUTHENTICATED, STRANGER)
        if not await self._kept(self._rights, (digest, place), lambda: self._may(user, place)):
            raise RpcError(Code.PERMISSION_DENIED, NOT_ALLOWED)
        namespace: str = user.namespace
        return namespace

    @property
    def cached(self) -> int:
        """How many answers are cached."""
        return len(self._users) + len(self._rights)

    async def _kept(self, kept: dict[Any, tuple[float, Any]], key: object, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return an answer that is not too old, or a new one: that of a question under way, or of one of our own."""
        while True:
            if (known := self._known(kept, key)) is not None:
                return known[1]
            if (asking := self._asking.get(key)) is None:
                break
            await asyncio.wait([asking])
            if not asking.cancelled():
                return asking.result()
        asking = self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            async with self._slots:
                answer = await self._asked(ask)
        except RpcError as error:
            asking.set_exception(error)
            asking.exception()  # marks it as retrieved: nothing may be waiting for it
            raise
        else:
            asking.set_result(answer)
        finally:
            asking.cancel()  # if it is not done, those who wait for it ask themselves
            del self._asking[key]
        kept[key] = self._clock.now() + (ALLOWED_SECONDS if answer else REFUSED_SECONDS), answer
        if len(kept) > self._most:
            del kept[next(iter(kept))]
        return answer

    def _known(self, kept: dict[Any, tuple[float, Any]], key: object) -> tuple[float, Any] | None:
        known = kept.get(key)
        if known is not None and known[0] <= self._clock.now():
            del kept[key]
            return None
        return known

    async def _asked(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await ask()
        except (WigwagError, OSError, msgspec.MsgspecError) as error:
            raise RpcError(Code.UNAVAILABLE, CANNOT_ASK) from error

    async def _user(self, token: str) -> TokenUser | None:
        """Return whose token it is; None if it is not known, has expired, or is meant for somebody else."""
        audience = self._audience
        spec = {"token": token, "audiences": [audience]} if audience else {"token": token}
        status = await review_status(self._reviews, TOKEN_REVIEW, "TokenReview", spec)
        if status.get("authenticated") is not True or (audience and audience not in (status.get("audiences") or ())):
            return None
        return msgspec.convert(status.get("user") or {}, TokenUser)
