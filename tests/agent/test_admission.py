"""Many connections to one port: the others, probes and sources go on, and it is counted who was refused."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

from tests.agent.process import AgentProcess, write
from tests.agent.test_agent import FLAG, ON, changed, value
from tests.proxy.process import ProxyProcess
from tests.real.processes import until

_LIMITED = ("sh", "-c", 'ulimit {} 256; exec "$@"', "sh", sys.executable, "-m", "wigwag")


class SoftlyLimited(AgentProcess):
    """An agent whose soft limit of open files is low."""

    program: ClassVar = tuple(part.format("-S -n") for part in _LIMITED)


class HardlyLimited(AgentProcess):
    """An agent that may not open more than 256 files."""

    program: ClassVar = tuple(part.format("-n") for part in _LIMITED)


class LimitedProxy(ProxyProcess):
    """A proxy that may not open more than 256 files."""

    program: ClassVar = HardlyLimited.program


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[None]:
    """Open connections that say nothing; more may be opened than are accepted."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        yield


def caps(agent: AgentProcess) -> dict[str, int]:
    return agent.wait_for_log(lambda line: line["msg"] == "connection limits")


def metrics(agent: AgentProcess) -> str:
    return agent.fetch("management", "/metrics")[1].decode()


def test_the_soft_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "flags.json"
    write(path, {"flags": {"x": FLAG}})
    with SoftlyLimited(f"--uri=file:{path}") as agent, idle_connections(agent.port("evaluation"), 300):
        assert caps(agent)["per_port"] > 300
        assert value(agent, "x") is False


def test_idle_connections_to_one_port_leave_the_others_probes_and_sources_alone(tmp_path: Path) -> None:
    path = tmp_path / "flags.json"
    write(path, {"flags": {"x": FLAG}})
    with HardlyLimited(f"--uri=file:{path}") as agent, idle_connections(agent.port("evaluation"), 300):
        assert caps(agent)["open_files"] == 256
        agent.wait_for_log(lambda line: "raise the hard limit of open files" in line["msg"])
        agent.wait_for_log(lambda line: "refused: port_limit" in line["msg"])
        assert agent.fetch("management", "/healthz")[0] == 200
        assert agent.fetch("OFREP", "/ofrep/v1/evaluate/flags/x", {})[0] == 200
        seen = len(agent.lines)
        write(path, {"flags": {"x": ON}})
        changed(agent, seen)
        refused = f'{{port="evaluation",reason="port_limit"}} {300 - caps(agent)["per_port"]}'
        until(lambda: f"wigwag_connections_refused_total{refused}" in metrics(agent), "refusing the rest")
        assert f'wigwag_connections_limit{{port="evaluation"}} {caps(agent)["per_port"]}' in metrics(agent)
        lines = [line for line in agent.lines if "refused" in line["msg"]]
        assert len(lines) <= 20, "one line for each refused connection"


def test_idle_connections_to_every_port_at_once_leave_the_probes_alone(tmp_path: Path) -> None:
    path = tmp_path / "flags.json"
    write(path, {"flags": {"x": FLAG}})
    with HardlyLimited(f"--uri=file:{path}") as agent, ExitStack() as stack:
        for port in ("evaluation", "sync", "OFREP"):
            stack.enter_context(idle_connections(agent.port(port), 150))
        assert agent.fetch("management", "/healthz")[0] == 200
        seen = len(agent.lines)
        write(path, {"flags": {"x": ON}})
        changed(agent, seen)


def test_idle_connections_to_the_documents_of_a_proxy_leave_its_probes_alone() -> None:
    with LimitedProxy() as proxy, idle_connections(proxy.port("sync"), 300):
        assert proxy.fetch("management", "/healthz")[0] == 200
        proxy.wait_for_log(lambda line: "refused: port_limit" in line["msg"])
        name, rest = 'wigwag_connections_refused_total{port="sync",reason="port_limit"}', 300 - caps(proxy)["per_port"]
        until(lambda: proxy.metric(name) == rest, "refusing the rest")
