"""The kinds of an API server, fetched when they are needed and shared by all watches of it.

    GET /api, /apis ──▶ aggregated discovery: all groups, versions and kinds in two responses
                   └──▶ older servers: groups and versions; then one APIResourceList for each version

Discovery is for the start of a watch and for trouble: a name that no kind has, a kind that is no longer served. An open
watch costs no request. `refresh` fetches the table again if the back-off allows it; callers at the same time share its
requests. There is no other retry: who needs a kind asks again when the next refresh is `due`. Where the server sends an
ETag, a table that has not changed is an empty response.

A part that cannot be fetched does not hide the others: what was known of it stays in force.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from wigwag.errors import UsageError, WigwagError
from wigwag.kube.client import NOT_MODIFIED, ApiRequest
from wigwag.kube.errors import ApiError, UnknownKindError
from wigwag.kube.kinds import Kind
from wigwag.kube.kindtable import GroupVersion, KindTable, ServedKind
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.wire.client.errors import FetchError
from wigwag.wire.h1.client import ResponseLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.kube.client import Kube
    from wigwag.wire.client.client import ClientResponse

T = TypeVar("T")
ROOTS = ("/api", "/apis")
"""Where the core group is, and where all others are."""
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
ACCEPT = f"{AGGREGATED.format('v2')},{AGGREGATED.format('v2beta1')},application/json"
LIMITS = ResponseLimits(total=15.0, body_bytes=32 << 20)
MOST_VERSIONS = 10_000
"""How many versions of groups are read."""
BACKOFF = Backoff(first=1.0, most=15.0)
_WATCHABLE = {"list", "watch"}


class _Names(Struct, frozen=True):
    name: str = ""
    kind: str = ""


class _Resource(Struct, rename="camel"):
    """A kind, in aggregated discovery."""

    resource: str
    response_kind: _Names | None = None
    scope: str = "Namespaced"
    singular_resource: str = ""
    verbs: tuple[str, ...] | None = None
    short_names: tuple[str, ...] | None = None


class _LegacyResource(Struct, rename="camel"):
    """A kind or a subresource, in an APIResourceList."""

    name: str
    kind: str = ""
    namespaced: bool = True
    singular_name: str = ""
    verbs: tuple[str, ...] | None = None
    short_names: tuple[str, ...] | None = None

    def resource(self) -> _Resource:
        """Return it as in aggregated discovery."""
        scope = "Namespaced" if self.namespaced else "Cluster"
        kind = _Names(kind=self.kind)
        return _Resource(self.name, kind, scope, self.singular_name, self.verbs, self.short_names)


class _ResourceList(Struct):
    resources: tuple[_LegacyResource, ...] | None = None


class _Version(Struct):
    version: str
    freshness: str = ""
    resources: tuple[_Resource, ...] | None = None


class _Group(Struct, rename="camel"):
    name: str = ""
    metadata: _Names = _Names()
    """Has the name in aggregated discovery; none for the core group."""
    versions: tuple[_Version, ...] | None = None
    preferred_version: _Version | None = None


class _Groups(Struct):
    """An APIGroupDiscoveryList has items, an APIGroupList groups, and APIVersions versions."""

    kind: str
    items: tuple[_Group, ...] | None = None
    groups: tuple[_Group, ...] | None = None
    versions: tuple[str, ...] | None = None


def read_groups(body: bytes) -> tuple[GroupVersion, ...]:
    """Read the response to GET /api or /apis. `msgspec.MsgspecError` if it is none."""
    document = msgspec.json.decode(body, type=_Groups)
    if document.kind == "APIGroupDiscoveryList":
        listed = ((group.metadata.name, each) for group in document.items or () for each in group.versions or ())
        return tuple(_aggregated(name, version) for name, version in listed)
    named = [("", version) for version in document.versions or ()]
    named += [(group.name, version) for group in document.groups or () for version in _ordered(group)]
    return tuple(GroupVersion(*each) for each in named if _in_a_path(*each))


def read_kinds(body: bytes, of: GroupVersion) -> GroupVersion:
    """Read the APIResourceList of one version. `msgspec.MsgspecError` if it is none."""
    resources = msgspec.json.decode(body, type=_ResourceList).resources or ()
    return _with_kinds(of, (each.resource() for each in resources))


def _aggregated(group: str, version: _Version) -> GroupVersion:
    listed = GroupVersion(group, version.version)
    stale = f"the API server behind {listed} does not answer" if version.freshness == "Stale" else ""
    return _with_kinds(replace(listed, fault=stale), version.resources or ())


def _ordered(group: _Group) -> Iterable[str]:
    """Return the versions, the preferred one first."""
    preferred = [group.preferred_version] if group.preferred_version else []
    return dict.fromkeys(each.version for each in (*preferred, *(group.versions or ())))


def _in_a_path(group: str, version: str) -> bool:
    """Tell whether a path can have this group and version."""
    with suppress(UsageError):
        return bool(Kind(group, version, "any"))
    return False


def _with_kinds(of: GroupVersion, resources: Iterable[_Resource]) -> GroupVersion:
    """Return the version with its kinds, without those that are subresources only or that no path can have."""
    kinds: list[ServedKind] = []
    for each in resources:
        name = each.response_kind.kind if each.response_kind else ""
        with suppress(UsageError):
            kind = Kind(of.group, of.version, each.resource, each.scope != "Cluster", name)
            watchable = {*(each.verbs or ())} >= _WATCHABLE
            served = ServedKind(kind, each.singular_resource or name.lower(), each.short_names or (), watchable)
            kinds += [served] if name else []
    return replace(of, kinds=tuple(kinds))


class _Root(NamedTuple):
    """What is known from GET /api or /apis."""

    versions: tuple[GroupVersion, ...] = ()
    etag: str = ""
    """Only of aggregated discovery: otherwise the kinds may change and the groups stay."""


class Discovery:
    """The kinds of one API server."""

    def __init__(self, kube: Kube, backoff: Backoff = BACKOFF) -> None:
        self._kube, self._backoff, self._retry = kube, backoff, Retry(backoff, kube.deps.random)
        self._roots: dict[str, _Root] = {}
        self._table = KindTable()
        self._error: WigwagError | None = None
        self._lock = asyncio.Lock()
        self.due = -math.inf
        """The earliest time of the next refresh."""

    async def resolve(self, name: str) -> Kind:
        """Return the kind that a name means, after a refresh if it is not known and a refresh is due.

        `UnknownKindError` if the server has no such kind; the error of the request if it cannot be asked.
        """
        with suppress(UnknownKindError):
            return self._table.resolve(name)
        await self.refresh()
        if self._error is not None and not self._table.versions:
            raise self._error.with_traceback(None)
        return self._table.resolve(name)

    def refresh_soon(self) -> None:
        """Bring the next refresh forward: somebody has a new reason for one."""
        now = self._kube.deps.clock.now()
        if self.due > now + self._backoff.first:
            self._retry.succeeded()
            self.due = min(self.due, self._retry.next(now))

    async def refresh(self) -> None:
        """Fetch the kinds if that is due; else, or if the server cannot be asked, those of the last time stay."""
        now = self._kube.deps.clock.now
        async with self._lock:
            if now() < self.due:
                return
            errors = [error for path in ROOTS if (error := await self._update(path))]
            versions = tuple(each for path in ROOTS if path in self._roots for each in self._roots[path].versions)
            if versions != self._table.versions:
                self._retry.succeeded()
            self._table, self._error = KindTable(versions, tuple(map(str, errors))), next(iter(errors), None)
            retry_after = [error.retry_after or 0.0 for error in errors if isinstance(error, ApiError)]
            self.due = self._retry.next(now(), max(retry_after, default=0.0))

    async def _update(self, path: str) -> WigwagError | None:
        """Fetch one of the roots; return why that is not possible."""
        try:
            self._roots[path] = await self._fetch(path, self._roots.get(path, _Root()))
        except ApiError as error:
            if not error.not_found:
                return error
            self._roots[path] = _Root()  # it has no such groups
        except WigwagError as error:
            return error
        return None

    async def _fetch(self, path: str, known: _Root) -> _Root:
        response = await self._kube.fetch(ApiRequest(path, accept=ACCEPT, etag=known.etag), LIMITS)
        if response.status == NOT_MODIFIED:
            return known
        versions = self._decoded(read_groups, response)
        etag = response.field("etag") if all(each.kinds is not None for each in versions) else ""
        return _Root(tuple([await self._completed(path, each) for each in versions[:MOST_VERSIONS]]), etag)

    async def _completed(self, root: str, version: GroupVersion) -> GroupVersion:
        """Return a version with its kinds: fetched if need be, those of the last time if they cannot be."""
        if version.kinds is not None:
            return version.or_last(self._table, version.fault) if version.fault else version
        try:
            response = await self._kube.fetch(ApiRequest(f"{root}/{version}"), LIMITS)
            return self._decoded(partial(read_kinds, of=version), response)
        except WigwagError as error:
            return version.or_last(self._table, str(error))

    def _decoded(self, read: Callable[[bytes], T], response: ClientResponse) -> T:
        try:
            return read(response.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise FetchError(self._kube.endpoint, f"the list of kinds cannot be decoded: {error}") from error
