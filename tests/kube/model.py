"""An API server as a model, and a world of faults around it: no sockets, no time, and every choice from one seed.

The model keeps all its history, so that it can tell whether something that a watch published was ever true. `World`
performs what a reflector asks for, with the answers as bytes, and at every turn may do what real servers, proxies and
networks do: refuse, break, forget, repeat, reorder, be silent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

from wigwag.kube.client import Capabilities
from wigwag.kube.errors import ApiStatus, read_status
from wigwag.kube.kinds import CONFIG_MAP
from wigwag.kube.watch.decode import END, Key, Lines, MalformedObjectError, metadata_only, plain, read_page
from wigwag.kube.watch.listwatch import ReflectorRequest, WatchFault, WatchTiming, fault_of, refusal
from wigwag.kube.watch.reflector import Reflector
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import Unavailable, Unchanged

SPEC = KubeWatch(CONFIG_MAP, "ns")
NAMES = "abcdefgh"
State = dict[str, str]


class Past(NamedTuple):
    """Something that happened."""

    version: int
    type: str
    name: str
    content: str
    uid: str = ""

    def object(self) -> dict[str, Any]:
        about: dict[str, Any] = {"name": self.name, "namespace": "ns", "resourceVersion": str(self.version)}
        about |= {"uid": self.uid, "managedFields": [1]}
        return {"kind": "ConfigMap", "metadata": about, "data": {"content": self.content}}

    def line(self) -> bytes:
        return json.dumps({"type": self.type, "object": self.object()}).encode() + b"\n"


class Server:
    """Objects, and all that ever happened to them."""

    def __init__(self, streams: str, bookmarks: bool, ahead: str = "refuses") -> None:
        """`streams`: whether it can begin a watch with all objects: it does, it refuses, or it ignores the wish.

        `ahead`: what becomes of a watch from a version in its future: it refuses, or accepts and is silent.
        """
        self.streams, self.bookmarks, self.ahead = streams, bookmarks, ahead
        self.restores = 0
        self.written: set[tuple[str, int]] = set()
        self.version = self.floor = 100
        self.objects: dict[str, Past] = {}
        self.past: list[Past] = []
        self.states: list[tuple[int, State]] = [(100, {})]
        self.pinned: dict[str, tuple[int, list[Past]]] = {}

    def state(self) -> State:
        return {name: past.content for name, past in self.objects.items()}

    def change(self, name: str, content: str | None) -> None:
        """Create, change or delete."""
        self.version += 1
        while (name, self.version) in self.written:  # others write in between, so no object gets a version twice
            self.version += 1
        self.written.add((name, self.version))
        kind = "DELETED" if content is None else "MODIFIED" if name in self.objects else "ADDED"
        before = self.objects.get(name)
        uid = before.uid if before else f"{name}-{self.restores}-{self.version}"
        past = Past(self.version, kind, name, content if content is not None else self.objects[name].content, uid)
        if content is None:
            del self.objects[name]
        else:
            self.objects[name] = past
        self.past.append(past)
        self.states.append((self.version, self.state()))

    def forget(self) -> None:
        """Compact the history, as etcd does, and let go of what pages are read from."""
        self.floor = self.version
        self.pinned.clear()

    def restore(self, version: int) -> None:
        """Be as it was at a version, as if etcd were restored from a backup; what came later never was."""
        self.restores += 1
        self.version = version
        self.past = [past for past in self.past if past.version <= version]
        self.objects = {}
        for past in self.past:
            if past.type == "DELETED":
                del self.objects[past.name]
            else:
                self.objects[past.name] = past
        self.floor = min(self.floor, version)
        self.pinned.clear()
        self.states.append((version, self.state()))

    def page(self, ask: ReflectorRequest) -> bytes:
        """Return a page; `Refused` if it cannot be had."""
        if ask.token:
            if ask.token not in self.pinned:
                raise Refused(410, "Expired")
            version, left = self.pinned.pop(ask.token)
        else:
            if ask.version and int(ask.version) > self.version:
                raise Refused(504, "Timeout", "Too large resource version: 1, current: 0")
            version, left = self.version, list(self.objects.values())
        taken, rest = (left[: ask.limit], left[ask.limit :]) if ask.limit else (left, [])
        about = {"resourceVersion": str(version)}
        if rest:
            about["continue"] = f"token-{version}-{len(rest)}"
            self.pinned[about["continue"]] = version, rest
        return json.dumps({"metadata": about, "items": [past.object() for past in taken]}).encode()

    def since(self, version: int) -> list[Past]:
        if version < self.floor:
            raise Refused(410, "Expired")
        if version > self.version and self.ahead == "refuses":
            raise Refused(504, "Timeout", "Too large resource version: 1, current: 0")
        return [past for past in self.past if past.version > version]

    def bookmark(self, end: bool = False) -> bytes:
        about: dict[str, Any] = {"resourceVersion": str(self.version)}
        if end:
            about["annotations"] = {END: "true"}
        return json.dumps({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "metadata": about}}).encode() + b"\n"


class Refused(Exception):  # noqa: N818 - it is what the server says
    def __init__(self, code: int, reason: str = "", message: str = "", retry_after: float = 0.0) -> None:
        self.code, self.retry_after = code, retry_after
        self.body = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()

    def fault(self, ask: ReflectorRequest) -> WatchFault:
        return refusal(read_status(self.body, self.code), SPEC, ask.verb, self.retry_after)

    def event(self) -> bytes:
        return b'{"type":"ERROR","object":' + self.body + b"}\n"


BROKEN = WatchFault("the connection broke")
REFUSALS = [Refused(500), Refused(429, retry_after=7.0), Refused(503), Refused(403), Refused(404), Refused(401)]


class World:
    """A reflector, the server it asks, and what goes wrong between them."""

    def __init__(
        self, seed: int, streams: str | None = None, timing: WatchTiming | None = None, restores: bool = False
    ) -> None:
        """`restores`: whether the server's history may go back, now and then."""
        self.random, self.restores = Random(seed), restores
        choice = self.random.choice
        self.server = Server(
            streams or choice(["yes", "refuses", "ignores"]), choice([True, True, False]), choice(["refuses", "silent"])
        )
        self.capabilities = Capabilities()
        self.reflector: Reflector[dict[str, Any]] = Reflector(
            self.capabilities, timing or WatchTiming(page=choice([2, 3, 500])), self.random.random
        )
        self.now = 1000.0
        self.asks: list[ReflectorRequest] = []
        self.causes = 1
        """How many reasons there were to ask for the whole list; that nothing is known is the first."""
        self.published: State | None = None
        self.seen = 0
        self.troubles: list[str] = []
        self.trouble = False
        self.confirmed = -1.0
        self.calm = False

    def turn(self) -> None:
        """Perform one request."""
        ask = self.reflector.next(self.now)
        assert ask.when <= self.now + 400
        while not self.calm and self.random.random() < 0.3:
            self.happen()
        self.now = max(self.now, ask.when)
        self.asks.append(ask)
        self.perform(ask)

    def happen(self) -> None:
        """Something changes on the server."""
        name, server = self.random.choice(NAMES), self.server
        lot = self.random.random()
        if lot < 0.1:
            server.forget()
        elif self.restores and lot < 0.13:
            server.restore(self.random.randrange(100, server.version + 1))
        elif lot < 0.4 and name in server.objects:
            server.change(name, None)
        else:
            server.change(name, str(self.random.random()))

    def take(self, items: list[Any]) -> None:
        """Judge what the reflector yields: it must have been true, and not before what was published last."""
        for item in items:
            if isinstance(item, Unavailable):
                self.troubles.append(item.reason)
                self.trouble = True
                continue
            self.trouble, self.confirmed = False, self.now
            if isinstance(item, Unchanged):
                assert self.published is not None
                continue
            self.published = contents(item)
            if self.server.restores:
                continue  # until it has been compared, it is a mixture
            states = self.server.states
            while self.seen < len(states) and states[self.seen][1] != self.published:
                self.seen += 1
            assert self.seen < len(states), f"{self.published} was never so, or not any more"

    def fail(self, fault: WatchFault, cause: bool = False) -> None:
        self.causes += cause
        self.take(self.reflector.failed(fault, self.now))

    def perform(self, ask: ReflectorRequest) -> None:
        whole = ask.how != "watch"
        if not self.calm and self.random.random() < 0.25:
            refused = self.random.choice([*REFUSALS, None])
            # a whole list that fails is asked for again; a watch that fails is a cause if it fails with 500 three times
            self.fail(refused.fault(ask) if refused else BROKEN, cause=whole or bool(refused and refused.code == 500))
            return
        try:
            if ask.how == "list":
                self.page(ask)
            else:
                self.watch(ask)
        except Refused as refused:
            self.fail(refused.fault(ask), cause=True)
        except MalformedObjectError as error:
            self.fail(fault_of(error, SPEC, ask.verb), cause=whole)

    def page(self, ask: ReflectorRequest) -> None:
        body = self.server.page(ask)
        if not self.calm and self.random.random() < 0.1:
            body = body[: self.random.randrange(len(body))]
        self.take(self.reflector.listed(read_page(body, plain), self.now))

    def watch(self, ask: ReflectorRequest) -> None:
        server, reflector = self.server, self.reflector
        lines = Lines(plain)
        position = int(ask.version or server.version)
        pending = server.since(position)  # refuses by status
        if ask.how == "stream":
            if server.streams == "refuses":
                raise Refused(422, "Invalid")
            reflector.opened(self.now)
            if server.streams == "ignores":
                self.causes += 1
                self.silence()
                return
            self.feed(lines, ask, self.beginning())
            position = server.version
        else:
            reflector.opened(self.now)
            self.feed(lines, ask, b"".join(past.line() for past in pending))
            position = server.version
        for _ in range(self.random.randrange(1, 12)):
            if not reflector.open:
                return
            position = self.step(lines, ask, position)
        if reflector.open:
            self.end(ask)

    def beginning(self) -> bytes:
        objects = [past._replace(type="ADDED").line() for past in self.server.objects.values()]
        self.random.shuffle(objects)
        return b"".join(objects) + self.server.bookmark(end=True)

    def step(self, lines: Lines[Any], ask: ReflectorRequest, position: int) -> int:
        """Let something happen on an open stream; return up to which version it was told."""
        server, random = self.server, self.random
        self.now += random.choice([0.0, 0.1, 2.0, 20.0])
        if self.now >= self.reflector.wake:
            self.take(self.reflector.waited(self.now))
        self.check()
        if not self.reflector.open:
            return position
        for _ in range(0 if self.calm else random.randrange(4)):
            self.happen()
        try:
            news = server.since(position)
        except Refused as refused:  # compacted under our feet
            self.causes += 1
            self.feed(lines, ask, refused.event())
            return position
        self.tell(lines, ask, news)
        return max(position, server.version) if server.ahead == "silent" else server.version

    def check(self, *, dead: bool = False) -> None:
        """Answer what is asked beside the stream, if anything is; one who is dead answers nothing."""
        ask = self.reflector.check(self.now)
        if ask is None:
            return
        if dead:
            self.now += 8.0
        if dead or (not self.calm and self.random.random() < 0.2):
            refused = None if dead else self.random.choice([*(each for each in REFUSALS if each.code != 403), None])
            self.take(self.reflector.check_failed(refused.fault(ask) if refused else BROKEN, self.now))
            return
        try:
            page = read_page(self.server.page(ask), metadata_only)
        except Refused as refused:
            self.take(self.reflector.check_failed(refused.fault(ask), self.now))
            return
        self.take(self.reflector.checked(page, self.now))

    def tell(self, lines: Lines[Any], ask: ReflectorRequest, news: list[Past]) -> None:
        lot = 1.0 if self.calm else self.random.random()
        if lot < 0.05:
            self.causes += 1
            self.feed(lines, ask, self.random.choice([Refused(410, "Expired"), Refused(500)]).event())
        elif lot < 0.1:
            self.fail(BROKEN)
        elif lot < 0.13:
            self.silence()
        elif lot < 0.15:
            self.stuck()
        elif lot < 0.2:
            text = b"".join(past.line() for past in news) or self.server.bookmark()
            self.feed(lines, ask, text[: self.random.randrange(len(text))] + b"\n")
            if self.reflector.open:
                self.fail(BROKEN)
        elif lot < 0.4:
            self.feed(lines, ask, self.muddled(news), split=False)
        elif lot < 0.45:
            self.feed(lines, ask, b'{"type":"SURPRISE","object":{}}\n' + b"".join(past.line() for past in news))
        else:
            self.feed(lines, ask, b"".join(past.line() for past in news))
            if self.server.bookmarks and self.reflector.open and self.random.random() < 0.5:
                self.feed(lines, ask, self.server.bookmark())

    def muddled(self, news: list[Past]) -> bytes:
        """The news in some order, with some of it twice, and with some of the past."""
        past = self.random.sample(self.server.past, min(3, len(self.server.past)))
        told = [*news, *news[: self.random.randrange(3)], *past]
        self.random.shuffle(told)
        return b"".join(each.line() for each in told)

    def feed(self, lines: Lines[Any], ask: ReflectorRequest, text: bytes, split: bool = True) -> None:
        for piece in self.pieces(text) if split else [text]:
            events, problem = lines.feed(piece)
            heard = [refusal(each, SPEC, ask.verb) if isinstance(each, ApiStatus) else each for each in events]
            self.take(self.reflector.received(heard, self.now))
            if not self.reflector.open:
                return
            if problem is not None:
                self.fail(fault_of(problem, SPEC, ask.verb))
                return

    def pieces(self, text: bytes) -> Iterator[bytes]:
        while text:
            cut = self.random.choice([1, 50, 400, len(text)])
            yield text[:cut]
            text = text[cut:]

    def silence(self) -> None:
        """The connection is dead, and nobody says so."""
        began = self.now
        while self.reflector.open:
            assert self.reflector.wake > began - 1
            self.now = max(self.now, self.reflector.wake)
            self.take(self.reflector.waited(self.now))
            self.check(dead=True)
        assert self.now - began <= 30

    def stuck(self) -> None:
        """Nothing comes any more on this connection, and others work: something between us holds it open."""
        self.causes += 1  # if something happened meanwhile, a comparison shows it
        began = self.now
        while self.reflector.open:
            self.now = max(self.now, self.reflector.wake)
            self.take(self.reflector.waited(self.now))
            self.check()
        assert self.now - began <= 600 + 15 + 16

    def end(self, ask: ReflectorRequest) -> None:
        if ask.how == "stream" and not self.calm:
            self.causes += 1
        self.take(self.reflector.ended(self.now))

    def whole(self) -> int:
        """Return how often the whole list was asked for; its further pages do not count."""
        return sum(ask.how != "watch" and not ask.token for ask in self.asks)


def contents(found: Mapping[Key, dict[str, Any]]) -> State:
    assert all("managedFields" not in each["metadata"] for each in found.values())
    return {name: each["data"]["content"] for (_, name), each in found.items()}
