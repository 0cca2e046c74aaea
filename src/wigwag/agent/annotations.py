"""The flags that the annotations of an agent's own pod name: `--uri core.openfeature.dev/`.

    annotations ──▶ references ──▶ one watch per FeatureFlag ──▶ one document
    (a mounted file, or the API)   a change of references starts this anew

Annotations are read from the downward API's volume where it is mounted, and otherwise from the API server. Until they
name something the source has not answered, and its status says why. Afterwards nothing that goes wrong with them takes
flags away, and all of it is in the status: annotations that are gone or cannot be read leave what they named before. Of
several references, a malformed one does not affect the others; while there is one, those that the annotation no longer
names stay, too, because one of them may be what it was before the mistake.

This is no pipeline with `derive`, although it looks like one. A pipeline publishes values: that a FeatureFlag was seen
unchanged, or cannot be watched, stays in the status of its watch. Here both have to go on in order, as `UNCHANGED` and
`Unavailable` of this one source, because its age and its status follow from them. And a watch that fails has to make
the source fail, so that the outer pipeline restarts all of it with one back-off instead of two.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from wigwag.errors import UsageError
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources import kinds
from wigwag.sources.document import AnyDocument, Document, Merged
from wigwag.sources.kinds import parse_sources
from wigwag.sources.kubernetes.names import SELF
from wigwag.sources.kubernetes.references import References, references
from wigwag.sources.source import Source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from wigwag.agent.options import AgentOptions
    from wigwag.kube.hub import Hub
    from wigwag.sources.disk.notify import Notifier
    from wigwag.sources.kind import Documents
    from wigwag.sources.kubernetes.references import Names
    from wigwag.sources.merge import Merger

    PodAnnotations: TypeAlias = tuple[Mapping[str, str], str]
    """The annotations of a pod, and its namespace."""

_LARGEST = 1 << 20
log = logging.getLogger("wigwag.agent")


def agent_sources(options: AgentOptions, remark: Callable[[str], object] = log.warning) -> tuple[Source, ...]:
    """Return the sources of an agent. One that has to be located gets the folder of the downward API."""
    sources = parse_sources(options.uri, options.sources, remark)
    return tuple(
        replace(each, settings=replace(each.settings, address=options.pod_info)) if each.provider == SELF else each
        for each in sources
    )


def documents(source: Source, hub: Hub, notifier: Notifier | None = None) -> Documents:
    """Yield the documents of a source, whatever kind it is."""
    return located(source, hub) if source.provider == SELF else kinds.documents(source, hub, notifier)


async def located(source: Source, hub: Hub, environment: Mapping[str, str] = os.environ) -> Documents:
    """Yield the document that the pod's annotations lead to."""
    names: Names = ()
    problem = ""
    from wigwag.sources.merge import Merger

    merger = Merger()
    while True:
        streams: dict[str, AsyncIterator[Any]] = {"": _named(source, hub, environment)}
        settings = replace(source.settings, address="")
        streams |= {name: kinds.documents(Source(name, "kubernetes", settings=settings), hub) for name in names}
        state = _Located(names, problem, merger)
        async with closing(_together(hub, streams)) as items:
            async for name, item in items:
                if isinstance(item, References):
                    wanted, problem = item.after(names), item.problem
                    if wanted != names:
                        log.info("the annotations of this pod name %s", ", ".join(item.names))
                        names = wanted
                        break
                for answer in state.take(name, item):
                    yield answer


