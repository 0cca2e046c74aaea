"""How far the flags of a FeatureFlag have come: pure decisions about agents, the status, and when to do what.

    digest that agents should have, what each has said ─▶ current │ lagging │ unknown ─▶ status.agents, Propagated

| an agent | counts as |
|---|---|
| says that it has the digest | current |
| has said so, and does not answer now | current: nothing has changed since |
| says that it has another one, or none yet | lagging |
| had another one, and does not answer now | lagging |
| has never answered, or cannot tell | unknown |

The hard case is a change while the one before is still going out. Nothing is remembered of the one before: only the
newest digest counts, and an agent that skips one is current.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Struct, to_builtins

from wigwag.operator.propagation.ask import AgentAnswer, NoAnswer
from wigwag.operator.propagation.pods import AgentPod, ProxyPod, target_flag
from wigwag.operator.reconcile.status import MOST_ITEMS, PROGRESSING, PROPAGATED, ConditionState, listed
from wigwag.operator.resources.featureflag import AgentNotCurrent, AgentsStatus
from wigwag.operator.resources.featureflagsource import KUBERNETES
from wigwag.pipeline.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from wigwag.operator.names import ObjectName
    from wigwag.operator.propagation.ask import Asked, TargetAnswer
    from wigwag.operator.reconcile.flags import FlagSummary
    from wigwag.operator.resources.kubernetes import Condition

Json: TypeAlias = Any
CHECK = 300.0
"""Seconds until an agent that has everything is asked again: nobody says when one loses its flags."""
CHECK_PROXY = 30.0
"""The same for a proxy: nobody says when a client comes or goes."""
LAGGING = Backoff(first=0.2, most=15.0)
"""Between questions to an agent that does not have the flags yet."""
SILENT = Backoff(first=1.0, most=CHECK)
"""Between questions to an agent that does not answer."""
GATHER = 0.4
"""Seconds from the first news of a flag to the status that tells them: most agents have a change by then."""
WRITES = Backoff(first=1.0, most=15.0)
"""Between writes of one status. Every write goes to all who watch the flag."""
QUIET = 60.0
"""Seconds without a write after which the next one does not wait."""
SHOWN = 8
"""Digits of a digest in a message."""


class AgentState(NamedTuple):
    """What is known of an agent."""

    agent: AgentPod | ProxyPod
    answer: AgentAnswer | None = None
    """The last one."""
    problem: NoAnswer | None = None
    """Why the last question was not answered."""
    attempts: int = 0
    """Questions in a row that it did not answer, or after which it did not have everything."""

    @property
    def flags(self) -> tuple[ObjectName | None, ...]:
        """The flags that an agent uses; a proxy uses none."""
        return self.agent.flags if isinstance(self.agent, AgentPod) else ()

    @property
    def proxied(self) -> frozenset[ObjectName]:
        """Those of them that come from a proxy."""
        return self.agent.proxied if isinstance(self.agent, AgentPod) else frozenset()

    def after(self, asked: Asked) -> AgentState:
        """Return what is known after a question."""
        if isinstance(asked, NoAnswer):
            return self._replace(problem=asked)
        return self._replace(answer=asked, problem=None)


class Standing(Struct, frozen=True):
    """How an agent stands with a flag: current if there is no reason."""

    reason: str = ""
    known: bool = True


CURRENT = Standing()


def standing(state: AgentState, flag: ObjectName, digest: str) -> Standing:
    """Return whether an agent has the flags of a digest."""
    has = state.answer.digests() if state.answer else {}
    digests = {has.get(place, "") for place, each in enumerate(state.flags) if each == flag}
    if digests == {digest}:
        return CURRENT
    other = next((each for each in sorted(digests) if each != digest), "")
    problem = f"; {state.problem.reason}" if state.problem else ""
    if state.answer is None:
        return Standing(state.problem.reason if state.problem else "it was not asked yet", known=False)
    return Standing(f"on {other[:SHOWN]}{problem}" if other else f"it has none of these flags yet{problem}")


class ClientCounts(NamedTuple):
    """In-process clients of proxies: all, and those that have been sent the flags."""

    total: int = 0
    current: int = 0


def proxied_flag(target: TargetAnswer) -> ObjectName | None:
    """Return the FeatureFlag of a proxy's target."""
    return target_flag(target.target) if target.provider == KUBERNETES else None


def client_counts(
    flag: ObjectName, digest: str, proxies: Iterable[AgentAnswer], agents: int, *, all_agents: bool
) -> ClientCounts:
    """Count the subscribers of proxies that are no agents; `agents` of them are, with `all_agents` all that run.

    Proxies do not know who subscribes. So what is missing is put down to clients only if no agent is behind.
    """
    targets = [each for answer in proxies for each in answer.targets if proxied_flag(each) == flag]
    subscribers = sum(each.subscribers for each in targets)
    sent = sum(each.sent for each in targets if each.digest == digest)
    total = max(0, subscribers - agents)
    return ClientCounts(total, max(0, total - (subscribers - sent)) if all_agents else total)


