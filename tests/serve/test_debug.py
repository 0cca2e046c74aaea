"""The debug pages of snapshots: looked at, evaluated on and compared, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

import wigwag
from wigwag.observe import Registry
from wigwag.pipeline.broadcast import Broadcast
from wigwag.serve.context import Enrichment
from wigwag.serve.management.debug import Debug
from wigwag.serve.management.history import SnapshotHistory
from wigwag.serve.management.manage import Management
from wigwag.serve.snapshot import Snapshot
from wigwag.wire.http import Handler, Reply, Request
from wigwag.wire.peer import Peer

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
GOLD = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
GOLDEN = {**FLAG, "targeting": GOLD}
USERS = [{"targetingKey": "fay", "tier": "gold"}, {"targetingKey": "bo"}]


HOST = ((b"host", b"localhost:8014"),)


class Served:
    """The management port of an agent that has published these documents."""

    def __init__(self, *documents: dict[str, Any], static: dict[str, str] | None = None, most: int = 5) -> None:
        self.snapshots = Broadcast(Snapshot(wigwag.load({"flags": {}}), extent="none"))
        self.history = SnapshotHistory(most)
        self.history.follow(self.snapshots)
        flags = None
        for number, document in enumerate(documents, 1):
            flags = wigwag.load({"flags": document}, source="a.json", previous=flags)
            self.snapshots.publish(Snapshot(flags, number=number, published=1_800_000_000.0 + number))
        debug = Debug(
            self.snapshots.current,
            list,
            Enrichment(static or {}),
            self.history,
            everybody=False,
            now=lambda: 1_800_000_010.0,
        )
        self.handler: Handler = Management(lambda: True, Registry(), debug).handler()

    def ask(self, page: str, body: Any = None, address: str = "127.0.0.1:5") -> Reply:
        path, _, query = page.partition("?")
        text = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        method = b"GET" if body is None else b"POST"
        request = Request(
            method, f"/debug/{path}".encode(), query.encode(), headers=HOST, body=text, peer=Peer(address)
        )
        answer = self.handler(request)
        if not isinstance(answer, Reply):
            assert isinstance(answer, Coroutine)
            answer = asyncio.run(answer)
        assert isinstance(answer, Reply)
        return answer

    def told(self, page: str, body: Any = None, status: int = 200) -> Any:
        answer = self.ask(page, body)
        assert answer.status == status, answer.body
        return json.loads(answer.body)

    def text(self, page: str, body: Any = None) -> str:
        answer = self.ask(page, body)
        assert answer.headers == ((b"content-type", b"text/plain; charset=utf-8"),)
        return answer.body.decode()


@pytest.fixture
def served() -> Served:
    return Served({"x": FLAG, "y": FLAG}, {"x": GOLDEN, "y": FLAG})


class TestSnapshots:
    def test_the_newest_is_first_with_what_it_changed(self, served: Served) -> None:
        told = served.told("snapshots")
        assert told["most"] == 5
        newest, first = told["snapshots"]
        assert newest == {
            "number": 2,
            "id": served.snapshots.value.id,
            "published": "2027-01-15T08:00:02Z",
            "ageSeconds": 8.0,
            "flags": 2,
            "changes": {"added": 0, "removed": 0, "changed": 1, "keys": ["x"]},
        }
        assert first["changes"] == {"added": 2, "removed": 0, "changed": 0, "keys": ["x", "y"]}

    def test_people_get_a_line_for_each(self, served: Served) -> None:
        newest, first = served.text("snapshots?format=text").splitlines()
        assert newest.split()[:2] == ["2", served.snapshots.value.id]
        assert newest.endswith("8 s ago  2 flags  1 changed: x")
        assert first.endswith("9 s ago  2 flags  2 added: x, y")

    def test_before_the_first_there_are_none(self) -> None:
        assert Served().told("snapshots")["snapshots"] == []
        assert Served().text("snapshots?format=text") == "no snapshot has been published yet\n"

    @pytest.mark.parametrize("page", ["snapshots", "flags", "evaluate", "explain", "diff", "sources"])
    def test_other_machines_are_refused(self, served: Served, page: str) -> None:
        assert served.ask(page, address="10.0.0.1:5").status == 403


class TestFlags:
    def test_those_of_an_earlier_snapshot(self, served: Served) -> None:
        now, then = served.told("flags"), served.told("flags?snapshot=previous")
        assert (now["number"], then["number"]) == (2, 1)
        assert ["targeting" in flag for told in (now, then) for flag in told["flags"]] == [True, False, False, False]
        assert served.told(f"flags?snapshot={then['snapshot'][:8]}") == then

    def test_as_a_document_to_go_back_to(self, served: Served) -> None:
        told = served.told("flags?snapshot=1&format=document")
        assert told["flags"].keys() == {"x", "y"}
        assert wigwag.load(told).resolve("x", context={"tier": "gold"}).variant == "off"

    @pytest.mark.parametrize("page", ["flags", "evaluate", "explain?key=x", "diff"])
    def test_an_unknown_snapshot_is_404_and_tells_what_there_is(self, served: Served, page: str) -> None:
        name = "from" if page == "diff" else "snapshot"
        told = served.told(f"{page}{'&' if '?' in page else '?'}{name}=cafecafe", status=404)
        assert told["error"].startswith("no snapshot 'cafecafe' is kept; there is current, previous, ")

    @pytest.mark.parametrize("page", ["flags", "evaluate", "explain?key=x", "diff"])
    def test_an_invalid_selector_is_400(self, served: Served, page: str) -> None:
        told = served.told(f"{page}{'&' if '?' in page else '?'}selector=a=b", status=400)
        assert told["error"].startswith("invalid selector key")


class TestEvaluate:
    def test_one_flag_then_and_now(self, served: Served) -> None:
        now = served.told("evaluate?key=x", USERS[0])
        then = served.told("evaluate?key=x&snapshot=previous", USERS[0])
        assert (now["number"], now["variant"], now["reason"]) == (2, "on", "TARGETING_MATCH")
        assert (then["number"], then["variant"], then["reason"]) == (1, "off", "STATIC")

    def test_all_flags(self, served: Served) -> None:
        told = served.told("evaluate?snapshot=1")
        assert [(flag["key"], flag["value"]) for flag in told["flags"]] == [("x", False), ("y", False)]

    def test_an_error_says_what_is_wrong(self, served: Served) -> None:
        told = served.told("evaluate?key=nope")
        assert (told["error"], told["message"]) == ("FLAG_NOT_FOUND", "flag 'nope' does not exist")

    def test_it_sees_what_the_operator_adds(self) -> None:
        served = Served({"x": GOLDEN}, static={"tier": "gold"})
        assert served.told("evaluate?key=x", {"tier": "tin"})["variant"] == "on"

    @pytest.mark.parametrize("page", ["evaluate", "explain?key=x"])
    @pytest.mark.parametrize("body", [b"[", b'{"a":"\xff"}', b'{"a":' * 20_000, b"[1]", b"5"])
    def test_a_context_that_is_none_is_refused(self, served: Served, page: str, body: bytes) -> None:
        error = served.told(page, body, status=400)["error"]
        assert error.startswith("the body cannot be used as a context: ")

    def test_an_explanation_of_then(self, served: Served) -> None:
        assert served.told("explain?key=x&snapshot=1", USERS[0])["reason"] == "STATIC"
        assert served.text("explain?key=x&snapshot=2&format=text", USERS[0]).startswith("x = true (variant on,")
        assert "say which flag" in served.told("explain", status=400)["error"]


class TestDiff:
    def test_without_names_the_previous_and_the_current_are_compared(self, served: Served) -> None:
        told = served.told("diff")
        assert (told["same"], [flag["key"] for flag in told["changed"]], told["contexts"]) == (False, ["x"], 0)
        assert served.told("diff?from=1&to=1")["same"] is True
        assert served.told("diff?from=current&to=previous")["before"] == served.snapshots.value.id

    @pytest.mark.parametrize("body", [USERS, {"contexts": USERS}], ids=["list", "wrapped"])
    def test_contexts_are_told_apart(self, served: Served, body: Any) -> None:
        told = served.told("diff", body)
        assert (told["contexts"], told["affected"]) == (2, 1)
        felt = [(move["before"]["variant"], move["after"]["variant"], move["contexts"]) for move in told["moves"]]
        assert felt == [("off", "off", 1), ("off", "on", 1)]

    def test_one_context_needs_no_list(self, served: Served) -> None:
        assert served.told("diff", USERS[0])["affected"] == 1
        assert served.told("diff", {"contexts": [], "tier": "gold"})["affected"] == 1

    def test_people_get_text(self, served: Served) -> None:
        assert served.text("diff?format=text", USERS) == (
            "~ x   targeting added\n\n1 of 2 contexts get another answer:\n  x   off → on   1: fay\n"
        )

    def test_contexts_get_what_the_operator_adds(self) -> None:
        served = Served({"x": FLAG}, {"x": GOLDEN}, static={"tier": "gold"})
        assert served.told("diff", USERS)["affected"] == 2

    @pytest.mark.parametrize("body", [b"5", b"[5]", b'{"contexts": [5]}', b'"x"'])
    def test_what_is_no_context_is_refused(self, served: Served, body: bytes) -> None:
        assert served.told("diff", body, status=400)["error"].startswith("the body must be a context")

    def test_the_work_is_bounded(self, served: Served) -> None:
        assert "more than 10000 contexts" in served.told("diff", [{}] * 10_001, status=400)["error"]
        many = Served({f"f{n}": FLAG for n in range(101)}, {f"f{n}": GOLDEN for n in range(101)})
        error = many.told("diff", [{}] * 10_000, status=400)["error"]
        assert error == "10000 contexts are too many for 101 changed flags; compare 9900 contexts at a time"

    def test_a_long_comparison_lets_others_have_their_turn(self) -> None:
        served = Served({f"f{n}": FLAG for n in range(600)}, {f"f{n}": GOLDEN for n in range(600)})
        request = Request(
            b"POST", b"/debug/diff", body=json.dumps(USERS * 100).encode(), headers=HOST, peer=Peer("unix")
        )

        async def count() -> int:
            answer, turns = served.handler(request), 0
            assert isinstance(answer, Coroutine)
            comparing = asyncio.ensure_future(answer)
            while not comparing.done():
                await asyncio.sleep(0)
                turns += 1
            assert json.loads((await comparing).body)["affected"] == 100
            return turns

        assert asyncio.run(count()) > 3
