"""The ports of an agent: TLS where it is asked for, when they are ready, and who may open a socket."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as Ask
from urllib.request import urlopen

import grpc
import pytest
from cryptography import x509

from tests.agent.process import TIMEOUT, AgentProcess, fetch, write
from tests.agent.test_agent import FLAG
from tests.agent.test_tenancy import Tenants, secured
from tests.proxy.process import ProxyProcess
from tests.wire.test_tls import Authority
from wigwag.agent.options import AgentOptions
from wigwag.agent.run import Agent, AgentDeps
from wigwag.wire.http import Early, Handler, Reply, Request
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.listen import Listener
from wigwag.wire.server.server import Server, serve

BULK = "/ofrep/v1/evaluate/flags"
RULES = [{"name": "robot", "certificates": ["CN=robot"], "selectors": ["flagSetId=a"]}]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "authority").mkdir()
    return Authority(tmp_path / "authority")


def ask(
    agent: AgentProcess, port: str, path: str, authority: Authority, client: str = "", body: Any = None
) -> tuple[int, Any]:
    """Ask over TLS, with a certificate of that common name if there is one."""
    certificate = authority.issue(client, file=client) if client else None
    secure = authority.client(certificate=certificate)["ssl"]
    data = None if body is None else json.dumps(body).encode()
    url = f"https://localhost:{agent.port(port)}{path}"
    with urlopen(Ask(url, data), timeout=TIMEOUT, context=secure) as answer:
        return answer.status, answer.read()


def test_ofrep_is_served_with_tls_and_knows_clients_by_their_certificates(tmp_path: Path, authority: Authority) -> None:
    options = secured(
        authority, "--ofrep-tls", f"--client-ca-path={authority.path}", f"--auth-tokens={tmp_path / 'rules.json'}"
    )
    with Tenants(tmp_path, *options, rules=RULES).running() as tenants:
        status, body = ask(tenants.agent, "OFREP", BULK, authority, "robot", {})
        assert (status, [flag["key"] for flag in json.loads(body)["flags"]]) == (200, ["flag-a"])
        with pytest.raises(OSError, match="401"):
            ask(tenants.agent, "OFREP", BULK, authority, "stranger", {})
        with pytest.raises(OSError, match=r"EOF|certificate|closed|reset|Broken") as caught:
            ask(tenants.agent, "OFREP", BULK, authority, "", {})
        assert not isinstance(caught.value, HTTPError), "it gets as far as the handshake"
        with pytest.raises((OSError, ValueError)):
            fetch(tenants.agent.address("OFREP"), BULK, {})
        assert not [line for line in tenants.agent.lines if "not encrypted" in line["msg"]]


def test_management_is_served_with_tls_and_asks_for_no_certificate(tmp_path: Path, authority: Authority) -> None:
    write(tmp_path / "f.json", {"flags": {"x": FLAG}})
    options = secured(authority, "--management-tls", f"--client-ca-path={authority.path}")
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}", *options) as agent:
        assert ask(agent, "management", "/healthz", authority)[0] == 200
        assert ask(agent, "management", "/debug/sources", authority)[0] == 200
        assert fetch(agent.address("OFREP"), BULK, {})[0] == 200, "it has no TLS unless asked"


def test_a_renewed_certificate_is_shown_on_these_ports_too(tmp_path: Path, authority: Authority) -> None:
    write(tmp_path / "f.json", {"flags": {"x": FLAG}})
    options = secured(authority, "--management-tls", "--ofrep-tls")
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}", *options) as agent:

        def shown(port: str) -> x509.Certificate:
            pem = ssl.get_server_certificate(("127.0.0.1", agent.port(port)), timeout=TIMEOUT)
            return x509.load_pem_x509_certificate(pem.encode())

        before = {port: shown(port) for port in ("management", "OFREP")}
        authority.issue("localhost", x509.DNSName("localhost"))
        assert all(shown(port) != certificate for port, certificate in before.items())


def test_the_management_port_of_a_proxy_is_served_with_tls(authority: Authority) -> None:
    with ProxyProcess(*secured(authority, "--management-tls")) as proxy:
        assert ask(proxy, "management", "/readyz", authority)[0] == 200


@pytest.mark.parametrize(
    "command",
    [
        ("start", "--ofrep-tls"),
        ("start", "--management-tls"),
        ("check-config", "--ofrep-tls"),
        ("proxy", "start", "--management-tls"),
    ],
)
def test_tls_without_a_certificate_is_refused(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wigwag", *command], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 2
    assert f"{command[-1]} needs TLS: give --server-cert-path and --server-key-path, too" in done.stderr


def test_an_agent_is_ready_only_when_all_of_its_ports_are_open() -> None:
    handlers: list[Handler] = []
    ready: list[int] = []

    @asynccontextmanager
    async def watched(
        handler: Handler, listeners: Sequence[Listener], limits: WireLimits, early: Early | None
    ) -> AsyncIterator[Server]:
        handlers.append(handler)
        async with serve(handler, listeners, limits, early) as server:
            await agent.snapshots.after(0)
            ready.append(probe())
            yield server

    def probe() -> int:
        """Ask whichever port knows the page."""
        answers = [handler(Request(b"GET", b"/readyz")) for handler in handlers]
        return max(
            (answer.status for answer in answers if isinstance(answer, Reply) and answer.status != 404), default=0
        )

    async def main() -> None:
        stop = asyncio.Event()
        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
            tasks.create_task(agent.run(stop))
            await agent.lifecycle.started.wait()
            assert probe() == 200
            stop.set()

    agent = Agent(AgentOptions(port=0, management_port=0, sync_port=0, ofrep_port=0), AgentDeps(serve=watched))
    asyncio.run(main())
    assert len(ready) == 4
    assert 200 not in ready


def test_health_streams_count_among_the_streams_of_a_client(tmp_path: Path) -> None:
    with (
        Tenants(tmp_path, "--max-streams-per-client=2", rules=None).running(loaded=False) as tenants,
        tenants.channel("management") as channel,
    ):
        watch: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        streams = [watch(b"", timeout=TIMEOUT) for _ in range(2)]
        assert [next(stream) for stream in streams] == [b"\x08\x01"] * 2
        with pytest.raises(grpc.RpcError) as caught:
            next(watch(b"", timeout=TIMEOUT))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert check(b"", timeout=TIMEOUT) == b"\x08\x01"
        for stream in streams:
            stream.cancel()


@pytest.mark.parametrize(
    ("options", "mode"), [((), 0o660), (("--socket-mode=0600",), 0o600), (("--socket-mode=666",), 0o666)]
)
def test_a_socket_is_for_its_owner_and_group_unless_told_otherwise(
    tmp_path: Path, options: tuple[str, ...], mode: int
) -> None:
    write(tmp_path / "f.json", {"flags": {"x": FLAG}})
    path = tmp_path / "socket"
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}", f"--socket-path={path}", *options) as agent:
        assert stat.S_IMODE(path.stat().st_mode) == mode
        agent.wait_for_log(lambda line: f"has mode {mode:04o}" in line["msg"])
