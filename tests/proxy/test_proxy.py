"""The proxy as its clients see it: a real process, grpcio, the official provider, and our own agent."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.event import ProviderEvent
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2, sync_service_pb2_grpc

from tests.agent.process import TIMEOUT, AgentProcess, write
from tests.agent.test_load import PREFACE, SYNC_HEADERS, connect, frame, memory
from tests.clients.certificates import make_certificates
from tests.clients.test_python_providers import Heard, connected
from tests.proxy.process import ProxyProcess, document, subscribed
from tests.real.processes import claim_port
from tests.sources.grpc_server import SyncServer

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


@pytest.fixture(scope="module")
def proxy() -> Iterator[ProxyProcess]:
    with ProxyProcess() as found:
        yield found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "flags.json"
    write(found, document(0))
    return found


def failure(call: Any, *arguments: Any, **options: Any) -> tuple[StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        _all(call(*arguments, timeout=TIMEOUT, **options))
    error: Any = caught.value
    return error.code(), error.details()


def _all(answer: Any) -> None:
    for _ in answer if hasattr(answer, "__next__") else ():
        pass


def test_a_document_comes_unchanged_and_so_does_every_change(proxy: ProxyProcess, path: Path) -> None:
    text = '{ "flags": {"x": {"$ref": "y"}},\n\t"$evaluators": {"y": 1.0},  "grün": "é" }\n'
    path.write_text(text, encoding="utf-8")
    with subscribed(proxy, f"file:{path}") as one, subscribed(proxy, f"file:{path}") as other:
        assert one.next() == other.next() == text
        write(path, document(1))
        assert one.said() == other.said() == 1
        (told,) = [each for each in proxy.targets()["targets"] if each["target"] == str(path)]
        assert (told["subscribers"], told["state"], told["updates"]) == (2, "live", 2)


def test_yaml_comes_as_json(proxy: ProxyProcess, tmp_path: Path) -> None:
    write(tmp_path / "flags.yaml", "flags: {x: {state: ENABLED}}\n")
    with subscribed(proxy, f"file:{tmp_path / 'flags.yaml'}") as one:
        assert json.loads(one.next()) == {"flags": {"x": {"state": "ENABLED"}}}


def test_the_older_service_tells_all_and_its_state(proxy: ProxyProcess, path: Path) -> None:
    with grpc.insecure_channel(proxy.address("sync")) as channel:
        stub: Any = sync_service_pb2_grpc.FlagSyncServiceStub(channel)
        request = sync_service_pb2.SyncFlagsRequest(selector=f"file:{path}")
        stream = stub.SyncFlags(request, timeout=TIMEOUT)
        message = next(stream)
        assert json.loads(message.flag_configuration) == document(0)
        assert message.state == sync_service_pb2.SYNC_STATE_ALL
        fetched = stub.FetchAllFlags(sync_service_pb2.FetchAllFlagsRequest(selector=f"file:{path}"), timeout=TIMEOUT)
        assert fetched.flag_configuration == message.flag_configuration


def test_all_flags_can_be_fetched_and_the_header_counts_where_the_request_says_nothing(
    proxy: ProxyProcess, path: Path
) -> None:
    with grpc.insecure_channel(proxy.address("sync")) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        other = path.with_name("other.json")
        write(other, document("other"))
        by_header = (("flagd-selector", f"file:{other}"),)
        request = sync_pb2.FetchAllFlagsRequest(selector=f"file:{path}")
        fetched = stub.FetchAllFlags(request, metadata=by_header, timeout=TIMEOUT)
        assert json.loads(fetched.flag_configuration) == document(0)
        fetched = stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(), metadata=by_header, timeout=TIMEOUT)
        assert json.loads(fetched.flag_configuration) == document("other")


def test_what_cannot_be_asked_for_is_refused_with_what_can(proxy: ProxyProcess) -> None:
    with grpc.insecure_channel(proxy.address("sync")) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        for selector in ("", "flagSetId=x", "https://flags.example/a.json"):
            code, message = failure(stub.SyncFlags, sync_pb2.SyncFlagsRequest(selector=selector))
            assert code is StatusCode.INVALID_ARGUMENT
            assert "core.openfeature.dev/NAMESPACE/NAME or file:PATH" in message
        assert failure(stub.GetMetadata, sync_pb2.GetMetadataRequest())[0] is StatusCode.UNIMPLEMENTED
    assert (proxy.metric('wigwag_proxy_refusals_total{reason="selector"}') or 0) >= 3


def test_a_target_that_is_not_there_yet_answers_when_it_appears(proxy: ProxyProcess, tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "flags.json"
    with subscribed(proxy, f"file:{path}") as one:
        proxy.wait_for_log(lambda line: str(path) in line["msg"] and line["level"] == "warning")
        path.parent.mkdir(parents=True)
        write(path, document("here"))
        assert one.said() == "here"


def test_a_target_that_breaks_keeps_its_streams_and_tells_the_next_good_document(
    proxy: ProxyProcess, path: Path
) -> None:
    with subscribed(proxy, f"file:{path}") as one:
        assert one.said() == 0
        for number, broken in enumerate(('{"flags": {', "", "not flags at all", '{"token": 1}')):
            seen = len(proxy.lines)
            path.write_text(broken)
            proxy.wait_for_log(lambda line: str(path) in line["msg"] and line["level"] == "warning", seen)
            with subscribed(proxy, f"file:{path}") as late:
                assert late.said() == number
            write(path, document(number + 1))
            assert one.said() == number + 1
        path.unlink()
        write(path, document("again"))
        assert one.said() == "again"


def test_a_file_that_is_no_flag_document_is_shown_to_nobody(proxy: ProxyProcess, tmp_path: Path) -> None:
    secrets = ("hush", '{"auths": {"x": "hush"}}', "users: [{token: hush}]")
    with grpc.insecure_channel(proxy.address("sync")) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        fetching = []
        for number, secret in enumerate(secrets):
            path = tmp_path / f"token-{number}"
            path.write_text(secret)
            request = sync_pb2.FetchAllFlagsRequest(selector=f"file:{path}")
            fetching.append(stub.FetchAllFlags.future(request, timeout=TIMEOUT))
        for each in fetching:
            assert each.exception().code() is StatusCode.UNAVAILABLE
            assert "hush" not in each.exception().details()
    assert "hush" not in str(proxy.lines) + str(proxy.targets())


@pytest.mark.parametrize("place", ["/", "/dev/zero", "/proc/self/environ", "fifo"])
def test_directories_and_special_files_are_no_documents(proxy: ProxyProcess, tmp_path: Path, place: str) -> None:
    if place == "fifo":
        subprocess.run(["mkfifo", str(tmp_path / "fifo")], check=True)
        place = str(tmp_path / "fifo")
    with subscribed(proxy, f"file:{place}"):
        proxy.wait_for_log(lambda line: line["msg"].startswith(f"target {place}: ") and line["level"] == "warning")


def test_the_watch_is_closed_when_the_last_subscriber_has_left(path: Path) -> None:
    with ProxyProcess("--linger=0.05") as proxy:
        with subscribed(proxy, f"file:{path}") as one:
            one.next()
            assert proxy.metric("sync_active_streams") == 1
            assert proxy.metric('wigwag_proxy_targets{state="live"}') == 1
        proxy.wait_for_log(lambda line: line["msg"] == f"target {path}: no longer watched")
        assert proxy.metric("sync_active_streams") == 0
        assert proxy.metric('wigwag_proxy_targets{state="live"}') == 0
        with subscribed(proxy, f"file:{path}") as one:
            assert one.said() == 0


def test_limits_are_kept(path: Path, tmp_path: Path) -> None:
    with (
        ProxyProcess("--max-subscribers=2", "--max-targets=1", "--max-document=1000") as proxy,
        subscribed(proxy, f"file:{path}") as one,
        grpc.insecure_channel(proxy.address("sync")) as channel,
    ):
        assert one.said() == 0
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        code, message = failure(stub.SyncFlags, sync_pb2.SyncFlagsRequest(selector=f"file:{tmp_path / 'b'}"))
        assert (code, message) == (StatusCode.RESOURCE_EXHAUSTED, "1 targets are watched already; try again later")
        with subscribed(proxy, f"file:{path}") as two:
            assert two.said() == 0
            code, message = failure(stub.SyncFlags, sync_pb2.SyncFlagsRequest(selector=f"file:{path}"))
            assert (code, "2 streams are open already" in message) == (StatusCode.RESOURCE_EXHAUSTED, True)
            seen = len(proxy.lines)
            write(path, document("x" * 2000))
            proxy.wait_for_log(lambda line: "limit of 1000 bytes" in line["msg"], seen)
            write(path, document(1))
            assert (one.said(), two.said()) == (1, 1)


def test_it_ends_its_streams_so_that_every_client_comes_back(path: Path) -> None:
    with ProxyProcess() as proxy:
        with grpc.insecure_channel(proxy.address("sync")) as channel:
            stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
            streams = [stub.SyncFlags(sync_pb2.SyncFlagsRequest(selector=f"file:{path}")) for _ in range(20)]
            silent = stub.SyncFlags(sync_pb2.SyncFlagsRequest(selector=f"file:{path}.none"))
            for stream in streams:
                next(stream)
            proxy.wait_for_log(lambda line: f"{path}.none" in line["msg"])
            proxy.process.send_signal(signal.SIGTERM)
            for stream in (*streams, silent):
                code, message = failure(lambda timeout, stream=stream: stream)
                assert (code, "is stopping" in message) == (StatusCode.UNAVAILABLE, True)
        assert proxy.process.wait(TIMEOUT) == 0


def test_probes_say_so_while_it_runs(proxy: ProxyProcess) -> None:
    assert proxy.fetch("management", "/healthz")[0] == 200
    assert proxy.fetch("management", "/readyz")[0] == 200
    assert proxy.metric("sync_active_streams") is not None
    with grpc.insecure_channel(proxy.address("management")) as channel:
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=TIMEOUT) == b"\x08\x01"


def test_an_in_process_provider_evaluates_what_it_gets_through_the_proxy(proxy: ProxyProcess, path: Path) -> None:
    write(path, {"flags": {"x": FLAG}})
    provider = FlagdProvider(
        resolver_type=ResolverType.IN_PROCESS,
        host="127.0.0.1",
        port=proxy.port("sync"),
        selector=f"file:{path}",
        deadline_ms=20_000,
    )
    with connected(provider) as client:
        heard = Heard(client)
        heard.wait_for(ProviderEvent.PROVIDER_READY)
        assert client.get_boolean_value("x", True) is False
        heard.forget()
        write(path, {"flags": {"x": {**FLAG, "defaultVariant": "on"}}})
        heard.wait_for(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED)
        assert client.get_boolean_value("x", False) is True


def test_an_agent_takes_its_flags_through_the_proxy(proxy: ProxyProcess, path: Path) -> None:
    write(path, {"flags": {"x": FLAG}})
    source = {"uri": proxy.address("sync"), "provider": "grpc", "selector": f"file:{path}"}
    body = {"flagKey": "x", "context": {}}
    with AgentProcess("--sources", json.dumps([source])) as agent:
        place = "/flagd.evaluation.v1.Service/ResolveBoolean"
        told = json.loads(agent.fetch("evaluation", place, body, content_type="application/json")[1])
        assert told["value"] is False
        seen = len(agent.lines)
        write(path, {"flags": {"x": {**FLAG, "defaultVariant": "on"}}})
        agent.wait_for_log(lambda line: line["msg"] == "snapshot published", seen)
        told = json.loads(agent.fetch("evaluation", place, body, content_type="application/json")[1])
        assert told["value"] is True


def test_a_server_that_goes_and_comes_back_is_an_outage_that_nobody_notices() -> None:
    with ProxyProcess("--allow", "grpc") as proxy, ExitStack() as stack:
        port = claim_port()
        with SyncServer(json.dumps(document("far")), port=port) as server:
            one = stack.enter_context(subscribed(proxy, f"grpc://127.0.0.1:{port}"))
            assert one.said() == "far"
            server.change(json.dumps(document("farther")))
            assert one.said() == "farther"
        proxy.wait_for_log(lambda line: f"127.0.0.1:{port}" in line["msg"] and line["level"] == "warning")
        with subscribed(proxy, f"grpc://127.0.0.1:{port}") as late:
            assert late.said() == "farther"
        assert proxy.metric(f'wigwag_proxy_target_up{{target="127.0.0.1:{port}",provider="grpc"}}') == 0
        with SyncServer(json.dumps(document("back")), port=port):
            assert one.said() == "back"


def test_a_web_address_is_polled_once_for_all(path: Path) -> None:
    code = (
        "import http.server, functools, sys; h = functools.partial(http.server.SimpleHTTPRequestHandler,"
        " directory=sys.argv[1]); s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), h);"
        " print(s.server_port, flush=True); s.serve_forever()"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(path.parent)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    try:
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/{path.name}"
        with (
            ProxyProcess("--allow", "http") as proxy,
            subscribed(proxy, url) as one,
            subscribed(proxy, url) as two,
        ):
            assert (one.said(), two.said()) == (0, 0)
            (told,) = proxy.targets()["targets"]
            assert (told["target"], told["provider"], told["subscribers"]) == (url, "http", 2)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_documents_can_be_served_over_tls_to_clients_with_a_certificate(path: Path, tmp_path: Path) -> None:
    found = make_certificates(tmp_path)
    with ProxyProcess(*found.arguments(), f"--client-ca-path={found.authority}") as proxy:
        credentials = grpc.ssl_channel_credentials(
            found.authority.read_bytes(), found.key.read_bytes(), found.certificate.read_bytes()
        )
        with grpc.secure_channel(f"localhost:{proxy.port('sync')}", credentials) as channel:
            stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
            stream = stub.SyncFlags(sync_pb2.SyncFlagsRequest(selector=f"file:{path}"), timeout=TIMEOUT)
            assert json.loads(next(stream).flag_configuration) == document(0)


def test_a_thousand_subscribers_and_fifty_changes_none_misses_the_last(proxy: ProxyProcess, path: Path) -> None:
    streams, changes = 1_000, 50

    async def last(stub: Any) -> None:
        async for message in stub.SyncFlags(sync_pb2.SyncFlagsRequest(selector=f"file:{path}")):
            if json.loads(message.flag_configuration)["said"] == changes:
                return

    async def main() -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(proxy.address("sync"), options) for _ in range(10)]
        async with asyncio.timeout(150), asyncio.TaskGroup() as group:
            for number in range(streams):
                group.create_task(last(sync_pb2_grpc.FlagSyncServiceStub(channels[number % 10])))
            for revision in range(1, changes + 1):
                await asyncio.to_thread(write, path, document(revision, filling="x" * 2_000))
        for channel in channels:
            await channel.close()

    asyncio.run(main())
    assert proxy.process.poll() is None


def test_subscribers_that_never_read_cost_no_copies_and_hold_up_nobody(proxy: ProxyProcess, path: Path) -> None:
    """Their windows are the smallest that clients have; of forty documents of a megabyte they take a part of one."""
    write(path, document(0, filling="x" * 1_000_000))
    selector = f"file:{path}".encode()
    message = b"\x12" + bytes((len(selector),)) + selector
    body = len(message).to_bytes(5, "big") + message
    with ExitStack() as stack, subscribed(proxy, f"file:{path}") as quick:
        assert quick.said() == 0
        before = memory(proxy)
        for _ in range(50):
            stuck = stack.enter_context(connect(proxy, "sync"))
            opened = [frame(1, 4, n, SYNC_HEADERS) + frame(0, 1, n, body) for n in range(1, 9, 2)]
            stuck.sendall(PREFACE + b"".join(opened))
        for revision in range(1, 41):
            write(path, document(revision, filling="x" * 1_000_000))
            assert quick.said() == revision
        assert proxy.metric(f'wigwag_proxy_target_subscribers{{target="{path}",provider="file"}}') == 201
        assert memory(proxy) - before < 60_000  # KiB; a copy for each stream would be 200 MB


def test_a_wrong_option_is_one_clear_line(tmp_path: Path) -> None:
    for arguments, message in (
        (("start", "--allow", "ftp"), "--allow: 'ftp' is no kind of target"),
        (("start", "--file-root", str(tmp_path / "none")), "--file-root: there is no directory"),
        (("start", "--server-cert-path", "x"), "TLS needs both"),
        (("start", "--linger", "-1"), "--linger: '-1' is not a number of seconds"),
        (("stop",), "invalid choice: 'stop'"),
    ):
        command = [sys.executable, "-m", "wigwag", "proxy", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        assert done.returncode == 2, done
        assert message in done.stderr
