"""The objects of an API server, one request at a time: read, create, replace, patch, apply, delete.

Objects are plain JSON. A read that finds the server busy or gone is tried again, a few times and not for long; a write
is not, because only its caller knows whether it may happen twice. Whoever wants to *follow* objects uses `follow`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from wigwag.errors import UsageError
from wigwag.kube.errors import ApiError
from wigwag.kube.requests import JSON, ApiRequest, Requests
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import sleep_until
from wigwag.wire.client.errors import BrokenError, FetchError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.spec import Query
    from wigwag.wire.client.client import ClientResponse

Object: TypeAlias = dict[str, Any]
READS = 4
"""How many times a read is tried."""
PATIENCE = 10.0
"""The longest Retry-After that a read waits for, in seconds."""
PAGE = 500
_BUSY = (429, 503)
_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class ObjectList:
    """Objects as they were at one moment."""

    items: tuple[Object, ...]
    version: str


class Kube(Requests):
    """An API server."""

    async def get(self, kind: Kind, name: str, namespace: str = "", subresource: str = "") -> Object:
        """Return an object; `ApiError` with the status 404 if there is none."""
        return self._object(await self._read(ApiRequest(kind.path(namespace, name, subresource))))

    async def list(self, kind: Kind, namespace: str = "", labels: str = "", fields: str = "") -> ObjectList:
        """Return all objects, page by page; in one piece if the pages grow old while we read."""
        chosen = tuple((key, text) for key, text in (("labelSelector", labels), ("fieldSelector", fields)) if text)
        try:
            return await self._pages(ApiRequest(kind.path(namespace), chosen), PAGE)
        except ApiError as error:
            if not error.status.expired:
                raise
        return await self._pages(ApiRequest(kind.path(namespace), chosen), 0)

    async def create(
        self, kind: Kind, made: Mapping[str, Any], namespace: str = "", name: str = "", subresource: str = ""
    ) -> Object:
        """Create an object, or what a subresource makes; return it as the server keeps it."""
        place = kind.path(namespace or _about(made).get("namespace", ""), name, subresource)
        return await self._write("POST", place, made)

    async def replace(self, kind: Kind, made: Mapping[str, Any], subresource: str = "") -> Object:
        """Replace an object; `ApiError` with the status 409 if it is not of the version that `made` was made from."""
        return await self._write("PUT", _place(kind, made, subresource), made)

    async def patch(
        self,
        kind: Kind,
        name: str,
        change: Any,
        namespace: str = "",
        how: Literal["merge", "json", "strategic"] = "merge",
        subresource: str = "",
    ) -> Object:
        """Change a part of an object."""
        return await self._write("PATCH", kind.path(namespace, name, subresource), change, _PATCHES[how])

    async def apply(
        self, kind: Kind, made: Mapping[str, Any], manager: str, *, force: bool = False, subresource: str = ""
    ) -> Object:
        """Say how the fields in `made` are to be, in the name of a manager (server-side apply).

        `ApiError` with the status 409 if another manager says otherwise, unless that is to be overruled by `force`.
        """
        query = (("fieldManager", manager), ("force", "true" if force else "false"))
        return await self._write("PATCH", _place(kind, made, subresource), made, _APPLY, query)

    async def delete(
        self, kind: Kind, name: str, namespace: str = "", options: Mapping[str, Any] | None = None
    ) -> None:
        """Delete an object; `options` are those of DeleteOptions: `preconditions`, `propagationPolicy`."""
        body = b"" if options is None else msgspec.json.encode(options)
        await self.fetch(ApiRequest(kind.path(namespace, name), method="DELETE", body=body))

    async def _write(self, method: str, path: str, body: Any, media: str = JSON, query: Query = ()) -> Object:
        return self._object(await self.fetch(ApiRequest(path, query, method, msgspec.json.encode(body), media)))

    async def _pages(self, request: ApiRequest, limit: int) -> ObjectList:
        items: list[Object] = []
        paged: Query = (("limit", str(limit)),) if limit else ()
        token, version = "", ""
        while True:
            more: Query = (("continue", token),) if token else ()
            page = self._object(await self._read(ApiRequest(request.path, (*request.query, *paged, *more))))
            items += page.get("items") or ()
            about = _about(page)
            token, version = about.get("continue", ""), version or about.get("resourceVersion", "")
            if not token:
                return ObjectList(tuple(items), version)

    async def _read(self, request: ApiRequest) -> ClientResponse:
        """Ask, and if the server is busy or gone, ask again soon."""
        deps = self.deps
        retry = Retry(Backoff(first=0.4, most=PATIENCE), deps.random)
        for _ in range(READS - 1):
            try:
                return await self.fetch(request)
            except ApiError as error:
                asked = error.retry_after or 0.0
                if error.status.code not in _BUSY or asked > PATIENCE:
                    raise
            except (UnreachableError, BrokenError):
                asked = 0.0
            await sleep_until(deps.clock, retry.next(deps.clock.now(), asked))
        return await self.fetch(request)

    def _object(self, reply: ClientResponse) -> Object:
        try:
            return msgspec.json.decode(reply.body, type=Object)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise FetchError(self.endpoint, "the answer is no object in JSON; see what listens there") from error


def _about(made: Mapping[str, Any]) -> Mapping[str, Any]:
    about = made.get("metadata")
    return about if isinstance(about, dict) else {}


def _place(kind: Kind, made: Mapping[str, Any], subresource: str) -> str:
    about = _about(made)
    if not about.get("name"):
        raise UsageError(f"{kind}: the object has no metadata.name; give it one")
    return kind.path(about.get("namespace", ""), about["name"], subresource)
