"""How far the flags of a FeatureFlag have come, for somebody who waits: one object is watched, each change is a line.

The operator writes the status. What it says about an earlier generation does not count: it is not about what was
applied last. The hard case is that nobody writes it, because no operator runs: then the wait says so, and goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from wigwag.cli.terminal import complain, remark
from wigwag.errors import UsageError
from wigwag.kube.client import ApiRequest, Kube
from wigwag.kube.config.cluster import find_cluster
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import FEATURE_FLAG
from wigwag.kube.watch.follow import watch_kube
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.propagation.progress import SHOWN
from wigwag.operator.resources.featureflag import AgentNotCurrent, FeatureFlagStatus
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.operator.propagation.options import RolloutOptions

KINDS = ("featureflag", "featureflags", "ff", "featureflags.core.openfeature.dev")
NOBODY = 10.0
"""Seconds after which it is strange that nobody has looked at the flags."""
NO_REPORT = "nobody reports which agents have these flags; is the operator running, and newer than this FeatureFlag?"
Outcome: TypeAlias = Literal["waiting", "done", "failed"]


class WatchedFlag(Struct):
    """A FeatureFlag, as far as it counts here."""

    metadata: ObjectMeta = ObjectMeta()
    status: FeatureFlagStatus = FeatureFlagStatus()


class Position(NamedTuple):
    """How far the flags have come."""

    outcome: Outcome
    text: str
    reported: bool = True
    """Whether somebody has said so about the newest flags."""


decode = msgspec.json.Decoder(WatchedFlag).decode


def flag_name(target: str) -> str:
    """Return the name in `featureflag/NAME`.

    >>> flag_name("ff/checkout")
    'checkout'
    """
    kind, slash, name = target.partition("/")
    if kind.lower() in KINDS and name and "/" not in name:
        return name
    if not slash or kind.lower() in KINDS:
        raise UsageError(f"{target!r} names no FeatureFlag; write featureflag/NAME")
    meant = closest(kind.lower(), KINDS)
    hint = f"did you mean {meant}/{name}?" if meant else "only FeatureFlags reach agents: write featureflag/NAME"
    raise UsageError(f"there is no rollout of {kind!r}; {hint}")


def position(flag: WatchedFlag, digest: str = "", *, ignore_unknown: bool = False) -> Position:
    """Return how far the flags have come. With `digest`, other flags than those are a failure."""
    title, agents = f'featureflag "{flag.metadata.name}"', flag.status.agents
    if agents is None or agents.observed_generation < flag.metadata.generation:
        return Position("waiting", f"Waiting for {title} to be looked at by the operator...", reported=False)
    if not agents.digest.startswith(digest):
        return Position("failed", f"{title} has other flags now: {agents.digest[:SHOWN]}, not {digest}")
    count = f"{agents.current} of {agents.total} agents on {agents.digest[:SHOWN]}"
    left_out = agents.unknown if ignore_unknown else 0
    if agents.current + left_out < agents.total:
        return Position("waiting", f"Waiting for {title} to reach its agents: {count}...")
    unknown = f"; {agents.unknown} do not say which flags they have" if left_out else ""
    count = f"{count}{unknown}" if agents.total else "no agent that runs uses it"
    return Position("done", f"{title} successfully propagated: {count}")


def behind(flag: WatchedFlag) -> str:
    """Return which agents do not have the flags, for a message."""
    agents = flag.status.agents
    named = [("lagging", agents.lagging), ("unknown", agents.silent)] if agents else []
    return "".join(f"; {word}: {_listed(each)}" for word, each in named if each)


def _listed(agents: Sequence[AgentNotCurrent]) -> str:
    return ", ".join(f"{each.pod} ({each.reason})" for each in agents)


def wait_for_agents(name: str, options: RolloutOptions) -> int:
    """Wait until all agents have the flags of a FeatureFlag; return the exit code."""
    return asyncio.run(_wait(name, options))


async def _wait(name: str, options: RolloutOptions) -> int:
    cluster = find_cluster(os.environ, options.kubeconfig, options.context)
    kube = Kube(cluster)
    try:
        return await RolloutWait(kube, options, options.namespace or cluster.namespace or "default", name).run()
    finally:
        kube.close()


class RolloutWait:
    """The wait for one FeatureFlag."""

    def __init__(self, kube: Kube, options: RolloutOptions, namespace: str, name: str) -> None:
        self._kube, self._options, self._namespace, self._name = kube, options, namespace, name
        self._flag: WatchedFlag | None = None
        self._said = ""

    async def run(self) -> int:
        """Wait until it is over; return the exit code."""
        try:
            answer = await self._kube.fetch(ApiRequest(FEATURE_FLAG.path(self._namespace, self._name)))
        except ApiError as error:
            complain(self._why_not(error))
            return 1
        code = self._see(decode(answer.body))
        if code is not None or not self._options.watch:
            return code or 0
        try:
            async with asyncio.timeout(self._options.timeout or None), asyncio.TaskGroup() as group:
                hint = group.create_task(self._hint())
                code = await self._follow()
                hint.cancel()
        except TimeoutError:
            return self._late()
        return code

    async def _follow(self) -> int:
        spec = KubeWatch(FEATURE_FLAG, self._namespace, self._name)
        async with closing(watch_kube(self._kube, spec, decode)) as items:
            async for item in items:
                if isinstance(item, Unavailable):
                    remark(f"wigwag: {item.reason}; it is tried again")
                    continue
                if isinstance(item, Unchanged):
                    continue
                flag = item.get((self._namespace, self._name))
                if flag is None:
                    complain(f'featureflag "{self._name}" was deleted')
                    return 1
                if (code := self._see(flag)) is not None:
                    return code
        raise AssertionError("a watch has no end")

    def _see(self, flag: WatchedFlag) -> int | None:
        """Say what is new; return the exit code if it is over."""
        self._flag = flag
        at = self._position(flag)
        if self._options.output == "json":
            self._say(json.dumps(_as_json(flag, at)))
        elif at.outcome != "failed":
            self._say(at.text)
        if at.outcome == "failed":
            complain(at.text)
        return {"waiting": None, "done": 0, "failed": 1}[at.outcome]

    def _position(self, flag: WatchedFlag) -> Position:
        return position(flag, self._options.digest, ignore_unknown=self._options.ignore_unknown)

    def _say(self, line: str) -> None:
        if line != self._said:
            print(line, flush=True)
        self._said = line

    async def _hint(self) -> None:
        """Say what may be wrong if nobody reports."""
        await asyncio.sleep(NOBODY)
        if self._flag is not None and not self._position(self._flag).reported:
            remark(f"wigwag: {NO_REPORT}")

    def _late(self) -> int:
        assert self._flag is not None
        at = self._position(self._flag)
        state = at.text.rpartition(": ")[2].removesuffix("...") + behind(self._flag) if at.reported else NO_REPORT
        complain(f'featureflag "{self._name}" did not reach all agents within {self._options.timeout:g} s: {state}')
        return 1

    def _why_not(self, error: ApiError) -> str:
        what = f'featureflag "{self._name}" in the namespace {self._namespace}'
        if error.forbidden:
            return f"you may not read {what}: {error.status.message}"
        if error.not_found and error.status.about.name:
            return f"there is no {what}; create it, or name another namespace with -n"
        if error.not_found:
            return "the cluster has no FeatureFlags; install the operator first"
        return str(error)


def _as_json(flag: WatchedFlag, at: Position) -> dict[str, Any]:
    agents = flag.status.agents
    return {
        "namespace": flag.metadata.namespace,
        "name": flag.metadata.name,
        "generation": flag.metadata.generation,
        "outcome": at.outcome,
        "agents": msgspec.to_builtins(agents) if agents is not None else None,
    }
