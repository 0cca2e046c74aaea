"""Facts about where the agent runs, as attributes that rules see beside the context: this pod, services of Consul.

    {"pod": {"name": …, "namespace": …, "labels": {…}, …}, "consul": {"SERVICE": {"passing": 3, "critical": 1, …}}}

They are watched in the same pipeline as flags and published in the same snapshots. So an evaluation on a snapshot
always gives the same result, and a change of facts is a new snapshot. A fact that cannot be read keeps its last value,
and its age is reported like that of any source. The first snapshot waits for facts as it does for flags, a few seconds
at most; readiness does not depend on them.

A kind of facts is one function from a source to a stream of them. Facts about a pod come from the downward API where
that is mounted; otherwise from the API server, if the name of the pod is known and its role allows it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Struct

from wigwag.errors import UsageError
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources.source import Source, SourceSettings
from wigwag.wire.client.shown import shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from wigwag.agent.options import AgentOptions
    from wigwag.flags.flagset import FlagSet
    from wigwag.kube.hub import Hub
    from wigwag.pipeline.spec import Urgent, Watcher
    from wigwag.sources.consul.service import ServiceWatch

    Stream: TypeAlias = AsyncIterator["Facts | Unavailable | Unchanged"]
    Value: TypeAlias = "FlagSet | Facts"

POD, SERVICE = "pod", "consul-service"
FACTS = (POD, SERVICE)
"""The kinds of sources that yield facts, and no flags."""
MOST_SERVICES = 100
"""Each holds a connection to Consul, which allows 200 of one client."""
_LARGEST = 1 << 20


class Facts(Struct, frozen=True):
    """What one source knows, as attributes."""

    attributes: dict[str, Any]


def fact_sources(options: AgentOptions, first: int, environment: Mapping[str, str] = os.environ) -> tuple[Source, ...]:
    """Return the sources of facts, with positions from `first` on."""
    pod = Source("pod", POD, settings=SourceSettings(address=options.pod_info))
    sources = [pod] if options.context_from_pod else []
    sources += [_service_source(name) for name in options.context_from_consul]
    if not sources:
        return ()
    from wigwag.agent.ownpod import attribute

    services = [_service(source, environment).service for source in sources if source.provider == SERVICE]
    if len(set(map(attribute, services))) < len(services):
        raise UsageError("--context-from-consul: a service is named twice; its attributes would be, too")
    if len(services) > MOST_SERVICES:
        raise UsageError(f"--context-from-consul: at most {MOST_SERVICES} services, each needs a connection")
    return tuple(msgspec.structs.replace(each, position=first + n, required=False) for n, each in enumerate(sources))


def _service_source(name: str) -> Source:
    address = name if "://" in name else f"consul:///{quote(name, safe='')}"
    return Source(shown(address), SERVICE, settings=SourceSettings(address=address))


def _service(source: Source, environment: Mapping[str, str]) -> ServiceWatch:
    from wigwag.sources.consul.access import locate
    from wigwag.sources.consul.service import ServiceWatch

    try:
        service = locate(source.address, environment)
        return ServiceWatch(service.access, service.name)
    except UsageError as error:
        raise UsageError(f"--context-from-consul: {error}; write SERVICE, or consul://HOST:PORT/SERVICE") from None


def watch_facts(source: Source, environment: Mapping[str, str] = os.environ, hub: Hub | None = None) -> Stream:
    """Yield the facts of a source whenever they change. Without a hub, no API server is asked."""
    return _pod(source, environment, hub) if source.provider == POD else _consul(source, environment)


def watching(
    flags: Watcher[Source, FlagSet | Urgent[FlagSet]], facts: Callable[[Source], Stream]
) -> Watcher[Source, Value | Urgent[Value]]:
    """Return what watches a source, of whichever of the two it is."""
    return lambda source: facts(source) if source.provider in FACTS else flags(source)


def combined(parts: Iterable[Facts]) -> dict[str, Any]:
    """Return the attributes of all facts together.

    >>> combined([Facts({"consul": {"web": 1}}), Facts({"consul": {"db": 2}}), Facts({"pod": {"name": "a"}})])
    {'consul': {'web': 1, 'db': 2}, 'pod': {'name': 'a'}}
    """
    merged: dict[str, Any] = {}
    for part in parts:
        for name, value in part.attributes.items():
            merged[name] = {**merged.get(name, {}), **value}
    return merged


async def _pod(source: Source, environment: Mapping[str, str], hub: Hub | None) -> Stream:
    """A volume is there before the pod starts, or never; without one, the API server or the environment is asked."""
    from wigwag.agent.ownpod import pod_facts
    from wigwag.sources.disk.directory import DirectoryWatch, watch_directory

    if not Path(source.address).is_dir():  # noqa: ASYNC240 - once, and local
        known = pod_facts({}, environment)
        if hub is not None:
            async with closing(_pod_from_server(hub, environment, known)) as stream:
                async for news in stream:
                    yield news
        advice = f"mount the downward API at {source.address}, or set POD_NAME, POD_NAMESPACE, NODE_NAME"
        yield Facts({"pod": known}) if known else Unavailable(f"nothing is known about this pod; {advice}")
        await asyncio.Event().wait()
    async with closing(watch_directory(DirectoryWatch(source.address, _LARGEST))) as stream:
        async for item in stream:
            yield Facts({"pod": pod_facts(item, environment)}) if isinstance(item, dict) else item


async def _pod_from_server(hub: Hub, environment: Mapping[str, str], known: dict[str, Any]) -> Stream:
    """The server's word goes before what is known; until there is one, that has to do."""
    from wigwag.agent.ownpod import identify, watch_facts_of

    try:
        who = identify(environment)
    except UsageError:
        return  # it is not known which pod this is
    answered = False
    async with closing(watch_facts_of(hub, who)) as stream:
        async for item in stream:
            if isinstance(item, dict):
                yield Facts({"pod": known | item})
            else:
                if known and not answered:
                    yield Facts({"pod": known})
                yield item
            answered = True


async def _consul(source: Source, environment: Mapping[str, str]) -> Stream:
    from wigwag.agent.ownpod import attribute
    from wigwag.sources.consul.service import ServiceHealth, watch_service

    spec = _service(source, environment)
    async with closing(watch_service(spec)) as stream:
        async for item in stream:
            if isinstance(item, ServiceHealth):
                health = {**msgspec.to_builtins(item), "tags": list(item.tags)}
                yield Facts({"consul": {attribute(spec.service): health}})
            else:
                yield item
