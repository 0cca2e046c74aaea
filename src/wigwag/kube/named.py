"""Watch a kind that users name as in `kubectl get`: from before the server has it, through other versions of it.

    name ──resolve──▶ kind ──Hub.watch──▶ (kind, objects) …
      ▲                 │ not served any more, and the name now means another kind, or none
      └─────────────────┘

While the server has no kind of that name, the watch yields `KindNotServed` (an `Unavailable`), once, and looks the
name up again, after 1 s at first and at most 15 s. A watch whose kind the server no longer has goes on trying, and each
time asks discovery whether the name means something else by now. Only these two cost requests to discovery; changes of
objects do not.

A kind is not exchanged while its watch works: if the server prefers another version from now on, the open one stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from wigwag.errors import UsageError, WigwagError
from wigwag.kube.errors import UnknownKindError
from wigwag.kube.kinds import Kind
from wigwag.kube.watch.listwatch import KindNotServed
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.kube.discovery import Discovery
    from wigwag.kube.hub import Hub
    from wigwag.kube.watch.decode import Decode
    from wigwag.kube.watch.objects import Objects

T = TypeVar("T")
NamedItem: TypeAlias = "tuple[Kind, Objects[T]] | Unavailable | Unchanged"
_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,320}")
_ANY = Kind("", "v1", "any")


@dataclass(frozen=True, slots=True)
class NamedWatch:
    """Which objects to watch, with the kind as text. Equal records are the same watch.

    >>> print(NamedWatch("mapping.v2.getambassador.io", "team-a", labels="tier=a"))
    mapping.v2.getambassador.io team-a/* (tier=a)
    """

    kind: str
    namespace: str = ""
    """Empty: all namespaces. Ignored for cluster-scoped kinds, as kubectl does."""
    name: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise UsageError(f"{self.kind[:100]!r} is not the name of a kind; write it as in `kubectl get`")
        self.of(_ANY)  # which checks the rest

    def __str__(self) -> str:
        return f"{self.kind}{str(self.of(_ANY)).removeprefix(str(_ANY))}"

    def of(self, kind: Kind) -> KubeWatch:
        """Return the watch of these objects if their kind is this one."""
        namespace = self.namespace if kind.namespaced else ""
        return KubeWatch(kind, namespace, self.name, self.labels, self.fields, self.metadata_only)


async def watch_named(hub: Hub, spec: NamedWatch, decoder: Callable[[Kind], Decode[T]]) -> AsyncIterator[NamedItem[T]]:
    """Yield the kind with all its objects when one changes, `UNCHANGED`, or `Unavailable`; for ever.

    The kind is another one after the name has got another meaning. `decoder` returns how objects of a kind are decoded;
    who gets the same function for the same objects, shares one watch.
    """
    discovery, clock, reason = hub.discovery, hub.kube.deps.clock, ""
    while True:
        kind = await _look_up(discovery, spec)
        if isinstance(kind, Unavailable):
            if kind.reason != reason:
                yield kind
            if not reason:
                discovery.refresh_soon()
            reason = kind.reason
            await sleep_until(clock, discovery.due)
            continue
        reason = ""
        async with closing(hub.watch(spec.of(kind), decoder(kind))) as items:
            async for item in items:
                if isinstance(item, KindNotServed) and not await _still_means(discovery, spec, kind):
                    break
                yield item if isinstance(item, Unavailable | Unchanged) else (kind, item)


async def _look_up(discovery: Discovery, spec: NamedWatch) -> Kind | Unavailable:
    try:
        return await discovery.resolve(spec.kind)
    except UnknownKindError as error:
        return KindNotServed(f"{error}; it is watched as soon as it can be")
    except WigwagError as error:
        return Unavailable(f"the kinds of the API server cannot be fetched: {error}")


async def _still_means(discovery: Discovery, spec: NamedWatch, kind: Kind) -> bool:
    """Tell whether the name still means this kind, after a refresh if one is due."""
    discovery.refresh_soon()
    await discovery.refresh()
    return await _look_up(discovery, spec) == kind
