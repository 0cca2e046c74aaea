"""Rules, the door and origins, called without a socket: who is let in, with which selector, and what he is told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable
from hashlib import sha256
from typing import Any

import pytest

from tests.pipeline.fakes import run, settle
from wigwag.errors import DocumentError, UsageError
from wigwag.observe import Registry
from wigwag.serve.access.access import AccessControl, AccessPolicy, Refusals
from wigwag.serve.access.cors import with_cors
from wigwag.serve.access.revocable import RevocableStream
from wigwag.serve.access.throttle import Slots, Throttle
from wigwag.serve.access.tokens import (
    PresentedCredential,
    Rules,
    compile_rules,
    digest,
    read_rules,
    read_tokens,
)
from wigwag.serve.context import selector_of
from wigwag.wire.http import Handler, Headers, Reply, Request, Response, Stream
from wigwag.wire.peer import Identity, Kind, Peer
from wigwag.wire.rpc import Call, Code, Method, RpcError

SECRET = "s3cret-of-team-a"
A: dict[str, Any] = {"name": "team-a", "token": SECRET, "selectors": ["flagSetId=a"]}
AB: dict[str, Any] = {"name": "team-ab", "token": "s3cret-of-team-ab", "selectors": ["flagSetId=a", "b.json"]}
ALL: dict[str, Any] = {"name": "ops", "token": "s3cret-of-ops", "selectors": ["*"]}
CERTIFIED: dict[str, Any] = {
    "name": "robot",
    "certificates": ["spiffe://x/robot", "CN=robot"],
    "selectors": ["flagSetId=r"],
}


def rules(*found: dict[str, Any], **files: tuple[bytes, ...]) -> Rules:
    return compile_rules(read_rules(json.dumps(found).encode()), files)


# the file


def test_a_rule_is_found_by_its_token_its_digest_or_its_certificate() -> None:
    hashed = {"name": "h", "tokenSha256": sha256(b"hashed").hexdigest().upper(), "selectors": ["*"]}
    filed = {"name": "f", "tokenFile": "f", "selectors": ["*"]}
    found = rules(A, hashed, filed, CERTIFIED, f=read_tokens(b"old\n\n new \n"))

    def name(proof: PresentedCredential) -> str | None:
        caller = found.caller(proof)
        return caller.name if caller else None

    assert name(PresentedCredential(digest(SECRET.encode()))) == "team-a"
    assert name(PresentedCredential(digest(b"hashed"))) == "h"
    assert [name(PresentedCredential(digest(token))) for token in (b"old", b"new")] == ["f", "f"]
    assert name(PresentedCredential(None, Identity("CN", "robot"))) == "robot"
    assert name(PresentedCredential(None, Identity("DNS", "robot"))) is None
    assert name(PresentedCredential()) is None


def test_a_bad_token_is_not_made_good_by_a_certificate() -> None:
    assert (
        rules(A, CERTIFIED).caller(PresentedCredential(digest(b"wrong"), Identity("URI", "spiffe://x/robot"))) is None
    )


def test_yaml_is_understood_too() -> None:
    (draft,) = read_rules(b"- name: team-a\n  token: abc\n  selectors: [flagSetId=a]\n")
    assert draft.digests == (digest(b"abc"),)


WRONG: list[tuple[Any, str]] = [
    ("", r"expected `array`, got `object`"),
    ("{", r"not valid YAML or JSON, at line 2, column 1"),
    (f"[token: *{SECRET}]", r"not valid YAML or JSON"),
    ({"rules": []}, r"expected `array`, got `object`"),
    ([{SECRET: 1, **A}], r"something other than name, .* - at `\$\[0\]`"),
    ([{**A, "token": 12345}], r"expected `str \| null`, got `int` - at `\$\[0\]\.token`"),
    ([{**A, "token": f"{SECRET} with spaces"}], r"\$\[0\]\.token: up to"),
    ([A, {**A, "token": ""}], r"\$\[1\]\.token: up to"),
    ([{**A, "token": "x" * 5000}], r"\$\[0\]\.token: up to"),
    ([{**A, "tokenSha256": SECRET}], r"tokenSha256: 64 hexadecimal digits"),
    ([{**A, "name": ""}], r"\$\[0\]\.name"),
    ([{**A, "name": "a\nb"}], r"\$\[0\]\.name"),
    ([{**A, "tokenFile": ""}], r"tokenFile: name a file"),
    ([{"name": "a", "selectors": ["*"]}], r"say who is meant"),
    ([{**A, "selectors": []}], r"selectors: list 1 to"),
    ([{**A, "selectors": [""]}], r"selectors: list 1 to"),
    ([{**A, "selectors": [f"{SECRET}=x"]}], r"selectors: each is flagSetId=NAME"),
    ([{**A, "certificates": [""]}], r"certificates: list up to"),
    ([A] * 10_001, r"more than the limit of 10000"),
]


@pytest.mark.parametrize(("document", "message"), WRONG, ids=range(len(WRONG)))
def test_an_error_in_the_file_says_where_it_is_and_quotes_no_secret(document: Any, message: str) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(DocumentError, match=message) as caught:
        read_rules(text.encode())
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_two_rules_cannot_have_the_same_token_or_certificate() -> None:
    with pytest.raises(DocumentError, match="'team-a' and 'other' have the same token") as caught:
        rules(A, {**A, "name": "other"})
    assert SECRET not in str(caught.value)
    with pytest.raises(DocumentError, match="the same certificate"):
        rules(CERTIFIED, {**CERTIFIED, "name": "other"})
    assert len(rules(A, A).tokens) == 1


@pytest.mark.parametrize("text", [b"", b"\n \n", b"two words", b"\xff"])
def test_a_token_file_holds_tokens(text: bytes) -> None:
    with pytest.raises(DocumentError):
        read_tokens(text)


def test_nothing_that_is_kept_has_the_token_in_it() -> None:
    assert SECRET not in repr(read_rules(json.dumps([A]).encode())) + repr(rules(A))


# the door


class Door:
    """An access, and the methods and pages of a service that only tells which selector it was asked with."""

    def __init__(self, found: Rules | None = None, **policy: Any) -> None:
        self.registry, self.time = Registry(), 0.0
        self.access = AccessControl(AccessPolicy(**policy), Refusals(self.registry), lambda: self.time)
        self.streams: list[asyncio.Queue[bytes]] = []
        self.closed = 0
        if found is not None:
            self.access.adopt(found)
        table = {
            b"/unary": Method(unary=lambda call: selector_of(call).encode()),
            b"/stream": Method(stream=self._tell),
        }
        self.methods = self.access.methods(table, lambda call: None if call.body == b"none" else selector_of(call))
        self.page = self.access.handler(self._page, selector_of, lambda request: request.path[1:].decode())

    async def _tell(self, call: Call) -> AsyncIterator[bytes]:
        inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.streams.append(inbox)
        try:
            yield selector_of(call).encode()
            while True:
                yield await inbox.get()
        finally:
            self.closed += 1

    def _page(self, request: Request) -> Response:
        if request.path == b"/events":
            return Stream(200, (), self._tell(Call(b"", False, request, request.fields)))
        return Reply(200, (), selector_of(request).encode())

    def call(self, headers: dict[str, str], body: bytes = b"", peer: Peer | None = None) -> Call:
        request = self.request(headers, peer=peer)
        return Call(body, False, request, request.fields)

    def request(self, headers: dict[str, str], path: bytes = b"/key", peer: Peer | None = None) -> Request:
        fields = tuple((name.encode(), value.encode()) for name, value in headers.items())
        return Request(b"POST", path, headers=fields, peer=peer or Peer("192.0.2.1:1000"))

    def ask(self, token: str = "", selector: str | None = None, **more: Any) -> str:
        """Return what the service says, or how it was refused, on both ways in, which must agree."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        headers |= {} if selector is None else {"flagd-selector": selector}
        unary = self.methods[b"/unary"].unary
        assert unary is not None
        call = self.call(headers, **more)
        try:
            answer = unary(call)
        except RpcError as error:
            return error.code.name
        assert isinstance(answer, bytes)
        return answer.decode()

    def get(self, headers: dict[str, str], path: bytes = b"/key") -> Reply:
        answer = self.page(self.request(headers, path))
        assert isinstance(answer, Reply)
        return answer

    def refused(self) -> dict[str, int]:
        lines = [
            line for line in self.registry.render().splitlines() if line.startswith("wigwag_requests_refused_total{")
        ]
        return {line.split('"')[1]: int(line.split()[-1]) for line in lines}

    async def open(self, token: str = "", selector: str = "") -> Any:
        """Open a stream, and see that it has begun."""
        stream: Any = self.methods[b"/stream"].stream
        headers = {"authorization": f"Bearer {token}"} | ({"flagd-selector": selector} if selector else {})
        messages = stream(self.call(headers))
        await anext(messages)
        return messages


