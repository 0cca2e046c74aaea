"""What must hold after every step, whatever happened: P1 to P8.

    P1  an evaluation never waits                       P5  every change reaches every live consumer
    P2  a source that fails changes no flag             P6  an answer is exactly one published state
    P3  age and error of every source are visible       P7  slow consumers cost a bounded amount
    P4  the last good flags are there after a restart   P8  every surface gives the same result

P1 is looked at wherever something is asked (`surfaces`), P3 in `visibility`, P4 wherever a life begins (`world`).
"""

from __future__ import annotations

import gc
import inspect
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.simulation.flags import KEYS
from tests.simulation.loop import settle
from tests.simulation.model import Answer, State, answer
from tests.simulation.subscribers import PATIENCE, SILENCE, SSE, SYNC
from tests.simulation.surfaces import AGE, SNAPSHOT, Asked
from tests.simulation.visibility import Visibility
from wigwag.serve.snapshot import Snapshot
from wigwag.wire.http import Request

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.model import Selection, Upstream
    from tests.simulation.subscribers import Subscriber
    from tests.simulation.world import World

OWN = 3
"""Subscribers of the snapshots besides streams: the history, the log and the state."""
SELDOM, NOW_AND_THEN = 50, 5
"""What is costly to look at is looked at once in so many steps, by chance."""
_NOTHING = State([])
_ASKED = tuple(
    Asked(selector, tier)
    for selector, tier in (
        ("", ""),
        ("", "gold"),
        ("flagSetId=red", "gold"),
        ("flagSetId=", ""),
        ("source=low.json", "gold"),
        ("source=high.json", ""),
        ("flagSetId=none", ""),
    )
)