@dataclass(frozen=True)
class AgentProgress:
    """How many agents have the flags of a digest, and which do not."""

    digest: str
    generation: int
    total: int
    lagging: tuple[AgentNotCurrent, ...] = ()
    silent: tuple[AgentNotCurrent, ...] = ()
    clients: ClientCounts = ClientCounts()

    @property
    def current(self) -> int:
        """How many agents have the flags."""
        return self.total - len(self.lagging) - len(self.silent)

    @property
    def done(self) -> bool:
        """Whether there is nobody to wait for."""
        return not self.lagging and not self.silent and self.clients.total == self.clients.current

    def status(self) -> AgentsStatus:
        """Return the part of the status that says so."""
        return AgentsStatus(
            summary=f"{self.current}/{self.total}",
            total=self.total,
            current=self.current,
            unknown=len(self.silent),
            clients=self.clients.total,
            clients_current=self.clients.current,
            digest=self.digest,
            observed_generation=self.generation,
            lagging=list(self.lagging[:MOST_ITEMS]),
            silent=list(self.silent[:MOST_ITEMS]),
        )

    def condition(self) -> ConditionState:
        """Return the condition `Propagated`."""
        if not self.total and not self.clients.total:
            return ConditionState("True", "NoAgents", "no agent that runs uses these flags")
        parts = [f"{self.current}/{self.total} agents on {self.digest[:SHOWN]}"]
        if self.clients.total:
            parts.append(f"{self.clients.current}/{self.clients.total} in-process clients")
        for name, agents in (("lagging", self.lagging), ("unknown", self.silent)):
            if agents:
                parts.append(f"{name}: {listed([f'{each.pod} ({each.reason})' for each in agents])}")
        message = "; ".join(parts)
        if self.lagging or self.clients.current < self.clients.total:
            return ConditionState("False", PROGRESSING, message)
        if self.silent:
            return ConditionState("Unknown", "NoAnswer", message)
        return ConditionState("True", "AllAgents", message)


def progress(
    flag: ObjectName,
    digest: str,
    generation: int,
    states: Iterable[tuple[ObjectName, AgentState]],
    proxies: Iterable[AgentAnswer] = (),
) -> AgentProgress:
    """Count who has the flags of a digest; `states` are those of the pods that use the flag."""
    total, proxied = 0, 0
    lagging, silent = list[AgentNotCurrent](), list[AgentNotCurrent]()
    for pod, state in sorted(states, key=itemgetter(0)):
        total += 1
        proxied += flag in state.proxied
        stands = standing(state, flag, digest)
        if stands.reason:
            (lagging if stands.known else silent).append(AgentNotCurrent(pod=str(pod), reason=stands.reason))
    clients = client_counts(flag, digest, proxies, proxied, all_agents=not lagging and not silent)
    return AgentProgress(digest, generation, total, tuple(lagging), tuple(silent), clients)


def status_patch(
    uid: str, known: Sequence[Condition], condition: Condition, agents: AgentsStatus
) -> list[dict[str, Json]]:
    """Return the JSON patch that says who has the flags, and leaves the rest of the status as it is.

    `known` are the conditions as the watch has shown them. If they are others by now, the server refuses the patch.
    """
    place = next((place for place, each in enumerate(known) if each.type == PROPAGATED), None)
    end = "-" if place is None else str(place)
    is_there = [{"op": "test", "path": f"/status/conditions/{end}/type", "value": PROPAGATED}]
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        *([] if place is None else is_there),
        {"op": "add", "path": "/status/agents", "value": to_builtins(agents)},
        {
            "op": "add" if place is None else "replace",
            "path": f"/status/conditions/{end}",
            "value": to_builtins(condition),
        },
    ]


def wanted_digest(flag: FlagSummary) -> str:
    """Return the digest that agents should have; empty until the flag has been looked at."""
    is_current = flag.status.observed_generation == flag.about.generation and not flag.about.deletion_timestamp
    return flag.status.digest if is_current else ""


def next_question(state: AgentState, behind: bool, random: Callable[[], float]) -> float:
    """Return in how many seconds an agent is asked again; `behind`: it does not have all flags that it should."""
    if state.problem is not None:
        return CHECK if state.problem.final else SILENT.pause(state.attempts, random)
    if behind:
        return LAGGING.pause(state.attempts, random)
    return (CHECK_PROXY if isinstance(state.agent, ProxyPod) else CHECK) * (0.5 + 0.5 * random())


class WritePace(NamedTuple):
    """How often the status of a flag may be written: the more rarely, the more it was for the same flags lately.

    So it is, too, where pods come and go all the time. Only that all have the flags for the first time is said at once.
    """

    digest: str = ""
    at: float = -inf
    """When it was written."""
    writes: int = 0
    done: bool = False
    """Whether it was said that all have the flags."""

    def of(self, digest: str, now: float) -> WritePace:
        """Return the pace for the flags of a digest: others begin anew, and so does what was quiet for a while."""
        if digest != self.digest:
            return WritePace(digest, self.at)
        return self._replace(writes=0) if now > self.at + QUIET else self

    def wait(self, now: float, *, done: bool) -> float:
        """Return how many seconds the next write has to wait."""
        pause = WRITES.first if done and not self.done else WRITES.ceiling(max(0, self.writes - 1))
        return max(0.0, self.at + pause - now)

    def after(self, now: float, *, done: bool) -> WritePace:
        """Return the pace after a write."""
        return WritePace(self.digest, now, self.writes + 1, self.done or done)
