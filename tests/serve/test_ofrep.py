"""OFREP: bodies, statuses, tags and selectors, called without a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

import wigwag
from tests.flags.test_conformance import evaluations, read
from wigwag.pipeline.broadcast import Broadcast
from wigwag.serve.context import Enrichment
from wigwag.serve.events import ChangeStreams
from wigwag.serve.management.metrics import Metrics
from wigwag.serve.ofrep import MENDED_BYTES, EventStreams, Ofrep
from wigwag.serve.resolve import Resolver
from wigwag.serve.snapshot import Snapshot
from wigwag.wire.http import Handler, Reply, Request

BULK = "/ofrep/v1/evaluate/flags"
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


def service(flags: wigwag.FlagSet, **options: Any) -> Handler:
    snapshots = Broadcast(Snapshot(flags))
    enrichment = options.pop("enrichment", Enrichment())
    return Ofrep(
        snapshots.current, enrichment, Resolver(options.pop("metrics", Metrics())), ChangeStreams(snapshots), **options
    ).handler()


def post(handler: Handler, path: str, body: Any = None, method: str = "POST", **headers: str) -> Reply:
    text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    fields = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    answer = handler(Request(method.encode(), path.encode(), headers=fields, body=text))
    assert isinstance(answer, Reply)
    return answer


@pytest.fixture(scope="module")
def services() -> dict[tuple[str, str], Handler]:
    return {
        (suite, version): service(wigwag.load(read(f"{suite}-flags"), fractional=version))
        for suite in ("evaluator", "provider")
        for version in ("v2", "v3")
    }


@pytest.mark.parametrize(("suite", "version", "case"), evaluations("evaluator") + evaluations("provider"))
def test_an_evaluation_over_http_gives_what_every_implementation_gives(
    services: Any, suite: str, version: str, case: dict[str, Any]
) -> None:
    reply = post(services[suite, version], f"{BULK}/{case['flag']}", {"context": case["context"]})
    told = json.loads(reply.body)
    if case.get("error") == "TYPE_MISMATCH":
        return  # OFREP asks for no type, so nothing can mismatch
    if case.get("error"):
        assert (reply.status, told["errorCode"]) == (404 if case["error"] == "FLAG_NOT_FOUND" else 400, case["error"])
    elif reply.status == 200:
        assert told["key"] == case["flag"]
        assert told.get("value", case["fallback"]) == case.get("value", told.get("value"))
        assert {name: told.get(name) for name in ("reason", "variant", "metadata") if name in case} == {
            name: case[name] for name in ("reason", "variant", "metadata") if name in case
        }
    else:
        assert told["errorCode"] == "GENERAL"
        assert case["value"] == case["fallback"]


@pytest.fixture
def handler() -> Handler:
    flags = {
        "plain": FLAG,
        "a/b c": FLAG,
        "gold": {**FLAG, "targeting": {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}},
        "disabled": {**FLAG, "state": "DISABLED", "metadata": {"flagSetId": "s"}},
        "none": {"state": "ENABLED", "variants": {"on": True}},
        "bad": {**FLAG, "targeting": {"nope": 1}},
        "lost": {**FLAG, "targeting": "nowhere"},
    }
    return service(wigwag.load({"flags": flags}))


def test_the_bodies_of_single_evaluations(handler: Handler) -> None:
    def told(key: str, context: Any = None) -> tuple[int, Any]:
        reply = post(handler, f"{BULK}/{key}", {"context": context or {}})
        return reply.status, json.loads(reply.body)

    assert told("plain") == (
        200,
        {"value": False, "key": "plain", "reason": "STATIC", "variant": "off", "metadata": {}},
    )
    assert told("gold", {"tier": "gold"})[1]["variant"] == "on"
    assert told("disabled") == (200, {"key": "disabled", "reason": "DISABLED", "metadata": {"flagSetId": "s"}})
    assert told("none") == (200, {"key": "none", "reason": "DEFAULT", "metadata": {}})
    assert told("nope") == (
        404,
        {"key": "nope", "errorCode": "FLAG_NOT_FOUND", "errorDetails": "flag `nope` does not exist", "metadata": {}},
    )
    assert told("bad")[1]["errorDetails"] == "error parsing the flag `bad`"
    assert told("lost") == (
        400,
        {
            "key": "lost",
            "errorCode": "GENERAL",
            "errorDetails": "error processing the flag for evaluation",
            "metadata": {},
        },
    )


@pytest.mark.parametrize("path", ["a/b%20c", "a%2Fb%20c", "a%2fb%20c"])
def test_keys_with_slashes_are_found(handler: Handler, path: str) -> None:
    assert json.loads(post(handler, f"{BULK}/{path}").body)["key"] == "a/b c"


@pytest.mark.parametrize("body", [None, b"  ", b"{}", b"null", b'{"context": null}', b'{"context": 5}'])
def test_a_missing_or_odd_context_is_no_context(handler: Handler, body: Any) -> None:
    assert post(handler, f"{BULK}/plain", body).status == 200


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b'"x"', b"true", b'{"context": {"a": NaN}}', b'{"a": "\\ud8"}'])
def test_a_body_that_is_no_json_object_is_an_invalid_context(handler: Handler, body: bytes) -> None:
    reply = post(handler, f"{BULK}/plain", body)
    expected = {"errorCode": "INVALID_CONTEXT", "errorDetails": "Provider context is not valid", "metadata": None}
    assert (reply.status, json.loads(reply.body)) == (400, {"key": "plain", **expected})
    assert json.loads(post(handler, BULK, body).body) == expected


@pytest.mark.parametrize("text", [b"\\ud800", b"a\\udc00b", b"\\ud800\\ud800"])
def test_half_a_surrogate_pair_in_a_context_is_one_odd_character(text: bytes) -> None:
    rule = {
        "if": [
            {"==": [{"var": "a"}, json.loads(b'"%b"' % text.replace(b"ud800", b"ufffd").replace(b"udc00", b"ufffd"))]},
            "on",
        ]
    }
    handler = service(wigwag.load({"flags": {"x": {**FLAG, "targeting": rule}}}))
    reply = post(handler, f"{BULK}/x", b'{"context": {"a": "%b"}}' % text)
    assert (reply.status, json.loads(reply.body)["variant"]) == (200, "on")


def test_other_methods_and_paths(handler: Handler) -> None:
    assert post(handler, f"{BULK}/plain", method="GET").status == 405
    assert post(handler, "/ofrep/v1/evaluate").status == 404
    assert post(handler, f"{BULK}x").status == 404
    assert post(handler, "/").status == 404


def test_bulk_has_every_flag_in_order_with_errors_inline(handler: Handler) -> None:
    for path in (BULK, f"{BULK}/"):
        reply = post(handler, path, {"context": {"tier": "gold"}})
        told = json.loads(reply.body)
        assert [item["key"] for item in told["flags"]] == ["a/b c", "bad", "gold", "lost", "none", "plain", "disabled"]
        items = {item["key"]: item for item in told["flags"]}
        assert items["gold"]["value"] is True
        assert items["bad"]["errorCode"] == "PARSE_ERROR"
        assert items["none"] == {"key": "none", "reason": "DEFAULT", "metadata": {}}
        assert told["metadata"] == {}
        assert told["eventStreams"] == [
            {"type": "sse", "endpoint": {"requestUri": "/ofrep/v1/sse"}, "inactivityDelaySec": 120}
        ]


def test_the_tag_covers_content_and_context(handler: Handler) -> None:
    def tag(context: dict[str, Any], **headers: str) -> tuple[int, str, bytes]:
        reply = post(handler, BULK, {"context": context}, **headers)
        return reply.status, dict(reply.headers)[b"etag"].decode(), reply.body

    _, first, _ = tag({})
    _, other, _ = tag({"tier": "gold"})
    assert first != other
    assert tag({}, if_none_match=first) == (304, first, b"")
    assert tag({}, if_none_match=f'W/{first}, "x"')[0] == 304
    assert tag({}, if_none_match="*")[0] == 304
    assert tag({"tier": "gold"}, if_none_match=first)[0] == 200
    assert tag({"tier": "tin"}, if_none_match=first)[0] == 304


def test_selectors_select_and_are_reflected(handler: Handler) -> None:
    told = json.loads(post(handler, BULK, flagd_selector="flagSetId=s").body)
    assert [item["key"] for item in told["flags"]] == ["disabled"]
    assert told["metadata"] == {"flagSetId": "s"}
    assert told["eventStreams"][0]["endpoint"]["requestUri"] == "/ofrep/v1/sse?channels=s"
    assert json.loads(post(handler, BULK, flagd_selector="x.json").body)["metadata"] == {"source": "x.json"}
    reply = post(handler, BULK, flagd_selector="colour=red")
    assert (reply.status, json.loads(reply.body)["errorDetails"]) == (
        400,
        'invalid selector: invalid selector key "colour", valid keys: "flagSetId", "source"',
    )
    assert post(handler, f"{BULK}/plain", flagd_selector="flagSetId=s").status == 404


def test_static_and_header_attributes_lie_over_the_body() -> None:
    rule = {"var": "who"}
    flags = wigwag.load({"flags": {"x": {"variants": {"body": 1, "static": 2, "header": 3}, "targeting": rule}}})
    handler = service(flags, enrichment=Enrichment({"who": "static"}, {"X-Who": "who"}))
    body = {"context": {"who": "body"}}
    assert json.loads(post(handler, f"{BULK}/x", body).body)["variant"] == "static"
    assert json.loads(post(handler, f"{BULK}/x", body, x_who="header").body)["variant"] == "header"


def test_evaluations_are_counted() -> None:
    metrics = Metrics()
    handler = service(wigwag.load({"flags": {"x": FLAG}}), metrics=metrics)
    post(handler, f"{BULK}/x")
    post(handler, BULK)
    post(handler, f"{BULK}/y")
    text = metrics.registry.render()
    labels = 'feature_flag_provider_name="flagd",feature_flag_reason="STATIC",feature_flag_result_variant="off"'
    assert f'feature_flag_flagd_impression_total{{feature_flag_key="x",{labels}}} 2\n' in text
    assert 'feature_flag_reason="ERROR",error_type="FLAG_NOT_FOUND"} 1\n' in text


def test_flags_that_are_asked_for_together_count_as_each_alone() -> None:
    targeted = {**FLAG, "targeting": {"if": [{"in": ["@b.com", {"var": ["email"]}]}, "on"]}}
    failing = {**FLAG, "targeting": {"no_such": []}}
    flags = wigwag.load({"flags": {"a": FLAG, "b": targeted, "c": failing, "d": {**FLAG, "state": "DISABLED"}}})
    together, alone = Metrics(), Metrics()
    for email in ("x@b.com", "x@c.com"):
        post(service(flags, metrics=together), BULK, {"context": {"email": email}})
        for key in "abcd":
            post(service(flags, metrics=alone), f"{BULK}/{key}", {"context": {"email": email}})
    assert together.registry.render() == alone.registry.render()


def test_event_streams_can_be_turned_off_or_moved() -> None:
    off = service(wigwag.load({"flags": {}}), streams=EventStreams(enabled=False))
    assert json.loads(post(off, BULK).body) == {"flags": [], "metadata": {}}
    assert post(off, "/ofrep/v1/sse", method="GET").status == 404
    moved = service(
        wigwag.load({"flags": {}}), streams=EventStreams(public_url="https://flags.example", inactivity_delay=5)
    )
    assert json.loads(post(moved, BULK).body)["eventStreams"] == [
        {
            "type": "sse",
            "endpoint": {"origin": "https://flags.example", "requestUri": "/ofrep/v1/sse"},
            "inactivityDelaySec": 5,
        }
    ]


def test_the_channel_of_an_event_stream_is_quoted() -> None:
    flag_set = 'a b&c="x"#'
    flags = wigwag.load({"flags": {"x": FLAG}, "metadata": {"flagSetId": flag_set}})
    told = json.loads(post(service(flags), BULK, flagd_selector=f"flagSetId={flag_set}").body)
    assert told["eventStreams"][0]["endpoint"]["requestUri"] == "/ofrep/v1/sse?channels=a%20b%26c%3D%22x%22%23"


def test_a_channel_that_cannot_be_is_refused_before_the_stream_begins() -> None:
    handler = service(wigwag.load({"flags": {"x": FLAG}}))
    answer = handler(Request(b"GET", b"/ofrep/v1/sse", b"channels=" + b"x" * 2000))
    assert isinstance(answer, Reply)
    assert (answer.status, json.loads(answer.body)["errorCode"]) == (400, "GENERAL")


def test_a_large_honest_set_is_answered_in_full() -> None:
    rule = {"if": [{">=": [{"var": "age"}, 18]}, "on", {"if": [{"in": ["admin", {"var": "roles"}]}, "on", "off"]}]}
    flags = {f"flag-{n}": {**FLAG, "targeting": rule} if n % 2 else FLAG for n in range(25_000)}
    reply = post(service(wigwag.load({"flags": flags})), BULK, {"context": {"age": "17", "roles": ["dev", "admin"]}})
    told = json.loads(reply.body)["flags"]
    assert len(told) == 25_000
    assert {item.get("variant") for item in told} == {"on", "off"}


def test_the_flags_of_one_request_share_a_budget() -> None:
    hostile = {**FLAG, "targeting": {"if": [{">=": [{"var": "age"}, 18]}, "on"]}}
    flags = {f"flag-{n:03}": hostile for n in range(200)} | {"plain": FLAG}
    handler = service(wigwag.load({"flags": flags}))
    told = json.loads(post(handler, BULK, {"context": {"age": "1" * 900_000}}).body)["flags"]
    refused = [item for item in told if item.get("errorCode")]
    assert len(told) == 201
    assert len(refused) >= 190
    assert {(item["errorCode"], "together" in item["errorDetails"]) for item in refused} == {("GENERAL", True)}
    assert told[-1] == {"value": False, "key": "plain", "reason": "STATIC", "variant": "off", "metadata": {}}
    alone = post(handler, f"{BULK}/flag-199", {"context": {"age": "1" * 900_000}})
    assert (alone.status, json.loads(alone.body)["variant"]) == (200, "off")


@pytest.mark.parametrize(("numbers", "status"), [(2_000, 200), (60_000, 400)])
def test_a_context_may_have_only_so_many_numbers_with_exponents(handler: Handler, numbers: int, status: int) -> None:
    body = b'{"context": {"a": [' + b",".join([b"1e308"] * numbers) + b"]}}"
    assert post(handler, f"{BULK}/plain", body).status == status


def test_what_is_no_unicode_is_replaced_in_bodies_of_a_usual_size_only(handler: Handler) -> None:
    for padding, status in ((10, 200), (MENDED_BYTES, 400)):
        body = b'{"context": {"a": "\\ud800", "b": "%b"}}' % (b"x" * padding)
        assert post(handler, f"{BULK}/plain", body).status == status
