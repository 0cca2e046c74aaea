"""Unmodified JavaScript providers against a real agent: evaluation, events, caching, reconnection, sockets, TLS.

The drivers and the exact versions of the packages are in `js/`. To change a version, change it in `js/package.json`,
run `npm install --package-lock-only` there, and take the `funding` entries, which name hosts, out of the lock file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.agent.process import AgentProcess, write
from tests.clients.certificates import make_certificates
from tests.clients.js_packages import SOURCE, announce, installed
from tests.clients.js_process import JsProvider
from tests.clients.metrics import boolean_calls
from tests.real.processes import claim_port

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the packages

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
RULE = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
FLAGS: dict[str, Any] = {
    "static": FLAG,
    "targeted": {**FLAG, "targeting": RULE},
    "text": {"state": "ENABLED", "variants": {"a": "A", "b": "B"}, "defaultVariant": "a"},
    "number": {"state": "ENABLED", "variants": {"n": 7}, "defaultVariant": "n"},
    "fraction": {"state": "ENABLED", "variants": {"n": 0.5}, "defaultVariant": "n"},
    "object": {"state": "ENABLED", "variants": {"o": {"a": [1, {"b": "c"}]}}, "defaultVariant": "o"},
    "disabled": {**FLAG, "state": "DISABLED"},
    "none": {"state": "ENABLED", "variants": {"on": True}},
    "nowhere": {**FLAG, "targeting": {"if": [{"==": [{"var": "tier"}, "gold"]}, "onn"]}},
}
GOLD = {"targetingKey": "user-1", "tier": "gold"}
OFF, ON = (False, "off", "STATIC", None), (True, "on", "STATIC", None)
RESOLVERS = pytest.mark.parametrize("resolver", ["rpc", "in-process"])
Run = Callable[..., AbstractContextManager[JsProvider]]


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return what starts a driver with options for its provider."""
    packages = installed(announce(request.config))
    folder = tmp_path_factory.mktemp("js")
    (folder / "node_modules").symlink_to(packages, target_is_directory=True)
    for driver in SOURCE.glob("*.mjs"):
        shutil.copy(driver, folder)
    return lambda driver, options, **environment: JsProvider(folder, driver, options, **environment)


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    write(path, {"flags": FLAGS})
    return path


def turn_on(flags: Path) -> None:
    write(flags, {"flags": {**FLAGS, "static": {**FLAG, "defaultVariant": "on"}}})


def flagd(agent: AgentProcess, resolver: str, **options: Any) -> dict[str, Any]:
    port = agent.port("evaluation" if resolver == "rpc" else "sync")
    return patient(resolverType=resolver, host="127.0.0.1", port=port) | options


def patient(**options: Any) -> dict[str, Any]:
    return {"deadlineMs": 10_000, "retryBackoffMs": 500, "retryBackoffMaxMs": 500, "retryGracePeriod": 60, **options}


def flagd_web(agent: AgentProcess, **options: Any) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": agent.port("evaluation"), "tls": False, "maxDelay": 500, **options}


def ofrep_web(agent: AgentProcess, **options: Any) -> dict[str, Any]:
    return {"baseUrl": f"http://{agent.address('OFREP')}", **options}


def check_values(provider: JsProvider) -> None:
    """Evaluate a flag of every type, and what goes wrong. The cache of the gRPC provider has no types: turn it off."""
    assert provider.evaluate("static", True) == OFF
    assert provider.evaluate("text", "x") == ("A", "a", "STATIC", None)
    assert provider.evaluate("number", 0) == (7, "n", "STATIC", None)
    assert provider.evaluate("fraction", 0.0) == (0.5, "n", "STATIC", None)
    assert provider.evaluate("object", {}) == ({"a": [1, {"b": "c"}]}, "o", "STATIC", None)
    assert provider.evaluate("missing", True) == (True, None, "ERROR", "FLAG_NOT_FOUND")
    assert provider.evaluate("static", "mine") == ("mine", None, "ERROR", "TYPE_MISMATCH")
    assert provider.evaluate("text", 3) == (3, None, "ERROR", "TYPE_MISMATCH")


# the server's provider: gRPC


@RESOLVERS
def test_the_provider_evaluates(run: Run, flags: Path, resolver: str) -> None:
    with (
        AgentProcess(f"--uri=file:{flags}") as agent,
        run("flagd.mjs", flagd(agent, resolver, cache="disabled")) as provider,
    ):
        provider.wait_for("READY")
        check_values(provider)
        assert provider.evaluate("targeted", False, GOLD) == (True, "on", "TARGETING_MATCH", None)
        assert provider.evaluate("targeted", True) == (False, "off", "DEFAULT", None)
        assert provider.evaluate("disabled", True) == (True, None, "DISABLED", None)
        assert provider.evaluate("none", True) == (True, None, "DEFAULT", None)


