"""Which FeatureFlagSources a change of what they refer to concerns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.operator.known import settings, source_object
from tests.pipeline.fakes import run, settle
from wigwag.kube.watch.decode import Key
from wigwag.operator.controllers.changes import KnownChanges
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.observed import Observed
from wigwag.operator.reconcile.flags import FlagSummary
from wigwag.operator.resources.featureflag import FeatureFlagStatus
from wigwag.operator.resources.featureflagsource import FeatureFlagSource
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.pipeline.broadcast import Broadcast

SOURCES: dict[Key, FeatureFlagSource] = {
    ("team-a", "plain"): source_object({"source": "shop", "provider": "kubernetes"}),
    ("team-b", "elsewhere"): source_object({"source": "team-a/shop", "provider": "file"}),
    ("team-b", "proxied"): source_object({"source": "other", "provider": "flagd-proxy"}),
    ("team-b", "default"): source_object({"source": "http://x/other", "provider": "http"}),
}
USERS = {("team-a", "plain"): {"team-c"}}
"""The namespaces of workloads that name a source."""
FLAG = FlagSummary(ObjectMeta(name="shop", namespace="team-c"), FeatureFlagStatus(), "1")


async def concerned(*observed: Observed) -> list[set[Key]]:
    """The sources that each step concerns."""
    known, keys, steps = Broadcast[Observed](), set[Key](), list[set[Key]]()
    changes = KnownChanges(known, settings())
    changes.feed_sources(keys.add, lambda key: USERS.get(key, ()))
    task = asyncio.ensure_future(changes.run())
    for each in observed:
        known.publish(each)
        await settle()
        steps.append(set(keys))
        keys.clear()
    task.cancel()
    await asyncio.wait([task])
    return steps


def test_a_source_concerns_itself_when_it_comes_changes_or_goes() -> None:
    async def main() -> None:
        plain = ("team-a", "plain")
        changed = {**SOURCES, plain: source_object({"source": "other"})}
        gone = {key: each for key, each in SOURCES.items() if key != plain}
        steps = await concerned(*map(Observed, (SOURCES, SOURCES, changed, gone)))
        assert steps == [set(SOURCES), set(), {plain}, {plain}]

    run(main)


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"flags": {("team-c", "shop"): FLAG}}, {("team-a", "plain")}),
        ({"flags": {("team-b", "shop"): FLAG}}, set()),
        ({"config_maps": {("team-a", "shop"): FLAG.about}}, {("team-a", "plain"), ("team-b", "elsewhere")}),
        ({"flags": {("team-b", "other"): FLAG}}, {("team-b", "proxied")}),
        ({"flags": {("team-a", "unnamed"): FLAG}}, set()),
        ({"proxies": {("home", "flagd-proxy"): ProxyState(1, 0.0)}}, {("team-b", "proxied")}),
    ],
)
def test_what_a_source_refers_to_concerns_it_and_no_other(change: dict[str, Any], keys: set[Key]) -> None:
    async def main() -> None:
        before, after = Observed(SOURCES), Observed(SOURCES, **change)
        assert await concerned(before, after, after, before) == [set(SOURCES), keys, set(), keys]

    run(main)


def test_a_source_and_its_flag_that_come_together_are_looked_up_in_this_order() -> None:
    async def main() -> None:
        [keys] = await concerned(Observed(SOURCES, flags={("team-a", "shop"): FLAG}))
        assert keys == set(SOURCES)

    run(main)
