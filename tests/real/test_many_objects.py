"""Hundreds of FeatureFlags of a real API server as one source: one change costs one object."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import wigwag
from tests.real.access import Access
from tests.real.agents import flags
from tests.real.cluster import Namespace
from wigwag.agent.assemble import Loader
from wigwag.flags.document import Format
from wigwag.flags.model import Limits
from wigwag.flags.part import Part, read_part
from wigwag.kube.hub import alone
from wigwag.kube.kinds import FEATURE_FLAG
from wigwag.pipeline.watch import closing
from wigwag.sources.document import Merged
from wigwag.sources.kubernetes.address import ObjectsAddress
from wigwag.sources.kubernetes.objects import ObjectsWatch, watch_objects
from wigwag.sources.merge import Merger
from wigwag.sources.source import Source

OBJECTS = 300


def spec(number: int, variant: str) -> dict[str, object]:
    """Return the flags of one object, by keys of its own."""
    return {"flags": {f"{key}-{number}": flag for key, flag in flags(variant)["flags"].items()}}


def test_one_change_among_hundreds_parses_one_object(
    namespace: Namespace, kubeconfig: Callable[[Access], Path]
) -> None:
    kubeconfig(namespace.cluster.access)
    for number in range(OBJECTS):
        namespace.feature_flag(f"f{number:03}", spec(number, "on"))
    read: list[bytes] = []

    def counting(content: bytes, limits: Limits, format: Format | None) -> Part:
        read.append(content)
        return read_part(content, limits, format)

    async def main() -> tuple[wigwag.FlagSet, wigwag.FlagSet]:
        source, loader, found = Source("many", "kubernetes"), Loader("v2", strict=False), list[wigwag.FlagSet]()
        place = ObjectsAddress(FEATURE_FLAG, namespace.name)
        async with asyncio.timeout(30), closing(watch_objects(ObjectsWatch(place), alone, Merger(counting))) as items:
            async for item in items:
                if not isinstance(item, Merged):
                    continue
                found.append(loader.parse(source, item, found[-1] if found else None))
                if len(found) == 2:
                    return found[0], found[1]
                assert len(read) == len(item.parts) == OBJECTS
                read.clear()
                await asyncio.to_thread(namespace.feature_flag, "f007", spec(7, "off"))
        raise AssertionError("the watch ended")

    before, after = asyncio.run(main())
    assert len(read) == 1
    assert b"-7" in read[0]
    changed = {flag.key for flag in after.flags() if before.flag(flag.key) is not flag}
    assert changed
    assert all(key.endswith("-7") for key in changed)
    assert wigwag.diff(before, after).updated == tuple(sorted(changed))