@pytest.mark.parametrize(
    ("token", "selector", "expected"),
    [
        (SECRET, "flagSetId=a", "flagSetId=a"),
        (SECRET, None, "flagSetId=a"),
        (SECRET, "", "flagSetId=a"),
        (SECRET, "flagSetId=b", "PERMISSION_DENIED"),
        (SECRET, "flagSetId=", "PERMISSION_DENIED"),
        (SECRET, "a", "PERMISSION_DENIED"),
        (SECRET, "colour=red", "INVALID_ARGUMENT"),
        (AB["token"], "flagSetId=a", "flagSetId=a"),
        (AB["token"], "source=b.json", "source=b.json"),
        (AB["token"], "b.json", "b.json"),
        (AB["token"], "a.json", "PERMISSION_DENIED"),
        (AB["token"], None, "INVALID_ARGUMENT"),
        (ALL["token"], None, ""),
        (ALL["token"], "flagSetId=x", "flagSetId=x"),
        ("", "flagSetId=a", "UNAUTHENTICATED"),
        ("wrong", "flagSetId=a", "UNAUTHENTICATED"),
        ("wrong", None, "UNAUTHENTICATED"),
    ],
)
def test_a_rule_says_which_selectors_a_token_may_use(token: str, selector: str | None, expected: str) -> None:
    door = Door(rules(A, AB, ALL), known=True)
    assert door.ask(token, selector) == expected
    headers = {"authorization": f"Bearer {token}"} if token else {}
    reply = door.get(headers | ({} if selector is None else {"flagd-selector": selector}))
    statuses = {"PERMISSION_DENIED": 403, "UNAUTHENTICATED": 401, "INVALID_ARGUMENT": 400}
    assert reply.status == statuses.get(expected, 200)
    assert reply.status != 200 or reply.body == expected.encode()