class Checks(Visibility):
    """Looks at a world."""

    def __init__(self, world: World, random: Random) -> None:
        super().__init__(world)
        self._random = random
        self._asked: set[object] = set()
        self._ids: dict[str, dict[tuple[str, str], int]] = {}

    async def all(self) -> None:
        """Look at everything. Nothing is under way but what waits for time."""
        self._current()
        self._sources()
        self._ready()
        await self._surfaces()
        for subscriber in self._world.life.subscribers:
            self._subscriber(subscriber)
        if self._random.randrange(SELDOM) == 0:
            self._metrics()
            self._history()
        if self._random.randrange(NOW_AND_THEN) == 0:
            await self._bounded()

    def halfway(self) -> None:
        """Look at what must hold even while something is under way: an answer is one state, and comes at once."""
        life = self._world.life
        found = life.surfaces.bulk(Asked("", "")).flags
        seen = {key: each.metadata["number"] for key, each in found.items()}
        possible = [_NOTHING, *life.states]
        states = ({key: known.number for key, (_, known) in state.select("").by_key.items()} for state in possible)
        assert seen in states, f"P6: {seen} was never published"

    # what is in force

    def _expected(self) -> State:
        return self._world.published() or _NOTHING

    def _current(self) -> None:
        """P2 and P6: the current snapshot is what the sources said last, and its id says what is in it."""
        snapshots, state = self._world.life.agent.snapshots, self._world.published()
        published = snapshots.value.extent != "none"
        assert published == (state is not None), f"P2: published is {published}, and must be {state}"
        snapshot, expected = snapshots.value, self._expected().numbers()
        found = {(flag.set_id, flag.key): flag.metadata["number"] for flag in snapshot.flags.flags()}
        assert found == expected, f"P2: in force is {found}, and must be {expected}"
        assert self._ids.setdefault(snapshot.id, found) == found, "P6: two states have the same id"

    def _history(self) -> None:
        """P6: the snapshots that are kept are what they were, the newest first."""
        pages = self._world.life.surfaces.page
        listed = json.loads(pages("/debug/snapshots").body)["snapshots"]
        if self._world.published() is not None:
            assert listed[0]["id"] == self._world.life.agent.snapshots.value.id, "P6: the newest snapshot is not kept"
        for entry in listed:
            told = json.loads(pages(f"/debug/flags?snapshot={entry['id']}").body)["flags"]
            found = {(flag["flagSetId"], flag["key"]): flag["metadata"]["number"] for flag in told}
            known = self._ids.get(entry["id"], found)  # one that was there for a moment only was not looked at
            assert found == known, f"P6: snapshot {entry['number']} was {known}, and is {found} now"

    # evaluations

    async def _surfaces(self) -> None:
        """P8: whoever asks in whatever way gets the same."""
        world, life = self._world, self._world.life
        asked = self._random.choice(_ASKED)
        stale = frozenset(life.agent.freshness.stale)
        done = id(life), life.agent.snapshots.value.number, stale, asked
        if done in self._asked and not world.setting.told:
            return
        self._asked.add(done)
        selection = self._expected().select(asked.selector)
        expected = {key: self._answer(selection, key, asked) for key in KEYS}
        there = {key: found for key, found in expected.items() if found.error != "FLAG_NOT_FOUND"}
        for key in self._random.sample(KEYS, 2):
            kind = selection.by_key[key][1].kind if key in selection.by_key else "string"
            for surface, found in life.surfaces.one(key, kind, asked).items():
                self._same(surface, key, found, expected[key], selection, asked.selector)
        if world.published() is None:
            self._refused(asked)
            return
        bulk = life.surfaces.bulk(asked)
        for surface, listed in {"OFREP bulk": bulk.flags, **life.surfaces.all(asked)}.items():
            assert listed is not None, f"P8: {surface} is refused"
            assert listed.keys() == there.keys(), f"P8: {surface} has {sorted(listed)}, and must have {sorted(there)}"
            for key, found in listed.items():
                self._same(surface, key, found, there[key], selection, asked.selector)
        if world.setting.told:
            version = life.agent.snapshots.value.version(asked.selector)
            assert bulk.metadata[SNAPSHOT] == version, "P8: another snapshot"
        again = life.surfaces.bulk(asked, bulk.etag)
        assert (again.status, again.etag) == (304, bulk.etag), "P8: the same answer has another ETag"
        if world.whole():
            await self._in_process(selection, asked)

    def _refused(self, asked: Asked) -> None:
        """Before there are any flags, nobody is told that there are none."""
        bulk = self._world.life.surfaces.bulk(asked)
        assert (bulk.status, bulk.error) == (503, "PROVIDER_NOT_READY"), f"P2: {bulk}"
        for surface, listed in self._world.life.surfaces.all(asked).items():
            assert listed is None, f"P2: {surface} has {listed} before there is anything"

    def _answer(self, selection: Selection, key: str, asked: Asked) -> Answer:
        if key not in selection.by_key:
            return Answer(reason="ERROR", error="FLAG_NOT_FOUND")
        name, known = selection.by_key[key]
        stale = bool(self._stale(self._upstream(name)))
        return answer(known, selection.metadata(known), asked.context, stale=stale)

    def _same(
        self, surface: str, key: str, found: Answer, expected: Answer, selection: Selection, selector: str
    ) -> None:
        upstream = self._upstream(selection.by_key[key][0]) if key in selection.by_key else None
        if self._world.setting.told and found.metadata and surface != "OFREP bulk":  # which tells it once, for all
            found = self._untold(found, upstream, selector)
        unsure = upstream is not None and self._stale(upstream) is None
        if unsure and found.variant is not None:
            found = replace(found, reason=expected.reason)
        if expected.error is not None and not found.metadata:
            expected = replace(expected, metadata={})  # not every protocol has a place for it
        if expected.error == "FLAG_NOT_FOUND":
            found = replace(found, metadata={})
        assert found == expected, f"P8: {surface}: {key} is {found}, and must be {expected}"

    def _untold(self, found: Answer, upstream: Upstream | None, selector: str) -> Answer:
        """Look at what answers tell of the snapshot, and take it away."""
        metadata = dict(found.metadata)
        version = self._world.life.agent.snapshots.value.version(selector)
        assert metadata.pop(SNAPSHOT) == version, "P8: another snapshot"
        age = metadata.pop(AGE, None)
        if upstream is not None:
            self._age(age, upstream)
        return replace(found, metadata=metadata)

    async def _in_process(self, selection: Selection, asked: Asked) -> None:
        """P8: the document that sync clients get is the flags in force, and evaluates to the same."""
        headers = asked.headers(b"application/json")
        path = b"/flagd.sync.v1.FlagSyncService/FetchAllFlags"
        reply: Any = self._world.life.surfaces.sync(Request(b"POST", path, b"", headers, b"{}"))
        if inspect.isawaitable(reply):
            reply = await reply
        document = json.loads(reply.body)["flagConfiguration"]
        assert json.loads(document) == selection.document(), "P8: the document is not the flags in force"
        for key, (_, known) in selection.by_key.items():
            if len(selection.numbers()[key]) == 1:  # of several sets' flags the document has one, as in flagd
                found = self._world.life.surfaces.in_process(document, key, known.kind, asked.context)
                expected = answer(known, known.metadata, asked.context, stale=False)
                if expected.error is not None:
                    expected = replace(expected, metadata={})
                assert found == expected, f"P8: in process: {key} is {found}, and must be {expected}"

    # streams

    def _subscriber(self, subscriber: Subscriber) -> None:
        """P5: whoever reads is up to date; whoever was told the end had reason to be."""
        where, now = f"{subscriber.kind} {subscriber.selector!r}", self._world.loop.time()
        if subscriber.task.done() and not subscriber.task.cancelled():
            subscriber.task.result()
        if subscriber.ended:
            reason = self._reason(subscriber, now)
            assert subscriber.status in reason, f"P5: {where} ended by itself: {subscriber.status}"
            return
        if subscriber.task.done() or not subscriber.reading.is_set():
            return
        selection = self._expected().select(subscriber.selector)
        if subscriber.kind in SYNC:
            self._documents(subscriber, where)
            return
        assert subscriber.view == selection.numbers(), (
            f"P5: {where} believes {subscriber.view}, and must {selection.numbers()}"
        )
        quiet = now - subscriber.heard
        assert quiet <= SILENCE[subscriber.kind], f"P5: {where} has been silent for {quiet:.1f} s"

    def _reason(self, subscriber: Subscriber, now: float) -> tuple[str, ...]:
        """Return with what a stream may have ended by now."""
        life, deadline, age = self._world.life, self._world.setting.deadline, now - subscriber.joined
        reasons: tuple[str, ...] = ()
        if deadline and subscriber.kind != SSE and age >= deadline:
            reasons += ("4", "deadline_exceeded")
        late = life.whole_since is None or life.whole_since > subscriber.joined + PATIENCE - 0.01
        if subscriber.kind in SYNC and not subscriber.documents and late and age >= PATIENCE:
            reasons += ("14", "unavailable")
        return reasons

    def _documents(self, subscriber: Subscriber, where: str) -> None:
        """P6: every document is a published state, none older than the one before; P5: the last is the newest."""
        life, selector = self._world.life, subscriber.selector
        waits = not self._world.whole() and self._world.loop.time() - subscriber.joined <= PATIENCE
        possible = [_NOTHING.select(selector).document(), *(each.select(selector).document() for each in life.states)]
        while len(subscriber.documents) > 1 or (subscriber.documents and not subscriber.place):
            found = json.loads(subscriber.documents[0])
            later = [at for at, each in enumerate(possible) if at >= subscriber.place and each == found]
            assert later, f"P6: {where} got {found}, which was not published, or long ago"
            subscriber.place = later[0]
            if len(subscriber.documents) == 1:
                break
            del subscriber.documents[0]
        if not self._world.whole():
            assert not subscriber.documents, f"P5: {where} got a part of the flags for all of them"
        if waits:
            return
        expected = self._expected().select(selector).document()
        assert subscriber.documents, f"P5: {where} has got nothing"
        assert json.loads(subscriber.documents[-1]) == expected, f"P5: {where} did not get the newest document"

    # memory

    async def _bounded(self) -> None:
        """P7: a stream that stalls keeps two snapshots and a message, one that waits a waiter; nothing piles up."""
        life = self._world.life
        streams = [each for each in life.subscribers if not each.task.done()]
        most = 1 + 2 * sum(not each.reading.is_set() for each in streams)
        if _snapshots() > most:
            gc.collect()  # what an earlier life left is not ours
        await settle()
        assert _snapshots() <= most, f"P7: {_snapshots()} snapshots for {len(streams)} streams"
        waiters = life.agent.snapshots.subscribers
        assert waiters <= len(streams) + OWN, f"P7: {waiters} waiters for {len(streams)} streams"
        entries = len(life.agent.history.entries())
        assert entries <= self._world.setting.snapshots, f"P7: {entries} snapshots in the history"
        for each in streams:
            assert len(each.in_flight) < 16_384, f"P7: {len(each.in_flight)} bytes in flight"


def _snapshots() -> int:
    """Return how many there are, of all that was made since the simulation began."""
    return sum(type(each) is Snapshot for each in gc.get_objects())
