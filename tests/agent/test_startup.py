"""What the agent and the proxy say when they start: where each port is, and how it is protected."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process import AgentProcess
from tests.clients.certificates import make_certificates
from tests.proxy.process import ProxyProcess

PORTS = ("evaluation", "management", "sync", "OFREP")


def protection(process: AgentProcess, *names: str) -> dict[str, tuple[str, str]]:
    """Wait for the line of each port, and return what it says of TLS and of authentication."""
    said = {name: f"{name} at {process.address(name)}" for name in names}
    lines = {name: process.wait_for_log(partial(_says, text)) for name, text in said.items()}
    return {name: (line["tls"], line["auth"]) for name, line in lines.items()}


def _says(text: str, line: dict[str, Any]) -> bool:
    return bool(line["msg"] == text)


def test_an_open_agent_says_that_it_is_open() -> None:
    with AgentProcess() as agent:
        assert protection(agent, *PORTS) == dict.fromkeys(PORTS, ("off", "off"))


def test_an_agent_says_which_ports_have_tls_and_ask_for_tokens(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    rules = tmp_path / "rules.yaml"
    rules.write_text('rules: [{name: a, token: "a-token-of-some-length", selectors: ["*"]}]')
    with AgentProcess(*certificates.arguments(), f"--auth-tokens={rules}", ready=False) as agent:
        found = protection(agent, *PORTS)
    assert found["evaluation"] == found["sync"] == ("on", "tokens")
    assert found["OFREP"][1] == "tokens"
    assert found["management"][1] == "off"


def test_a_certificate_that_clients_must_show_is_authentication(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with AgentProcess(*certificates.arguments(), f"--client-ca-path={certificates.authority}") as agent:
        assert protection(agent, "evaluation") == {"evaluation": ("on", "client certificates")}


@pytest.mark.parametrize("tls", [False, True])
def test_a_proxy_says_it_too(tmp_path: Path, tls: bool) -> None:
    options = make_certificates(tmp_path).arguments() if tls else ()
    with ProxyProcess(*options) as proxy:
        expected = {"sync": ("on" if tls else "off", "off"), "management": ("off", "off")}
        assert protection(proxy, "sync", "management") == expected