def test_who_may_select_one_thing_gets_it_even_where_a_selector_is_required() -> None:
    door = Door(rules(A, ALL), known=True, selector=True)
    assert door.ask(SECRET) == "flagSetId=a"
    assert door.ask(ALL["token"]) == "INVALID_ARGUMENT"


def test_a_required_selector_may_be_any_but_none() -> None:
    door = Door(selector=True)
    assert [door.ask("", selector) for selector in (None, "", "flagSetId=", "x")] == [
        "INVALID_ARGUMENT",
        "INVALID_ARGUMENT",
        "flagSetId=",
        "x",
    ]
    reply = door.get({})
    assert reply.status == 400
    told = json.loads(reply.body)
    assert (told["key"], told["errorCode"]) == ("key", "GENERAL")
    assert "Flagd-Selector: flagSetId=NAME" in told["errorDetails"]
    assert door.ask("", None, body=b"none") == ""


def test_what_asks_for_no_flags_needs_a_token_but_no_selector() -> None:
    door = Door(rules(AB), known=True)
    assert door.ask(AB["token"], "flagSetId=elsewhere", body=b"none") == "flagSetId=elsewhere"
    assert door.ask("", None, body=b"none") == "UNAUTHENTICATED"


def test_a_certificate_proves_who_asks() -> None:
    door = Door(rules(A, CERTIFIED), known=True)
    robot = Peer("192.0.2.1:1", "https", Identity("URI", "spiffe://x/robot"))
    assert door.ask(peer=robot) == "flagSetId=r"
    assert door.ask(SECRET, peer=robot) == "flagSetId=a"
    assert door.ask("wrong", peer=robot) == "UNAUTHENTICATED"
    assert door.ask(peer=Peer("192.0.2.1:1", "https", Identity("URI", "spiffe://x/other"))) == "UNAUTHENTICATED"


@pytest.mark.parametrize("kind", ["DNS", "email"])
@pytest.mark.parametrize("name", ["CN=robot", "spiffe://x/robot", "robot"])
def test_a_name_of_another_kind_proves_nothing_however_it_is_spelled(kind: Kind, name: str) -> None:
    door = Door(rules(A, CERTIFIED), known=True)
    assert door.ask(peer=Peer("192.0.2.1:1", "https", Identity(kind, name))) == "UNAUTHENTICATED"