def test_the_provider_asks_once_for_a_flag_that_cannot_be_evaluated(run: Run, flags: Path) -> None:
    with AgentProcess(f"--uri=file:{flags}") as agent, run("flagd.mjs", flagd(agent, "rpc")) as provider:
        provider.wait_for("READY")
        assert provider.evaluate("nowhere", True, GOLD) == (True, None, "ERROR", "GENERAL")
        assert boolean_calls(agent) == 1


@RESOLVERS
def test_a_change_reaches_the_provider_and_its_cache_forgets(run: Run, flags: Path, resolver: str) -> None:
    with AgentProcess(f"--uri=file:{flags}") as agent, run("flagd.mjs", flagd(agent, resolver)) as provider:
        provider.wait_for("READY")
        assert provider.evaluate("static", True) == OFF
        assert provider.evaluate("static", True)[2] == ("CACHED" if resolver == "rpc" else "STATIC")
        turn_on(flags)
        provider.wait_for("CONFIGURATION_CHANGED", "static")
        assert provider.evaluate("static", False) == ON


@RESOLVERS
def test_the_provider_comes_back_when_the_agent_does(run: Run, flags: Path, resolver: str) -> None:
    ports = {"port": claim_port(), "sync-port": claim_port()}
    with (
        AgentProcess(f"--uri=file:{flags}", ports=ports) as agent,
        run("flagd.mjs", flagd(agent, resolver)) as provider,
    ):
        provider.wait_for("READY")
        assert provider.evaluate("static", True) == OFF
        assert agent.stop() == 0
        provider.wait_for("STALE")
        turn_on(flags)
        with AgentProcess(f"--uri=file:{flags}", ports=ports):
            provider.wait_for("READY")
            assert provider.evaluate("static", False) == ON


@RESOLVERS
def test_a_selector_narrows_what_the_provider_sees(run: Run, tmp_path: Path, resolver: str) -> None:
    for name in ("one", "two"):
        write(tmp_path / f"{name}.json", {"flags": {name: FLAG}, "metadata": {"flagSetId": f"set-{name}"}})
    sources = [f"--uri=file:{tmp_path / name}.json" for name in ("one", "two")]
    with (
        AgentProcess(*sources) as agent,
        run("flagd.mjs", flagd(agent, resolver, selector="flagSetId=set-two")) as provider,
    ):
        provider.wait_for("READY")
        assert provider.evaluate("two", True) == OFF
        assert provider.evaluate("one", True) == (True, None, "ERROR", "FLAG_NOT_FOUND")


def test_the_context_that_the_operator_adds_reaches_in_process_evaluation(run: Run, flags: Path) -> None:
    with (
        AgentProcess(f"--uri=file:{flags}", "--context-value=tier=gold") as agent,
        run("flagd.mjs", flagd(agent, "in-process")) as provider,
    ):
        provider.wait_for("READY")
        assert provider.evaluate("targeted", False) == (True, "on", "TARGETING_MATCH", None)


@RESOLVERS
def test_the_provider_reaches_a_unix_socket(run: Run, flags: Path, resolver: str) -> None:
    with TemporaryDirectory() as folder:  # a path that is short enough for a socket
        path = f"{folder}/agent.sock"
        option = "--socket-path" if resolver == "rpc" else "--sync-socket-path"
        with (
            AgentProcess(f"--uri=file:{flags}", f"{option}={path}"),
            run("flagd.mjs", patient(resolverType=resolver, socketPath=path, cache="disabled")) as provider,
        ):
            provider.wait_for("READY")
            check_values(provider)


@RESOLVERS
def test_the_provider_trusts_the_authority_that_it_is_told_of(
    run: Run, flags: Path, tmp_path: Path, resolver: str
) -> None:
    files = make_certificates(tmp_path)
    with AgentProcess(f"--uri=file:{flags}", *files.arguments()) as agent:
        options = flagd(agent, resolver, host="localhost", tls=True)
        with run("flagd.mjs", {**options, "certPath": str(files.authority)}) as provider:
            provider.wait_for("READY")
            assert provider.evaluate("static", True) == OFF
        with run("flagd.mjs", {**options, "deadlineMs": 1000}) as provider:
            provider.wait_for("ERROR")


# the browser's provider: Connect


def test_the_web_provider_evaluates(run: Run, flags: Path) -> None:
    with AgentProcess(f"--uri=file:{flags}") as agent, run("flagd_web.mjs", flagd_web(agent)) as provider:
        provider.wait_for("READY")
        check_values(provider)
        assert provider.evaluate("targeted", True) == (False, "off", "DEFAULT", None)
        provider.set_context(GOLD)
        assert provider.evaluate("targeted", False) == (True, "on", "TARGETING_MATCH", None)
        # `ResolveAll` of v1 has a zero for what is disabled, and nothing for what has no default variant
        assert provider.evaluate("disabled", True) == (False, None, "DISABLED", None)
        assert provider.evaluate("none", True) == (True, None, "ERROR", "FLAG_NOT_FOUND")


