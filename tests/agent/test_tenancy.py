"""A real agent that asks who wants which flags, and how often: every way in, rotation, revocation, broken files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import pytest
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import ProviderEvent
from openfeature.exception import ProviderFatalError
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2_grpc as v1_grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.agent.process import TIMEOUT, AgentProcess, write
from tests.clients.test_python_providers import Heard, connected, flagd
from tests.wire.test_tls import Authority
from wigwag.agent.options import AgentOptions
from wigwag.agent.tenancy import Tenancy
from wigwag.errors import UsageError
from wigwag.observe import Registry
from wigwag.wire.http import Reply, Request

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
TOKEN_A, TOKEN_B, TOKEN_AB, TOKEN_OPS = (f"t0ken-{name}-" + sha256(name.encode()).hexdigest()[:8] for name in "abxo")
SECRETS = (TOKEN_A, TOKEN_B, TOKEN_AB, TOKEN_OPS)
RULES: list[dict[str, Any]] = [
    {"name": "team-a", "token": TOKEN_A, "selectors": ["flagSetId=a"]},
    {"name": "team-b", "tokenFile": "team-b.token", "selectors": ["flagSetId=b"]},
    {"name": "both", "tokenSha256": sha256(TOKEN_AB.encode()).hexdigest(), "selectors": ["flagSetId=a", "flagSetId=b"]},
    {"name": "ops", "token": TOKEN_OPS, "selectors": ["*"]},
]
RESOLVE = "/flagd.evaluation.v1.Service/ResolveBoolean"
BULK, SSE = "/ofrep/v1/evaluate/flags", "/ofrep/v1/sse"
LOADED = "access rules loaded"


class Tenants:
    """An agent with two flag sets, `a` and `b`, and the files of its rules. Nothing that it says may hold a token."""

    def __init__(self, folder: Path, *options: str, rules: Any = RULES, sources: tuple[str, ...] = ("a", "b")) -> None:
        self.rules, self.tokens = folder / "rules.json", folder / "team-b.token"
        for name in sources:
            write(folder / f"{name}.json", {"flags": {f"flag-{name}": FLAG}, "metadata": {"flagSetId": name}})
        if rules is not None:
            self.tokens.write_text(f"{TOKEN_B}\n")
            write(self.rules, rules)
        files = [f"--uri=file:{folder / name}.json" for name in sources]
        self.agent = AgentProcess(*files, "--debug", *options)

    @contextmanager
    def running(self, *, loaded: bool = True) -> Iterator[Tenants]:
        with self.agent:
            if loaded:
                self.wait_for_rules()
            yield self
            self.see_no_secret()

    def see_no_secret(self) -> None:
        """Read everything that the agent tells to anybody who has no token."""
        pages = ("/metrics", "/debug/sources", "/debug/flags", "/readyz")
        told = [self.agent.fetch("management", page)[1].decode() for page in pages]
        text = "\n".join([*map(str, self.agent.lines), *told])
        digests = [sha256(secret.encode()).hexdigest() for secret in SECRETS]
        assert not [secret for secret in (*SECRETS, *digests) if secret in text]

    def wait_for_rules(self, after: int = 0) -> None:
        self.agent.wait_for_log(lambda line: line["msg"] == LOADED, after)

    def change(self, rules: Any) -> None:
        after = len(self.agent.lines)
        write(self.rules, rules)
        self.wait_for_rules(after)

    def metric(self, name: str) -> float:
        lines = self.agent.fetch("management", "/metrics")[1].decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)

    def http(
        self, port: str, path: str, body: Any = None, method: str = "", **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        with closing(HTTPConnection("127.0.0.1", self.agent.port(port), timeout=TIMEOUT)) as connection:
            answer = self.open(connection, path, body, method, **headers)
            content = answer.read()
            told = json.loads(content) if content[:1] == b"{" else content
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, told

    def open(
        self, connection: HTTPConnection, path: str, body: Any = None, method: str = "", **headers: str
    ) -> HTTPResponse:
        text = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method or ("GET" if body is None else "POST"), path, text, fields)
        return connection.getresponse()

    @contextmanager
    def channel(self, port: str = "evaluation") -> Iterator[grpc.Channel]:
        with grpc.insecure_channel(self.agent.address(port)) as channel:
            yield channel


def bearer(token: str | None, selector: str | None = None) -> dict[str, str]:
    found = {} if token is None else {"authorization": f"Bearer {token}"}
    return found | ({} if selector is None else {"flagd-selector": selector})


def metadata(token: str) -> dict[str, Any]:
    return {"metadata": tuple(bearer(token).items()), "timeout": TIMEOUT}


def code(call: Any) -> str:
    """Return how a call of gRPC ended."""
    try:
        list(call) if hasattr(call, "__iter__") else call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def surfaces(tenants: Tenants, key: str, headers: dict[str, str]) -> dict[str, str]:
    """Ask in every way there is; return how each ended, in the words of gRPC. Streams are read until they begin."""
    found = {}
    with tenants.channel() as channel, tenants.channel("sync") as sync_channel:
        evaluation, sync = v1_grpc.ServiceStub(channel), sync_pb2_grpc.FlagSyncServiceStub(sync_channel)
        options: dict[str, Any] = {"metadata": tuple(headers.items()), "timeout": TIMEOUT}
        ask, everything = v1.ResolveBooleanRequest(flag_key=key), v1.ResolveAllRequest()
        found["resolve"] = code(lambda: evaluation.ResolveBoolean(ask, **options))
        found["all"] = code(lambda: evaluation.ResolveAll(everything, **options))
        found["events"] = code(lambda: next(evaluation.EventStream(v1.EventStreamRequest(), **options)))
        found["sync"] = code(lambda: next(sync.SyncFlags(sync_pb2.SyncFlagsRequest(), **options)))
        found["fetch"] = code(lambda: sync.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(), **options))
    found |= {name: STATUS[status] for name, status in over_http(tenants, key, headers).items()}
    return found | {"grpc-web": web(tenants, key, headers)}


STATUS = {200: "OK", 400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
CODE = {"0": "OK", "3": "INVALID_ARGUMENT", "7": "PERMISSION_DENIED", "16": "UNAUTHENTICATED", "5": "NOT_FOUND"}


def over_http(tenants: Tenants, key: str, headers: dict[str, str]) -> dict[str, int]:
    json_type = {"content-type": "application/json", **headers}
    query = f"?connect=v1&encoding=json&message=%7B%22flagKey%22:%22{key}%22%7D"
    found = {
        "connect": tenants.http("evaluation", RESOLVE, {"flagKey": key}, **json_type)[0],
        "connect-get": tenants.http("evaluation", RESOLVE + query, **headers)[0],
        "ofrep": tenants.http("OFREP", f"{BULK}/{key}", {}, **headers)[0],
        "ofrep-bulk": tenants.http("OFREP", BULK, {}, **headers)[0],
    }
    with closing(HTTPConnection("127.0.0.1", tenants.agent.port("OFREP"), timeout=TIMEOUT)) as connection:
        found["sse"] = tenants.open(connection, SSE, **headers).status
    return found


def web(tenants: Tenants, key: str, headers: dict[str, str]) -> str:
    message = v1.ResolveBooleanRequest(flag_key=key).SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    _, _, content = tenants.http("evaluation", RESOLVE, body, **{"content-type": "application/grpc-web", **headers})
    found = re.search(rb"grpc-status: (\d+)\r\n", content)
    assert found, content
    return CODE[found[1].decode()]


def everywhere(outcome: str, **others: str) -> dict[str, str]:
    names = ("resolve", "all", "events", "sync", "fetch", "connect", "connect-get", "ofrep", "ofrep-bulk", "sse")
    return dict.fromkeys((*names, "grpc-web"), outcome) | {
        name.replace("_", "-"): told for name, told in others.items()
    }


def test_a_required_selector_is_required_on_every_way_in(tmp_path: Path) -> None:
    with Tenants(tmp_path, "--require-selector", rules=None).running(loaded=False) as tenants:
        assert surfaces(tenants, "flag-a", {}) == everywhere("INVALID_ARGUMENT")
        assert surfaces(tenants, "flag-a", {"flagd-selector": "flagSetId=a"}) == everywhere("OK")
        assert tenants.http("OFREP", f"{SSE}?channels=", None)[0] == 400
        assert "Flagd-Selector" in tenants.http("OFREP", BULK, {})[2]["errorDetails"]
        with tenants.channel("sync") as channel:
            sync = sync_pb2_grpc.FlagSyncServiceStub(channel)
            first = next(sync.SyncFlags(sync_pb2.SyncFlagsRequest(selector="flagSetId=b"), timeout=TIMEOUT))
            assert list(json.loads(first.flag_configuration)["flags"]) == ["flag-b"]
            sync.GetMetadata(sync_pb2.GetMetadataRequest(), timeout=TIMEOUT)
        assert tenants.metric('wigwag_requests_refused_total{reason="no_selector"}') == 13
        assert tenants.agent.fetch("management", "/readyz")[0] == 200


def test_a_token_opens_its_own_flags_and_no_others_on_every_way_in(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    with Tenants(tmp_path, f"--auth-tokens={rules}").running() as tenants:
        assert surfaces(tenants, "flag-a", {}) == everywhere("UNAUTHENTICATED")
        assert surfaces(tenants, "flag-a", bearer("guess")) == everywhere("UNAUTHENTICATED")
        assert surfaces(tenants, "flag-a", bearer(TOKEN_A, "flagSetId=a")) == everywhere("OK")
        assert surfaces(tenants, "flag-a", bearer(TOKEN_A)) == everywhere("OK")
        assert surfaces(tenants, "flag-a", bearer(TOKEN_A, "flagSetId=b")) == everywhere("PERMISSION_DENIED")
        assert surfaces(tenants, "flag-a", bearer(TOKEN_AB)) == everywhere("INVALID_ARGUMENT")
        assert surfaces(tenants, "flag-b", bearer(TOKEN_AB, "flagSetId=b")) == everywhere("OK")
        assert surfaces(tenants, "flag-b", bearer(TOKEN_OPS)) == everywhere("OK")
        hidden = {"resolve": "NOT_FOUND", "connect": "NOT_FOUND", "connect-get": "NOT_FOUND", "ofrep": "NOT_FOUND"}
        assert surfaces(tenants, "flag-b", bearer(TOKEN_A)) == everywhere("OK") | hidden | {"grpc-web": "NOT_FOUND"}


def test_what_a_tenant_gets_names_no_flag_of_another(tmp_path: Path) -> None:
    with Tenants(tmp_path, f"--auth-tokens={tmp_path / 'rules.json'}").running() as tenants:
        _, _, bulk = tenants.http("OFREP", BULK, {}, **bearer(TOKEN_A))
        assert [flag["key"] for flag in bulk["flags"]] == ["flag-a"]
        assert bulk["metadata"] == {"flagSetId": "a"}
        assert bulk["eventStreams"][0]["endpoint"]["requestUri"] == f"{SSE}?channels=a"
        assert tenants.http("OFREP", f"{SSE}?channels=b", **bearer(TOKEN_A))[0] == 403
        with tenants.channel("sync") as channel:
            sync = sync_pb2_grpc.FlagSyncServiceStub(channel)
            ask, options = sync_pb2.FetchAllFlagsRequest, metadata(TOKEN_A)
            found = sync.FetchAllFlags(ask(), **options)
            assert list(json.loads(found.flag_configuration)["flags"]) == ["flag-a"]
            assert code(lambda: sync.FetchAllFlags(ask(selector="flagSetId=b"), **options)) == "PERMISSION_DENIED"
            assert code(lambda: sync.GetMetadata(sync_pb2.GetMetadataRequest())) == "UNAUTHENTICATED"
            assert code(lambda: sync.GetMetadata(sync_pb2.GetMetadataRequest(), **options)) == "OK"
        for path in (BULK, f"{BULK}/flag-b", SSE):
            status, headers, told = tenants.http("OFREP", path, None if path == SSE else {})
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert "flagSetId" not in str(told)


def test_a_token_is_rotated_while_the_agent_runs(tmp_path: Path) -> None:
    with Tenants(tmp_path, f"--auth-tokens={tmp_path / 'rules.json'}").running() as tenants:

        def ask(token: str) -> int:
            return tenants.http("OFREP", f"{BULK}/flag-b", {}, **bearer(token))[0]

        assert (ask(TOKEN_B), ask("fresh-token")) == (200, 401)
        for text, expected in (
            (f"fresh-token\n{TOKEN_B}\n", (200, 200)),
            ("fresh-token\n", (401, 200)),
        ):
            after = len(tenants.agent.lines)
            write(tenants.tokens, text)
            tenants.wait_for_rules(after)
            assert (ask(TOKEN_B), ask("fresh-token")) == expected
        tenants.change([{**RULES[0], "token": "fresh-token-of-a"}])
        assert ask("fresh-token") == 401
        assert tenants.http("OFREP", f"{BULK}/flag-a", {}, **bearer("fresh-token-of-a"))[0] == 200


def test_streams_end_when_their_token_is_revoked(tmp_path: Path) -> None:
    with (
        Tenants(tmp_path, f"--auth-tokens={tmp_path / 'rules.json'}").running() as tenants,
        tenants.channel() as channel,
        tenants.channel("sync") as sync_channel,
        closing(HTTPConnection("127.0.0.1", tenants.agent.port("OFREP"), timeout=TIMEOUT)) as connection,
    ):
        evaluation, sync = v1_grpc.ServiceStub(channel), sync_pb2_grpc.FlagSyncServiceStub(sync_channel)
        ask, other = metadata(TOKEN_A), metadata(TOKEN_OPS)
        events = evaluation.EventStream(v1.EventStreamRequest(), **ask)
        documents = sync.SyncFlags(sync_pb2.SyncFlagsRequest(), **ask)
        kept = sync.SyncFlags(sync_pb2.SyncFlagsRequest(), **other)
        sse = tenants.open(connection, SSE, **bearer(TOKEN_A))
        assert next(events).type == "provider_ready"
        assert "flag-a" in next(documents).flag_configuration
        assert "flag-b" in next(kept).flag_configuration
        assert sse.readline() == b": connected\n"
        tenants.change([rule for rule in RULES if rule["name"] != "team-a"])
        assert (code(events), code(documents)) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        assert b"refetchEvaluation" not in sse.read()
        assert tenants.http("OFREP", SSE, **bearer(TOKEN_A))[0] == 401
        write(tmp_path / "a.json", {"flags": {"flag-new": FLAG}, "metadata": {"flagSetId": "a"}})
        assert "flag-new" in next(kept).flag_configuration
        tenants.change([{**RULES[3], "selectors": ["flagSetId=a"]}])
        assert code(kept) == "PERMISSION_DENIED"
        assert tenants.metric('wigwag_requests_refused_total{reason="revoked"}') == 4


@pytest.mark.parametrize("broken", ["", "[", '[{"name": "x"}]', None], ids=["empty", "malformed", "wrong", "deleted"])
def test_a_broken_file_keeps_the_last_good_rules_and_is_reported(tmp_path: Path, broken: str | None) -> None:
    with Tenants(tmp_path, f"--auth-tokens={tmp_path / 'rules.json'}").running() as tenants:
        up = f'wigwag_access_file_up{{file="{tenants.rules}"}}'
        assert tenants.metric(up) == 1
        after = len(tenants.agent.lines)
        if broken is None:
            tenants.rules.unlink()
        else:
            write(tenants.rules, broken)
        line = tenants.agent.wait_for_log(lambda line: str(tenants.rules) in line["msg"], after)
        assert "what was read before stays in force" in line["msg"]
        assert tenants.metric(up) == 0
        assert tenants.http("OFREP", f"{BULK}/flag-a", {}, **bearer(TOKEN_A))[0] == 200
        assert tenants.http("OFREP", f"{BULK}/flag-a", {})[0] == 401
        assert tenants.agent.fetch("management", "/readyz")[0] == 200
        tenants.change(RULES[1:])
        assert tenants.metric(up) == 1
        assert tenants.http("OFREP", f"{BULK}/flag-a", {}, **bearer(TOKEN_A))[0] == 401


def test_a_token_in_two_rules_changes_nothing_and_is_told_without_the_token(tmp_path: Path) -> None:
    with Tenants(tmp_path, f"--auth-tokens={tmp_path / 'rules.json'}").running() as tenants:
        after = len(tenants.agent.lines)
        write(tenants.rules, [RULES[0], {**RULES[0], "name": "thief", "selectors": ["*"]}])
        line = tenants.agent.wait_for_log(lambda line: "have the same token" in line["msg"], after)
        assert f"access rules {tenants.rules}: the rules 'team-a' and 'thief' have the same token" in line["msg"]
        up = f'wigwag_access_file_up{{file="{tenants.rules}"}}'
        assert tenants.metric(up) == 0
        assert tenants.http("OFREP", f"{BULK}/flag-b", {}, **bearer(TOKEN_A))[0] == 404
        assert tenants.http("OFREP", f"{BULK}/flag-b", {}, **bearer(TOKEN_B))[0] == 200
        tenants.change(RULES[:1])
        assert tenants.metric(up) == 1


def test_rules_that_are_refused_at_the_start_are_not_in_force(tmp_path: Path) -> None:
    rules = [RULES[0], {**RULES[0], "name": "thief", "selectors": ["*"]}]
    with Tenants(tmp_path, f"--auth-tokens={tmp_path / 'rules.json'}", rules=rules).running(loaded=False) as tenants:
        tenants.agent.wait_for_log(lambda line: f"{tenants.rules}: the rules 'team-a' and 'thief'" in line["msg"])
        assert tenants.agent.fetch("management", "/readyz")[0] == 412
        _, page = tenants.agent.fetch("management", "/metrics")
        assert f'wigwag_access_file_up{{file="{tenants.rules}"}} 0' in page.decode().splitlines()


def test_without_its_rules_the_agent_is_closed_and_not_ready_until_they_come(tmp_path: Path) -> None:
    tenants = Tenants(tmp_path, f"--auth-tokens={tmp_path / 'rules.json'}", rules=None)
    with tenants.running(loaded=False):
        assert tenants.agent.fetch("management", "/readyz")[0] == 412
        assert tenants.agent.fetch("management", "/healthz")[0] == 200
        status, _, told = tenants.http("OFREP", BULK, {}, **bearer(TOKEN_A))
        assert (status, told["errorDetails"]) == (503, "the access rules have not been read yet; try again later")
        with tenants.channel() as channel:
            ask = v1.ResolveBooleanRequest(flag_key="flag-a")
            assert code(lambda: v1_grpc.ServiceStub(channel).ResolveBoolean(ask)) == "UNAVAILABLE"
        tenants.change(RULES)
        assert tenants.agent.fetch("management", "/readyz")[0] == 200
        assert tenants.http("OFREP", BULK, {}, **bearer(TOKEN_A))[0] == 200
        assert tenants.http("OFREP", BULK, {}, **bearer(TOKEN_B))[0] == 401  # its token file is still missing
        after = len(tenants.agent.lines)
        write(tenants.tokens, TOKEN_B)
        tenants.wait_for_rules(after)
        assert tenants.http("OFREP", BULK, {}, **bearer(TOKEN_B))[0] == 200


def test_a_rate_is_kept_by_each_caller_on_every_port(tmp_path: Path) -> None:
    options = (f"--auth-tokens={tmp_path / 'rules.json'}", "--rate-limit=1", "--rate-burst=3")
    with Tenants(tmp_path, *options).running() as tenants, tenants.channel() as channel:
        start = monotonic()

        def refused(port: str, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
            """Ask until it is too much: at a rate that no machine is too slow for."""
            ask = partial(tenants.http, port, path, body, content_type="application/json", **bearer(TOKEN_A))
            answers = (ask() for _ in range(100))
            return next(answer for answer in answers if answer[0] != 200)

        first = [tenants.http("OFREP", BULK, {}, **bearer(TOKEN_A))[0] for _ in range(3)]
        assert first == [200] * 3
        status, headers, told = refused("OFREP", BULK, {})
        assert (status, headers["retry-after"]) == (429, "1")
        assert told["errorDetails"] == "too many requests; try again later"
        status, headers, told = refused("evaluation", RESOLVE, {"flagKey": "flag-a"})
        assert (status, headers["retry-after"], told["code"]) == (429, "1", "resource_exhausted")
        evaluation = v1_grpc.ServiceStub(channel)
        ask = v1.ResolveBooleanRequest(flag_key="flag-a")
        calls: Iterator[Any] = (evaluation.ResolveBoolean.with_call(ask, **metadata(TOKEN_A)) for _ in range(100))
        with pytest.raises(grpc.RpcError) as caught:
            list(calls)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "key='retry-after', value='1'" in str(caught.value.trailing_metadata())
        assert tenants.http("OFREP", BULK, {}, **bearer(TOKEN_B))[0] == 200
        assert tenants.metric('wigwag_requests_refused_total{reason="rate"}') == 3
        tenants.agent.wait_for_log(lambda line: line["msg"] == "requests refused")
        told_lines = [line for line in tenants.agent.lines if line["msg"] == "requests refused"]
        assert 1 <= len(told_lines) <= monotonic() - start + 1


def test_a_caller_holds_so_many_streams(tmp_path: Path) -> None:
    with (
        Tenants(tmp_path, "--max-streams-per-client=2", rules=None).running(loaded=False) as tenants,
        tenants.channel() as channel,
        closing(HTTPConnection("127.0.0.1", tenants.agent.port("OFREP"), timeout=TIMEOUT)) as connection,
    ):
        evaluation = v1_grpc.ServiceStub(channel)
        first = evaluation.EventStream(v1.EventStreamRequest(), timeout=TIMEOUT)
        assert next(first).type == "provider_ready"
        assert tenants.open(connection, SSE).status == 200
        assert code(evaluation.EventStream(v1.EventStreamRequest(), timeout=TIMEOUT)) == "RESOURCE_EXHAUSTED"
        assert tenants.http("OFREP", SSE)[0] == 429
        first.cancel()
        while True:  # the agent learns of it a moment later
            try:
                assert next(evaluation.EventStream(v1.EventStreamRequest(), timeout=TIMEOUT)).type == "provider_ready"
                break
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_page_of_a_listed_origin_may_send_a_token_and_read_the_refusal(tmp_path: Path) -> None:
    options = (f"--auth-tokens={tmp_path / 'rules.json'}", "--cors-origin=https://shop.example")
    with Tenants(tmp_path, *options).running() as tenants:
        ask = {"origin": "https://shop.example", "access_control_request_method": "POST"}
        ask |= {"access_control_request_headers": "authorization,flagd-selector"}
        for port, path in (("OFREP", BULK), ("evaluation", RESOLVE)):
            status, headers, _ = tenants.http(port, path, method="OPTIONS", **ask)
            assert (status, headers["access-control-allow-headers"]) == (204, "authorization,flagd-selector")
        status, headers, _ = tenants.http("OFREP", BULK, {}, origin="https://shop.example")
        assert (status, headers["access-control-allow-origin"]) == (401, "https://shop.example")
        assert "www-authenticate" in headers["access-control-expose-headers"]


def test_the_ofrep_provider_sends_a_token(tmp_path: Path) -> None:
    with Tenants(tmp_path, f"--auth-tokens={tmp_path / 'rules.json'}").running() as tenants:
        url = f"http://{tenants.agent.address('OFREP')}"
        with connected(OFREPProvider(url, headers_factory=lambda: bearer(TOKEN_A))) as client:
            assert client.get_boolean_value("flag-a", False) is True
            assert client.get_boolean_details("flag-b", False).error_code == "FLAG_NOT_FOUND"
        with connected(OFREPProvider(url)) as client:
            details = client.get_boolean_details("flag-a", False)
            assert (details.value, details.error_code) == (False, "GENERAL")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "authority").mkdir()
    return Authority(tmp_path / "authority")


def secured(authority: Authority, *more: str) -> tuple[str, ...]:
    from cryptography import x509

    certificate, key = authority.issue("localhost", x509.DNSName("localhost"))
    return f"--server-cert-path={certificate}", f"--server-key-path={key}", *more


@pytest.mark.parametrize("resolver", [ResolverType.RPC, ResolverType.IN_PROCESS])
def test_the_flagd_provider_is_who_its_certificate_says(
    tmp_path: Path, authority: Authority, resolver: ResolverType
) -> None:
    rules = [{"name": "robot", "certificates": ["CN=robot"], "selectors": ["flagSetId=a"]}]
    options = secured(authority, f"--client-ca-path={authority.path}", f"--auth-tokens={tmp_path / 'rules.json'}")
    with Tenants(tmp_path, *options, rules=rules).running() as tenants:

        def provider(name: str) -> FlagdProvider:
            certificate, key = (Path(path).read_bytes() for path in authority.issue(name, file=name))
            credentials = grpc.ssl_channel_credentials(authority.path.read_bytes(), key, certificate)
            settings = {"host": "localhost", "fatal_status_codes": ["UNAUTHENTICATED"]}
            return flagd(tenants.agent, resolver, channel_credentials=credentials, **settings)

        with connected(provider("robot")) as client:
            Heard(client).wait_for(ProviderEvent.PROVIDER_READY)
            assert client.get_boolean_value("flag-a", False) is True
            assert client.get_boolean_details("flag-b", True).error_code is not None
        stranger = provider("stranger")
        with pytest.raises(ProviderFatalError):
            stranger.initialize(EvaluationContext())
        stranger.shutdown()


@pytest.mark.parametrize("resolver", [ResolverType.RPC, ResolverType.IN_PROCESS])
def test_the_flagd_provider_sends_a_token_over_tls(
    tmp_path: Path, authority: Authority, resolver: ResolverType
) -> None:
    options = secured(authority, f"--auth-tokens={tmp_path / 'rules.json'}")
    with Tenants(tmp_path, *options).running() as tenants:
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(authority.path.read_bytes()), grpc.access_token_call_credentials(TOKEN_AB)
        )
        settings = {"host": "localhost", "channel_credentials": credentials, "selector": "flagSetId=b"}
        with connected(flagd(tenants.agent, resolver, **settings)) as client:
            Heard(client).wait_for(ProviderEvent.PROVIDER_READY)
            assert client.get_boolean_value("flag-b", False) is True
            assert client.get_boolean_details("flag-a", True).error_code is not None


def test_without_options_nothing_stands_between_a_request_and_its_handler() -> None:
    tenancy = Tenancy(AgentOptions(), Registry())
    methods: dict[bytes, Any] = {}

    def handler(request: Request) -> Reply:
        return Reply(200)

    assert tenancy.access is None
    assert tenancy.calls(methods) is methods
    assert tenancy.ofrep(handler) is handler
    assert tenancy.ready()


def test_a_burst_needs_a_rate() -> None:
    with pytest.raises(UsageError, match="--rate-burst needs --rate-limit"):
        Tenancy(AgentOptions(rate_burst=1), Registry())