def test_a_certificate_that_is_called_like_a_rule_does_not_use_up_its_rate() -> None:
    door = Door(rules(A), known=True, throttle=Throttle(1, 1))
    assert door.ask(peer=Peer("192.0.2.1:1", "https", Identity("DNS", "team-a"))) == "UNAUTHENTICATED"
    assert door.ask(SECRET) == "flagSetId=a"


def test_without_rules_the_door_is_closed_and_says_to_come_back() -> None:
    door = Door(known=True)
    assert door.ask(SECRET, "flagSetId=a") == "UNAVAILABLE"
    assert door.get({}).status == 503
    door.access.adopt(rules(A))
    assert door.ask(SECRET, "flagSetId=a") == "flagSetId=a"


def test_no_rules_at_all_let_nobody_in() -> None:
    assert Door(rules(), known=True).ask(SECRET) == "UNAUTHENTICATED"


def test_who_shows_nothing_is_told_what_to_show() -> None:
    reply = Door(rules(A), known=True).get({"authorization": "Basic abc"})
    assert (reply.status, dict(reply.headers)[b"www-authenticate"]) == (401, b"Bearer")


def test_a_refusal_names_neither_the_token_nor_the_flags() -> None:
    door = Door(rules(A), known=True)
    for headers in ({"authorization": "Bearer wr0ng"}, {"authorization": f"Bearer {SECRET}", "flagd-selector": "zzz"}):
        text = repr(door.get(headers))
        assert not [word for word in ("wr0ng", SECRET, "flagSetId=a") if word in text]


def test_the_request_of_somebody_else_is_not_changed() -> None:
    """Header fields are remembered from request to request, so what is added must not be added to them."""
    door = Door(rules(A), known=True)
    call = door.call({"authorization": f"Bearer {SECRET}"})
    fields, shared = call.fields, dict(call.fields)
    assert door.methods[b"/unary"].unary is not None
    door.methods[b"/unary"].unary(call)
    assert fields == shared
    assert call.fields != shared


# rates


def test_each_caller_has_a_rate_of_its_own() -> None:
    door = Door(rules(A, ALL), known=True, throttle=Throttle(1, 2))
    assert [door.ask(SECRET) for _ in range(3)] == ["flagSetId=a", "flagSetId=a", "RESOURCE_EXHAUSTED"]
    assert door.ask(ALL["token"]) == ""
    door.time = 1.0
    assert door.ask(SECRET) == "flagSetId=a"


def test_strangers_are_counted_by_where_they_come_from() -> None:
    door = Door(rules(A), known=True, throttle=Throttle(1, 1))
    assert [door.ask("guess"), door.ask("another"), door.ask(peer=Peer("192.0.2.2:1"))] == [
        "UNAUTHENTICATED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
    ]
    assert door.ask(SECRET) == "flagSetId=a"


def test_without_rules_a_certificate_is_who_it_is() -> None:
    door = Door(throttle=Throttle(1, 1))
    one, two = (Peer("192.0.2.1:1", "https", Identity("CN", name)) for name in ("one", "two"))
    assert [door.ask(peer=peer) for peer in (one, two, one)] == ["", "", "RESOURCE_EXHAUSTED"]


def test_whoever_asks_too_often_is_told_when_to_come_back() -> None:
    door = Door(throttle=Throttle(1, 1))
    assert door.get({}).status == 200
    reply = door.get({})
    assert (reply.status, dict(reply.headers)[b"retry-after"]) == (429, b"1")


def test_refusals_are_counted_and_told_at_most_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    door = Door(rules(A), known=True)
    with caplog.at_level(logging.WARNING, "wigwag.serve"):
        for step in range(100):
            door.time = step / 50
            door.ask(SECRET, "zzz" if step % 2 else "flagSetId=b")
            door.ask("wr0ng")
    assert door.refused() == {"forbidden": 100, "unauthenticated": 100}
    assert len(caplog.records) == 2
    told = str([record.__dict__ for record in caplog.records])
    assert "'last': '192.0.2.1'" in told or "'last': 'team-a'" in told
    assert not [word for word in ("wr0ng", SECRET, "zzz") if word in told]


# streams