def test_a_change_reaches_the_web_provider(run: Run, flags: Path) -> None:
    with AgentProcess(f"--uri=file:{flags}") as agent, run("flagd_web.mjs", flagd_web(agent)) as provider:
        provider.wait_for("READY")
        turn_on(flags)
        provider.wait_for("CONFIGURATION_CHANGED")
        assert provider.evaluate("static", False) == ON


def test_the_web_provider_comes_back_when_the_agent_does(run: Run, flags: Path) -> None:
    ports = {"port": claim_port()}
    with AgentProcess(f"--uri=file:{flags}", ports=ports) as agent, run("flagd_web.mjs", flagd_web(agent)) as provider:
        provider.wait_for("READY")
        provider.forget()
        assert agent.stop() == 0
        provider.wait_to_see("log", "could not establish connection")
        with AgentProcess(f"--uri=file:{flags}", ports=ports):
            provider.wait_to_see("log", "event received: provider_ready")  # it tells its logger, and no one else
            turn_on(flags)
            provider.wait_for("CONFIGURATION_CHANGED")
            assert provider.evaluate("static", False) == ON


def test_the_web_provider_speaks_tls(run: Run, flags: Path, tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    with AgentProcess(f"--uri=file:{flags}", *files.arguments()) as agent:
        options = flagd_web(agent, host="localhost", tls=True)
        with run("flagd_web.mjs", options, NODE_EXTRA_CA_CERTS=str(files.authority)) as provider:
            provider.wait_for("READY")
            assert provider.evaluate("static", True) == OFF


# the browser's provider: OFREP


def test_the_ofrep_provider_evaluates(run: Run, flags: Path) -> None:
    with AgentProcess(f"--uri=file:{flags}") as agent, run("ofrep_web.mjs", ofrep_web(agent)) as provider:
        provider.wait_for("READY")
        check_values(provider)
        assert provider.evaluate("targeted", True) == (False, "off", "DEFAULT", None)
        assert provider.evaluate("disabled", True) == (True, None, "DISABLED", None)
        assert provider.evaluate("none", True) == (True, None, "DEFAULT", None)


def test_another_context_is_another_answer_though_the_targeting_key_and_so_the_etag_are_the_same(
    run: Run, flags: Path
) -> None:
    with AgentProcess(f"--uri=file:{flags}") as agent, run("ofrep_web.mjs", ofrep_web(agent)) as provider:
        provider.wait_for("READY")
        provider.set_context({"targetingKey": "user-1"})
        assert provider.evaluate("targeted", True) == (False, "off", "DEFAULT", None)
        provider.set_context(GOLD)
        provider.wait_for("CONFIGURATION_CHANGED", "targeted")
        assert provider.evaluate("targeted", False) == (True, "on", "TARGETING_MATCH", None)


def test_a_change_reaches_the_ofrep_provider_as_a_server_sent_event(run: Run, flags: Path) -> None:
    with AgentProcess(f"--uri=file:{flags}") as agent, run("ofrep_web.mjs", ofrep_web(agent)) as provider:
        provider.wait_for("READY")
        provider.wait_to_see("open", "/ofrep/v1/sse")
        turn_on(flags)
        provider.wait_for("CONFIGURATION_CHANGED", "static")
        assert provider.evaluate("static", False) == ON


def test_the_ofrep_provider_hears_of_a_change_while_the_agent_was_away(run: Run, flags: Path) -> None:
    ports = {"ofrep-port": claim_port()}
    with AgentProcess(f"--uri=file:{flags}", ports=ports) as agent, run("ofrep_web.mjs", ofrep_web(agent)) as provider:
        provider.wait_for("READY")
        provider.wait_to_see("open")
        assert agent.stop() == 0
        provider.wait_for("STALE")
        turn_on(flags)  # while no one is there to tell of it
        with AgentProcess(f"--uri=file:{flags}", ports=ports):
            provider.wait_for("CONFIGURATION_CHANGED", "static")
            assert provider.evaluate("static", False) == ON


def test_an_ofrep_provider_that_polls_is_told_what_has_not_changed(run: Run, flags: Path) -> None:
    with (
        AgentProcess(f"--uri=file:{flags}") as agent,
        run("ofrep_web.mjs", ofrep_web(agent, changeDetection="polling", pollInterval=100)) as provider,
    ):
        provider.wait_for("READY")
        provider.wait_to_see("response", "200")
        provider.wait_to_see("response", "304")
        turn_on(flags)
        provider.wait_for("CONFIGURATION_CHANGED", "static")
        provider.wait_to_see("response", "200")
        assert provider.evaluate("static", False) == ON


def test_the_lock_file_pins_every_package_and_names_no_host() -> None:
    lock = (SOURCE / "package-lock.json").read_text()
    assert "://" not in lock
    assert '"resolved"' not in lock