class _Located:
    """The latest answers of all references."""

    def __init__(self, names: Names, problem: str, merger: Merger) -> None:
        """`problem`: what is wrong with the annotations, beside what they name."""
        self._merger, self._news = merger, False
        self._documents: dict[str, AnyDocument | None] = dict.fromkeys(names)
        self._troubles: dict[str, Unavailable] = self._of_annotations(problem)
        self._problem: Unavailable | None = None
        """What is wrong with the last document."""

    def take(self, name: str, item: Any) -> list[AnyDocument | Unavailable | Unchanged]:
        """Take what one of the streams yields; return what the source yields."""
        if not name:
            return self._annotated(item.reason if isinstance(item, Unavailable) else item.problem)
        self._troubles.pop(name, None)
        if isinstance(item, Unavailable):
            self._troubles[name] = item
        elif isinstance(item, Document | Merged):
            self._documents[name], self._news = item, True
        if any(document is None and each not in self._troubles for each, document in self._documents.items()):
            return []  # its first answer is still to come
        return self._whole() if self._news else [self._trouble or UNCHANGED]

    def _annotated(self, problem: str) -> list[AnyDocument | Unavailable | Unchanged]:
        """Take what is wrong with the annotations. That nothing is wrong does not confirm any flag."""
        self._troubles.pop("", None)
        self._troubles = self._of_annotations(problem) | self._troubles
        return [self._troubles[""]] if problem else []

    def _of_annotations(self, problem: str) -> dict[str, Unavailable]:
        """Return what is wrong with the annotations; what is followed all the same is in force."""
        stays = f"; in force: {', '.join(self._documents)}" if self._documents else ""
        return {"": Unavailable(problem + stays)} if problem else {}

    @property
    def _trouble(self) -> Unavailable | None:
        return next(iter(self._troubles.values()), self._problem)

    def _whole(self) -> list[AnyDocument | Unavailable | Unchanged]:
        """Return the document, and what is wrong all the same."""
        self._news = False
        here = {name: document for name, document in self._documents.items() if document is not None}
        if len(self._documents) == 1:
            document: AnyDocument = next(iter(here.values()))
        else:
            document, problem = self._merger.merge({name: each.content for name, each in here.items()}, "json")
            self._problem = Unavailable(problem) if problem else None
        return [document] if self._trouble is None else [document, self._trouble]


async def _together(hub: Hub, streams: Mapping[str, AsyncIterator[Any]]) -> AsyncIterator[tuple[str, Any]]:
    """Yield what streams yield, each with its name. One that fails or ends makes this fail."""
    queue: asyncio.Queue[tuple[str, Any]] = asyncio.Queue(1)

    async def feed(name: str, stream: AsyncIterator[Any]) -> None:
        end: Exception = RuntimeError("a watch ended")
        try:
            async with closing(stream):
                async for item in stream:
                    await queue.put((name, item))
        except Exception as error:  # noqa: BLE001 - it may fail in any way: the reader raises it
            end = error
        await queue.put((name, end))

    tasks: list[asyncio.Task[None]] = []
    try:
        for name, stream in streams.items():
            tasks.append(await hub.spawn(feed(name, stream)))
        while True:
            name, item = await queue.get()
            if isinstance(item, Exception):
                raise item
            yield name, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _named(source: Source, hub: Hub, environment: Mapping[str, str]) -> AsyncIterator[References | Unavailable]:
    """Yield what the pod's annotations name, from the downward API's volume or from the API server.

    What was read before still holds when the server says that nothing has changed, so it is yielded again.
    """
    last: References | Unavailable | None = None
    mounted = Path(source.settings.address, "annotations").exists()  # noqa: ASYNC240 - once, and local
    stream = _from_volume(source.settings.address, environment) if mounted else _from_server(hub, environment)
    async with closing(stream) as items:
        async for item in items:
            if isinstance(item, Unavailable):
                yield item
                continue
            try:
                last = last if isinstance(item, Unchanged) else references(*item)
            except UsageError as error:
                last = Unavailable(str(error))
            if last is not None:
                yield last


async def _from_volume(
    folder: str, environment: Mapping[str, str]
) -> AsyncIterator[PodAnnotations | Unavailable | Unchanged]:
    from wigwag.agent.ownpod import namespace_of, read_map
    from wigwag.sources.disk.directory import DirectoryWatch, watch_directory

    async with closing(watch_directory(DirectoryWatch(folder, _LARGEST))) as stream:
        async for item in stream:
            if not isinstance(item, dict):
                yield item
                continue
            texts = {name: content.decode("utf-8", "replace") for name, content in item.items()}
            namespace = texts.get("namespace", "").strip() or namespace_of(environment)
            yield read_map(texts.get("annotations", "")), namespace


async def _from_server(
    hub: Hub, environment: Mapping[str, str]
) -> AsyncIterator[PodAnnotations | Unavailable | Unchanged]:
    from wigwag.agent.ownpod import identify, watch_pod

    who = identify(environment)
    async with closing(watch_pod(hub, who)) as items:
        async for item in items:
            if isinstance(item, Unavailable | Unchanged):
                yield item
            else:
                yield item.metadata.annotations or {}, who.namespace