def test_a_stream_ends_when_its_token_is_revoked_and_others_go_on() -> None:
    async def test() -> None:
        door = Door(rules(A, ALL), known=True)
        revoked, kept = await door.open(SECRET), await door.open(ALL["token"])
        waiting = asyncio.ensure_future(anext(revoked))
        await settle()
        door.access.adopt(rules(ALL))
        with pytest.raises(RpcError) as caught:
            await waiting
        assert caught.value.code is Code.UNAUTHENTICATED
        assert door.closed == 1
        door.streams[1].put_nowait(b"news")
        assert await anext(kept) == b"news"
        await kept.aclose()
        assert door.refused() == {"revoked": 1}

    run(test)


@pytest.mark.parametrize("selectors", [["flagSetId=b"], ["flagSetId=b", "c"]])
def test_a_stream_ends_when_its_selector_is_no_longer_allowed(selectors: list[str]) -> None:
    async def test() -> None:
        for before in (A, {**A, "selectors": ["*"]}):
            door = Door(rules(before), known=True)
            stream = await door.open(SECRET)
            door.access.adopt(rules({**A, "selectors": selectors}))
            with pytest.raises(RpcError) as caught:
                await anext(stream)
            assert caught.value.code is Code.PERMISSION_DENIED

    run(test)


def test_a_stream_goes_on_under_other_rules_that_still_allow_it() -> None:
    async def test() -> None:
        door = Door(rules(A), known=True)
        stream = await door.open(SECRET)
        waiting = asyncio.ensure_future(anext(stream))
        await settle()
        door.access.adopt(rules({**A, "name": "renamed", "selectors": ["flagSetId=b", "flagSetId=a"]}))
        door.streams[0].put_nowait(b"news")
        assert await waiting == b"news"
        await stream.aclose()

    run(test)


def test_a_stream_that_was_let_in_by_rules_of_before_does_not_begin() -> None:
    async def test() -> None:
        door = Door(rules(A), known=True)
        stream: Any = door.methods[b"/stream"].stream
        messages = stream(door.call({"authorization": f"Bearer {SECRET}"}))
        door.access.adopt(rules())
        with pytest.raises(RpcError, match="no longer accepted"):
            await anext(messages)
        assert door.streams == []

    run(test)


def test_server_sent_events_end_quietly() -> None:
    async def test() -> None:
        door = Door(rules(A), known=True)
        answer = door.page(door.request({"authorization": f"Bearer {SECRET}"}, b"/events"))
        assert isinstance(answer, Stream)
        assert await anext(answer.chunks) == b"flagSetId=a"
        waiting = asyncio.ensure_future(anext(answer.chunks, b"(end)"))
        await settle()
        door.access.adopt(rules())
        assert await waiting == b"(end)"
        assert door.closed == 1

    run(test)


def test_a_caller_may_hold_so_many_streams_and_gets_the_slot_of_one_that_ended() -> None:
    async def test() -> None:
        door = Door(rules(A, ALL), known=True, slots=Slots(2))
        first, second, other = await door.open(SECRET), await door.open(SECRET), await door.open(ALL["token"])
        with pytest.raises(RpcError) as caught:
            await door.open(SECRET)
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
        assert door.page(door.request({"authorization": f"Bearer {SECRET}"}, b"/events")).status == 429  # type: ignore[union-attr]
        await first.aclose()
        third = await door.open(SECRET)
        for stream in (second, third, other):
            await stream.aclose()
        assert door.refused() == {"streams": 2}

    run(test)


def test_a_stream_that_never_began_holds_no_slot_and_too_many_at_once_do_not_slip_in() -> None:
    async def test() -> None:
        door = Door(slots=Slots(1))
        stream: Any = door.methods[b"/stream"].stream
        dropped, one, two = (stream(door.call({})) for _ in range(3))
        await dropped.aclose()
        await anext(one)
        with pytest.raises(RpcError, match="1 streams are open already"):
            await anext(two)
        await one.aclose()
        assert await anext(stream(door.call({}))) == b""

    run(test)


def test_streams_are_not_held_where_there_is_nothing_to_hold_them_for() -> None:
    async def test() -> None:
        door = Door(selector=True)
        stream: Any = door.methods[b"/stream"].stream
        messages = stream(door.call({"flagd-selector": "x"}))
        assert messages.__class__.__name__ == "async_generator"
        assert messages.ag_code.co_name == "_tell"
        await messages.aclose()

    run(test)


