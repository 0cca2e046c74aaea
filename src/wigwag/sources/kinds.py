"""Documents of a source, whatever kind it is.

Kinds are imported when the first source of them is followed: an agent on a file loads no HTTP client, no gRPC and no
store of blobs. What a kind needs and does not have is found out before anything is served.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.flags.document import format_of
from wigwag.pipeline.spec import UNCHANGED
from wigwag.pipeline.watch import closing
from wigwag.sources.document import Document
from wigwag.sources.source import DEMO
from wigwag.sources.uris import BLOBS, SELF

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from wigwag.kube.hub import Hub
    from wigwag.pipeline.spec import Trouble, Unchanged
    from wigwag.sources.consul.keys import ConsulWatch
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.fields import OAuth as Granted
    from wigwag.sources.grpc import GrpcWatch
    from wigwag.sources.http import HttpWatch
    from wigwag.sources.kubernetes.objects import ObjectsWatch
    from wigwag.sources.notify import Notifier
    from wigwag.sources.oauth import OAuth
    from wigwag.sources.source import Source

    Documents = AsyncIterator[AnyDocument | Trouble | Unchanged]


def prepare(
    sources: Iterable[Source], remark: Callable[[str], object], environment: Mapping[str, str] = os.environ
) -> None:
    """Refuse sources that can never answer in this installation and environment; tell what will have no effect."""
    for source in sources:
        try:
            if source.provider in BLOBS:
                _prepare_blob(source, remark, environment)
            elif source.provider == "consul":
                _prepare_consul(source, remark, environment)
            elif source.provider in KUBERNETES:
                _prepare_kubernetes(source, environment)
            elif source.provider in _CHECKS:
                _CHECKS[source.provider](source)
        except UsageError as error:
            raise UsageError(f"source {source.name}: {error}") from None


def documents(source: Source, hub: Hub | None = None, notifier: Notifier | None = None) -> Documents:
    """Yield the documents of a source.

    With a hub, sources in Kubernetes share what they ask its API server with; with a notifier, files share inotify.
    """
    if source.provider in KUBERNETES:
        return _kubernetes(source, hub)
    if source.provider == "file":
        return _file(source, notifier)
    return _KINDS[source.provider](source)


def heartbeat(source: Source) -> float:
    """Return how many seconds may pass until a source that is well says that its flags still hold."""
    if source.provider == "consul":
        return _consul_watch(source, os.environ).access.heartbeat
    return _HEARTBEATS.get(source.provider, source.settings.interval)


async def _demo(_: Source) -> Documents:
    from importlib.resources import files

    yield Document(files("wigwag").joinpath("demo.json").read_bytes(), "json")
    while True:  # it never changes
        await asyncio.sleep(_HEARTBEATS[DEMO])
        yield UNCHANGED


async def _file(source: Source, notifier: Notifier | None) -> Documents:
    from wigwag.sources.file import FileWatch, watch_file
    from wigwag.sources.follow import Means

    spec = FileWatch(source.address, source.settings.most, root=source.settings.root)
    kind = format_of(source.name)
    async with closing(watch_file(spec, Means(notifier=notifier))) as stream:
        async for item in stream:
            yield Document(item, kind) if isinstance(item, bytes) else item


def _http(source: Source) -> Documents:
    from wigwag.sources.http import watch_http

    return watch_http(_http_watch(source))


def _grpc(source: Source) -> Documents:
    from wigwag.sources.grpc import watch_grpc

    return watch_grpc(_grpc_watch(source))


def _blob(source: Source) -> Documents:
    from wigwag.sources.blob import BlobWatch, watch_blob

    told = source.settings
    return watch_blob(BlobWatch(source.address, told.interval, told.seed, told.most, told.cert_path))


def _consul(source: Source) -> Documents:
    from wigwag.sources.consul.keys import watch_consul

    return watch_consul(_consul_watch(source, os.environ))


def _consul_watch(source: Source, environment: Mapping[str, str]) -> ConsulWatch:
    from wigwag.sources.consul.keys import ConsulWatch
    from wigwag.sources.consul.place import locate

    told = source.settings
    found = locate(source.address, environment, tls=told.tls, auth_header=told.auth_header, ca_path=told.cert_path)
    return ConsulWatch(found.access, found.name, told.most)


def _http_watch(source: Source) -> HttpWatch:
    from wigwag.sources.http import HttpWatch

    told = source.settings
    return HttpWatch(
        source.address,
        headers=told.headers,
        auth_header=told.auth_header,
        interval=told.interval,
        seed=told.seed,
        timeout=told.timeout,
        oauth=None if told.oauth is None else _oauth(told.oauth),
        most=told.most,
        ca_path=told.cert_path,
        token_file=told.token_file,
    )


def _oauth(told: Granted) -> OAuth:
    from wigwag.sources.oauth import OAuth

    found = OAuth(told.client_id, told.client_secret, told.token_url, told.folder)
    return replace(found, reload_delay=told.reload_delay) if told.reload_delay else found


def _grpc_watch(source: Source) -> GrpcWatch:
    from wigwag.sources.grpc import GrpcWatch

    told = source.settings
    return GrpcWatch(
        source.address,
        tls=told.tls,
        cert_path=told.cert_path,
        provider_id=told.provider_id,
        selector=told.selector,
        max_message=told.max_message,
        headers=told.headers,
        token_file=told.token_file,
    )


def _check_grpc(source: Source) -> None:
    from wigwag.sources.grpc import check

    check(_grpc_watch(source))


KUBERNETES = ("kubernetes", "configmap", SELF)
_HEARTBEATS = {DEMO: 1.0, "file": 5.0, "grpc": 30.0, **dict.fromkeys(KUBERNETES, 75.0)}
"""Of kinds that are not polled at an interval of their own."""
_CHECKS: Mapping[str, Callable[[Source], object]] = {"http": _http_watch, "grpc": _check_grpc}
_KINDS: Mapping[str, Callable[[Source], Documents]] = {
    DEMO: _demo, "http": _http, "grpc": _grpc, **dict.fromkeys(BLOBS, _blob), "consul": _consul
}  # fmt: skip


def _kubernetes(source: Source, hub: Hub | None) -> Documents:
    from wigwag.kube.hub import alone
    from wigwag.sources.kubernetes.objects import watch_objects

    return watch_objects(_objects_watch(source), alone if hub is None else hub.watch)


def _objects_watch(source: Source) -> ObjectsWatch:
    from wigwag.sources.kubernetes.objects import ObjectsWatch
    from wigwag.sources.kubernetes.place import read_place

    if source.provider == SELF:
        raise UsageError("what a pod's annotations name can be found by its own agent only; name the FeatureFlag")
    told = source.settings
    return ObjectsWatch(read_place(source.name, source.provider), told.on_delete == "remove", told.most)


def _prepare_kubernetes(source: Source, environment: Mapping[str, str]) -> None:
    from wigwag.kube.discover import find_cluster

    if source.provider != SELF:
        _objects_watch(source)
    find_cluster(environment)


def _prepare_blob(source: Source, remark: Callable[[str], object], environment: Mapping[str, str]) -> None:
    from wigwag.sources.blob_place import locate

    if find_spec("obstore") is None:
        raise UsageError("blob stores need an extra; install wigwag[blob]")
    for name, why in locate(source.address, environment).unused:
        remark(f"source {source.name}: the option {name} has no effect{why}")


def _prepare_consul(source: Source, remark: Callable[[str], object], environment: Mapping[str, str]) -> None:
    from wigwag.sources.consul.place import unused

    for why in unused(_consul_watch(source, environment).access, environment):
        remark(f"source {source.name}: {why}")
