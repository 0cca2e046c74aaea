"""Unmodified Python providers against a real agent: evaluation, events, caching, reconnection, sockets, TLS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import EventDetails, ProviderEvent
from openfeature.flag_evaluation import FlagEvaluationDetails

from tests.agent.process import TIMEOUT, AgentProcess, write
from tests.clients.certificates import make_certificates
from tests.real.processes import claim_port

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
RULE = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
DOCUMENT = {
    "flags": {
        "static": FLAG,
        "targeted": {**FLAG, "targeting": RULE},
        "text": {"state": "ENABLED", "variants": {"a": "A", "b": "B"}, "defaultVariant": "a"},
        "number": {"state": "ENABLED", "variants": {"n": 7}, "defaultVariant": "n"},
        "fraction": {"state": "ENABLED", "variants": {"n": 0.5}, "defaultVariant": "n"},
        "object": {"state": "ENABLED", "variants": {"o": {"a": [1, {"b": "c"}]}}, "defaultVariant": "o"},
        "disabled": {**FLAG, "state": "DISABLED"},
        "none": {"state": "ENABLED", "variants": {"on": True}},
    }
}
GOLD = EvaluationContext("user-1", {"tier": "gold"})
RESOLVERS = [ResolverType.RPC, ResolverType.IN_PROCESS]


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    write(path, DOCUMENT)
    return path


class Heard:
    """The events of a client, and a way to wait for one."""

    def __init__(self, client: OpenFeatureClient) -> None:
        self._events: list[tuple[ProviderEvent, EventDetails]] = []
        self._news = threading.Condition()
        for event in ProviderEvent:
            client.add_handler(event, self._hear(event))

    def _hear(self, event: ProviderEvent) -> Callable[[EventDetails], None]:
        def handler(details: EventDetails) -> None:
            with self._news:
                self._events.append((event, details))
                self._news.notify_all()

        return handler

    def wait_for(self, event: ProviderEvent, flag: str | None = None) -> None:
        def came() -> bool:
            return any(e is event and (flag is None or flag in (d.flags_changed or [])) for e, d in self._events)

        with self._news:
            assert self._news.wait_for(came, TIMEOUT), f"{event} never came; these did: {self._events}"

    def forget(self) -> None:
        with self._news:
            self._events.clear()


@contextmanager
def connected(provider: Any) -> Iterator[OpenFeatureClient]:
    domain = f"test-{id(provider)}"
    api.set_provider_and_wait(provider, domain) if hasattr(api, "set_provider_and_wait") else api.set_provider(
        provider, domain
    )
    try:
        yield api.get_client(domain)
    finally:
        api.shutdown()
        api.clear_providers()


def flagd(agent: AgentProcess, resolver: ResolverType, **options: Any) -> FlagdProvider:
    settings = {"deadline_ms": 20_000, "retry_backoff_ms": 50, "retry_backoff_max_ms": 100, "retry_grace_period": 50}
    if "port" not in options:
        options["port"] = agent.port("evaluation" if resolver is ResolverType.RPC else "sync")
    return FlagdProvider(resolver_type=resolver, **{"host": "127.0.0.1", **settings, **options})


def seen(details: FlagEvaluationDetails[Any]) -> tuple[Any, str | None, str | None, str | None]:
    code = details.error_code
    return (
        details.value,
        details.variant or None,
        str(details.reason) if details.reason else None,
        code.value if code else None,
    )


def check_evaluations(client: OpenFeatureClient) -> None:
    ready = Heard(client)
    ready.wait_for(ProviderEvent.PROVIDER_READY)
    assert seen(client.get_boolean_details("static", True)) == (False, "off", "STATIC", None)
    assert seen(client.get_boolean_details("targeted", False, GOLD)) == (True, "on", "TARGETING_MATCH", None)
    assert seen(client.get_boolean_details("targeted", True)) == (False, "off", "DEFAULT", None)
    assert client.get_string_value("text", "x") == "A"
    assert client.get_integer_value("number", 0) == 7
    assert client.get_float_value("fraction", 0.0) == 0.5
    assert client.get_object_value("object", {}) == {"a": [1, {"b": "c"}]}
    assert seen(client.get_boolean_details("disabled", True))[::2] == (True, "DISABLED")
    assert seen(client.get_boolean_details("none", True))[::2] == (True, "DEFAULT")
    assert seen(client.get_boolean_details("missing", True))[0::3] == (True, "FLAG_NOT_FOUND")
    assert seen(client.get_string_details("static", "mine"))[0::3] == ("mine", "TYPE_MISMATCH")


@pytest.mark.parametrize("resolver", RESOLVERS)
def test_flagd_provider_evaluates(flags: Path, resolver: ResolverType) -> None:
    with AgentProcess("--uri", f"file:{flags}") as agent, connected(flagd(agent, resolver)) as client:
        check_evaluations(client)


def test_flagd_provider_in_file_mode_reads_our_documents(flags: Path) -> None:
    provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(flags))
    with connected(provider) as client:
        check_evaluations(client)


def test_ofrep_provider_evaluates(flags: Path) -> None:
    with (
        AgentProcess("--uri", f"file:{flags}") as agent,
        connected(OFREPProvider(f"http://{agent.address('OFREP')}")) as client,
    ):
        assert seen(client.get_boolean_details("static", True)) == (False, "off", "STATIC", None)
        assert client.get_boolean_value("targeted", False, GOLD) is True
        assert client.get_object_value("object", {}) == {"a": [1, {"b": "c"}]}
        assert seen(client.get_boolean_details("missing", True))[0::3] == (True, "FLAG_NOT_FOUND")


@pytest.mark.parametrize("resolver", RESOLVERS)
def test_a_change_reaches_the_provider_and_its_cache_forgets(flags: Path, resolver: ResolverType) -> None:
    with AgentProcess("--uri", f"file:{flags}") as agent, connected(flagd(agent, resolver)) as client:
        heard = Heard(client)
        heard.wait_for(ProviderEvent.PROVIDER_READY)
        assert client.get_boolean_value("static", True) is False
        expected = "CACHED" if resolver is ResolverType.RPC else "STATIC"
        assert str(client.get_boolean_details("static", True).reason) == expected
        heard.forget()
        write(flags, {"flags": {**DOCUMENT["flags"], "static": {**FLAG, "defaultVariant": "on"}}})
        heard.wait_for(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, "static")
        assert client.get_boolean_value("static", False) is True


@pytest.mark.parametrize("resolver", RESOLVERS)
def test_the_provider_comes_back_when_the_agent_does(flags: Path, resolver: ResolverType) -> None:
    ports = {"port": claim_port(), "sync-port": claim_port()}
    with AgentProcess("--uri", f"file:{flags}", ports=ports) as agent, connected(flagd(agent, resolver)) as client:
        heard = Heard(client)
        heard.wait_for(ProviderEvent.PROVIDER_READY)
        heard.forget()
        assert agent.stop() == 0
        heard.wait_for(ProviderEvent.PROVIDER_STALE)
        heard.forget()
        with AgentProcess("--uri", f"file:{flags}", ports=ports):
            heard.wait_for(ProviderEvent.PROVIDER_READY)
            assert client.get_boolean_value("targeted", False, GOLD) is True


@pytest.mark.parametrize("resolver", RESOLVERS)
def test_a_selector_narrows_what_the_provider_sees(tmp_path: Path, resolver: ResolverType) -> None:
    for name in ("one", "two"):
        write(tmp_path / f"{name}.json", {"flags": {name: FLAG}, "metadata": {"flagSetId": f"set-{name}"}})
    sources = [f"--uri=file:{tmp_path / name}.json" for name in ("one", "two")]
    with AgentProcess(*sources) as agent, connected(flagd(agent, resolver, selector="flagSetId=set-two")) as client:
        Heard(client).wait_for(ProviderEvent.PROVIDER_READY)
        assert client.get_boolean_value("two", True) is False
        assert client.get_boolean_details("one", True).error_code is not None


def test_the_context_that_the_operator_adds_reaches_in_process_evaluation(tmp_path: Path) -> None:
    write(
        tmp_path / "f.json", {"flags": {"x": {**FLAG, "targeting": {"if": [{"==": [{"var": "env"}, "prod"]}, "on"]}}}}
    )
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}", "--context-value=env=prod") as agent:
        for resolver in RESOLVERS:
            with connected(flagd(agent, resolver)) as client:
                Heard(client).wait_for(ProviderEvent.PROVIDER_READY)
                assert client.get_boolean_value("x", False) is True


@pytest.mark.parametrize("resolver", RESOLVERS)
def test_the_provider_reaches_a_unix_socket_whose_name_ends_in_a_port(flags: Path, resolver: ResolverType) -> None:
    """The provider has no option for sockets. gRPC takes `unix:…` as host; the provider appends a colon and a port."""
    with TemporaryDirectory() as folder:  # a path that is short enough for a socket
        option = "--socket-path" if resolver is ResolverType.RPC else "--sync-socket-path"
        with AgentProcess(f"--uri=file:{flags}", f"{option}={folder}/agent.sock:1") as agent:
            provider = flagd(agent, resolver, host=f"unix:{folder}/agent.sock", port=1)
            with connected(provider) as client:
                check_evaluations(client)


@pytest.mark.parametrize("resolver", RESOLVERS)
def test_the_provider_trusts_the_authority_that_it_is_told_of(
    flags: Path, tmp_path: Path, resolver: ResolverType
) -> None:
    files = make_certificates(tmp_path)
    with (
        AgentProcess(f"--uri=file:{flags}", *files.arguments()) as agent,
        connected(flagd(agent, resolver, host="localhost", tls=True, cert_path=str(files.authority))) as client,
    ):
        check_evaluations(client)
