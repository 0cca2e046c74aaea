"""The watcher of each kind of spec. What it yields becomes a `WatchPart`: entries of one table, as JSON.

Kubernetes watches share a client and a discovery, Consul watches the connections to an agent, directories one inotify
handle; all for the whole process. The pipeline runs one watcher per spec, and starts it again if it fails. What only
some kinds of watches need is imported with the first of them: the imports are most of the time that a start takes.
"""

from __future__ import annotations

import base64
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from wigwag.kube.named import watch_named
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources.consul.endpoints import watch_endpoints
from wigwag.sources.consul.query import ConsulDeps
from wigwag.watt.snapshots.snapshot import ENDPOINTS, TableName, WatchPart, check_depth, entry
from wigwag.watt.watches.objects import decoder
from wigwag.watt.watches.specs import ConsulSpec, DirectorySpec, KeysSpec, KubernetesSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from wigwag.kube.hub import Hub
    from wigwag.sources.consul.endpoints import ServiceEndpoint, ServiceEndpoints
    from wigwag.sources.consul.hub import ConsulHub
    from wigwag.sources.disk.notify import Notifier
    from wigwag.sources.document import AnyDocument
    from wigwag.watt.watches.specs import DocumentSpec, Spec

V = TypeVar("V")
_encode = msgspec.json.Encoder().encode


class Watchers:
    """Opens watches, with the clients that they share."""

    def __init__(self, hub: Hub, consul: ConsulHub, *, secrets: bool = False) -> None:
        """With `secrets`, Secrets are watched with their values."""
        self._hub, self._secrets = hub, secrets
        self._consul = ConsulDeps(hub=consul)

    def __call__(self, spec: Spec) -> AsyncIterator[WatchPart | Unavailable | Unchanged]:
        """Yield what a watch knows, whenever that changes."""
        if isinstance(spec, KubernetesSpec):
            return self._objects(spec)
        if isinstance(spec, ConsulSpec):
            return _parts(watch_endpoints(spec.watch, self._consul), partial(endpoints_part, spec))
        if isinstance(spec, KeysSpec):
            return self._keys(spec)
        return self._directory(spec) if isinstance(spec, DirectorySpec) else self._document(spec)

    @cached_property
    def _notifier(self) -> Notifier:
        from wigwag.sources.disk.notify import Notifier

        return Notifier()

    def _keys(self, spec: KeysSpec) -> AsyncIterator[WatchPart | Unavailable | Unchanged]:
        from wigwag.sources.consul.keys import watch_values

        return _parts(watch_values(spec.watch, self._consul), partial(keys_part, spec))

    def _directory(self, spec: DirectorySpec) -> AsyncIterator[WatchPart | Unavailable | Unchanged]:
        from wigwag.sources.disk.directory import DirectoryWatch, watch_directory
        from wigwag.sources.disk.follow import FollowDeps

        files = FollowDeps(notifier=self._notifier)
        return _parts(watch_directory(DirectoryWatch(spec.path), files), partial(files_part, spec))

    def _document(self, spec: DocumentSpec) -> AsyncIterator[WatchPart | Unavailable | Unchanged]:
        from wigwag.sources.kinds import documents

        return _parts(documents(spec.source, self._hub, self._notifier), partial(document_part, spec))

    async def _objects(self, spec: KubernetesSpec) -> AsyncIterator[WatchPart | Unavailable | Unchanged]:
        decode = partial(decoder, ignore=spec.ignore, secrets=self._secrets)
        last: WatchPart | None = None
        async with closing(watch_named(self._hub, spec.watch, decode)) as items:
            async for item in items:
                if isinstance(item, Unavailable | Unchanged):
                    yield item
                    continue
                kind, objects = item
                table = TableName("Kubernetes", str(kind))
                before = last if last is not None and last.table == table else None
                last = WatchPart.of(table, objects, spec.kind, before)
                yield last


async def _parts(
    values: AsyncIterator[V | Unavailable | Unchanged], part: Callable[[V], WatchPart]
) -> AsyncIterator[WatchPart | Unavailable | Unchanged]:
    async with closing(values) as items:
        async for item in items:
            yield item if isinstance(item, Unavailable | Unchanged) else part(item)


def endpoints_part(spec: ConsulSpec, value: ServiceEndpoints) -> WatchPart:
    """Return the endpoints of a service, as the original writes them and with what it left out."""
    watch, access = spec.watch, spec.watch.access
    body = {
        "Id": spec.id,
        "Service": watch.service,
        "Address": access.address,
        "Datacenter": access.datacenter,
        "Namespace": access.namespace,
        "Partition": access.partition,
        "Tag": watch.tag,
        "Filter": watch.filter,
        "Endpoints": [_endpoint(each) for each in value.endpoints],
    }
    return _single(ENDPOINTS, (str(spec).removeprefix("consul "), watch.service), _encode(body))


def _endpoint(given: ServiceEndpoint) -> dict[str, Any]:
    return {
        "SystemID": f"consul::{given.node_id}",
        "ID": given.id,
        "Service": given.service,
        "Address": given.address,
        "Port": given.port,
        "Tags": given.tags,
        "Node": given.node,
        "Datacenter": given.datacenter,
        "Meta": dict(given.meta),
        "Weights": given.weights,
        "Status": given.status,
    }


def keys_part(spec: KeysSpec, values: Mapping[str, bytes]) -> WatchPart:
    """Return the values of keys."""
    return _texts(TableName("Consul", "KV"), spec.store, values.items())


def files_part(spec: DirectorySpec, files: Mapping[str, bytes]) -> WatchPart:
    """Return the contents of files."""
    return _texts(TableName("Files", spec.path), "", files.items())


def document_part(spec: DocumentSpec, document: AnyDocument) -> WatchPart:
    """Return a document: as it is if it is JSON, and otherwise as text. JSON that is nested too deeply is text, too."""
    name = spec.source.name
    try:
        body = msgspec.json.format(document.content.decode(), indent=-1).encode()
        check_depth(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        body = _text(document.content)
    return _single(TableName("Documents", name), ("", name), body)


def _texts(table: TableName, group: str, texts: Iterable[tuple[str, bytes]]) -> WatchPart:
    entries = {(group, name): entry((table.section, table.name, group, name), _text(text)) for name, text in texts}
    return WatchPart.of(table, entries)


def _single(table: TableName, key: tuple[str, str], body: bytes) -> WatchPart:
    return WatchPart.of(table, {key: entry((table.section, table.name, *key), body)})


def _text(content: bytes) -> bytes:
    """Return content as a JSON string; what is no text, in base64 as `{"base64": …}`."""
    try:
        return _encode(content.decode())
    except UnicodeDecodeError:
        return _encode({"base64": base64.b64encode(content).decode()})