def test_a_held_stream_passes_on_its_own_end_and_its_own_timeouts() -> None:
    async def short() -> AsyncIterator[bytes]:
        yield b"one"

    async def late() -> AsyncIterator[bytes]:
        yield b"one"
        raise TimeoutError

    async def test() -> None:
        assert [message async for message in RevocableStream(short())] == [b"one"]
        held = RevocableStream(late())
        assert await anext(held) == b"one"
        with pytest.raises(TimeoutError):
            await anext(held)

    run(test)


# origins


def ask(origins: list[str], origin: str | None, method: bytes = b"POST", **headers: str) -> tuple[int, Headers]:
    def handler(request: Request) -> Reply:
        return Reply(405 if request.method == b"OPTIONS" else 200)

    fields = {"origin": origin, **headers} if origin else headers
    request = Request(
        method, b"/", headers=tuple((name.replace("_", "-").encode(), value.encode()) for name, value in fields.items())
    )
    answer = with_cors(handler, origins)(request)
    assert isinstance(answer, Reply)
    return answer.status, answer.headers


SHOP = "https://shop.example"


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ([SHOP], SHOP, SHOP),
        (["https://Shop.example/"], SHOP, SHOP),
        ([SHOP, "https://b.example"], "https://b.example", "https://b.example"),
        ([SHOP], "https://shop.example.evil.example", None),
        ([SHOP], "https://shopxexample", None),
        ([SHOP], "http://shop.example", None),
        ([SHOP], "null", None),
        (["https://*.shop.example"], "https://a.b.shop.example", "https://a.b.shop.example"),
        (["https://*.shop.example"], "https://shop.example", None),
        (["https://*.shop.example"], "https://evilshop.example", None),
        (["*"], "https://anybody.example", "*"),
        (["*", SHOP], SHOP, "*"),
    ],
)
def test_an_origin_is_listed_or_not(origins: list[str], origin: str, allowed: str | None) -> None:
    status, headers = ask(origins, origin)
    assert status == 200
    assert dict(headers).get(b"access-control-allow-origin") == (allowed.encode() if allowed else None)
    assert (b"vary", b"origin") in headers
    assert (b"access-control-expose-headers" in dict(headers)) == (allowed is not None)


def test_an_answer_that_a_cache_may_keep_says_that_it_depends_on_the_origin() -> None:
    assert ask([SHOP], None, b"GET") == (200, ((b"vary", b"origin"),))
    assert ask([SHOP], None, b"POST") == (200, ())
    assert ask([], SHOP, b"GET") == (200, ())


def test_a_page_may_send_a_token() -> None:
    wanted = {"access_control_request_method": "POST", "access_control_request_headers": "authorization,flagd-selector"}
    status, headers = ask([SHOP], SHOP, b"OPTIONS", **wanted)
    told = dict(headers)
    assert status == 204
    assert told[b"access-control-allow-headers"] == b"authorization,flagd-selector"
    assert told[b"access-control-allow-origin"] == SHOP.encode()
    assert told[b"vary"] == b"origin, access-control-request-method, access-control-request-headers"
    strange = {**wanted, "access_control_request_headers": "a: b"}
    assert b"access-control-allow-headers" not in dict(ask([SHOP], SHOP, b"OPTIONS", **strange)[1])


def test_a_page_that_is_not_listed_is_allowed_nothing() -> None:
    status, headers = ask([SHOP], "https://b.example", b"OPTIONS", access_control_request_method="POST")
    assert status == 204
    assert [name for name, _ in headers] == [b"vary"]


def test_an_answer_that_is_awaited_is_marked_too() -> None:
    async def later() -> Response:
        return Reply(200)

    def handler(request: Request) -> Awaitable[Response]:
        return later()

    async def test() -> None:
        slow: Handler = with_cors(handler, [SHOP])
        answer = slow(Request(b"POST", b"/", headers=((b"origin", SHOP.encode()),)))
        assert isinstance(answer, Awaitable)
        assert (b"vary", b"origin") in (await answer).headers

    run(test)


def test_two_stars_are_refused() -> None:
    with pytest.raises(UsageError, match="more than one"):
        with_cors(lambda request: Reply(200), ["https://*.*.example"])
