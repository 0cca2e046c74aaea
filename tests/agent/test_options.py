"""Every option of `flagd start`, by its long and short name, in the environment and in a config file."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from wigwag.agent.options import AgentOptions
from wigwag.errors import UsageError
from wigwag.options import add_options, collect, duration, plain_booleans

OPTIONS: list[tuple[str, str, Any, str, Any]] = [
    ("port", "-p", 8013, "9", 9),
    ("management-port", "-m", 8014, "9", 9),
    ("sync-port", "-g", 8015, "9", 9),
    ("ofrep-port", "-r", 8016, "9", 9),
    ("socket-path", "-d", "", "x", "x"),
    ("sync-socket-path", "-e", "", "x", "x"),
    ("server-cert-path", "-c", "", "x", "x"),
    ("server-key-path", "-k", "", "x", "x"),
    ("uri", "-f", (), "file:a", ("file:a",)),
    ("sources", "-s", "", "[]", "[]"),
    ("cors-origin", "-C", (), "https://x.example", ("https://x.example",)),
    ("context-value", "-X", {}, "a=b", {"a": "b"}),
    ("context-from-header", "-H", {}, "X-A=a", {"X-A": "a"}),
    ("log-format", "-z", "console", "json", "json"),
    ("metrics-exporter", "-t", "", "otel", "otel"),
    ("otel-collector-uri", "-o", "", "x", "x"),
    ("otel-cert-path", "-D", "", "x", "x"),
    ("otel-key-path", "-K", "", "x", "x"),
    ("otel-ca-path", "-A", "", "x", "x"),
    ("otel-reload-interval", "-I", 3600.0, "2h", 7200.0),
    ("stream-deadline", "", 0.0, "90s", 90.0),
    ("disable-sync-metadata", "", False, "true", True),
    ("max-request-body", "-B", 1_000_000, "5", 5),
    ("max-request-header", "-R", 1_000_000, "5", 5),
    ("keep-alive-min-time", "", 30.0, "5s", 5.0),
    ("keep-alive-permit-without-stream", "", True, "false", False),
    ("ofrep-sse-enabled", "", True, "false", False),
    ("ofrep-sse-inactivity-delay", "", 120, "5", 5),
    ("ofrep-sse-public-url", "", "", "x", "x"),
    ("debug", "-x", False, "true", True),
]


def read(
    *arguments: str, environment: dict[str, str] | None = None, config: dict[str, Any] | None = None
) -> AgentOptions:
    parser = argparse.ArgumentParser()
    add_options(parser, AgentOptions)
    parsed = parser.parse_args(plain_booleans(arguments, AgentOptions))
    return collect(AgentOptions, parsed, environment or {}, "FLAGD_", config or {})


@pytest.mark.parametrize(("name", "short", "default", "text", "value"), OPTIONS, ids=lambda value: str(value))
def test_an_option_is_known_everywhere(name: str, short: str, default: Any, text: str, value: Any) -> None:
    field = name.replace("-", "_")
    assert getattr(read(), field) == default
    assert getattr(read(f"--{name}={text}"), field) == value
    assert getattr(read(environment={f"FLAGD_{field.upper()}": text}), field) == value
    assert getattr(read(config={name: text}), field) == value
    if short:
        assert getattr(read(short) if isinstance(value, bool) else read(short, text), field) == value


def test_the_command_line_beats_the_environment_which_beats_the_config_file() -> None:
    everywhere: dict[str, Any] = {"environment": {"FLAGD_PORT": "2"}, "config": {"port": 3}}
    assert read("--port=1", **everywhere).port == 1
    assert read(**everywhere).port == 2
    assert read(config={"port": 3}).port == 3
    assert read(config={"PORT": 3}).port == 3


def test_an_empty_variable_is_none() -> None:
    assert read(environment={"FLAGD_PORT": "", "FLAGD_DEBUG": ""}) == read()


def test_lists_and_maps_repeat_or_are_separated_by_commas() -> None:
    assert read("-ffile:a", "--uri=file:b,file:c").uri == ("file:a", "file:b", "file:c")
    assert read(environment={"FLAGD_URI": "file:a file:b"}).uri == ("file:a", "file:b")
    assert read("-Xa=1", "-X", "b=2,c=3").context_value == {"a": "1", "b": "2", "c": "3"}
    values = '{"a": 1, "b": true, "c": null, "d": 1.0, "e": 1.5, "f": "x"}'
    expected = {"a": "1", "b": "true", "c": "", "d": "1", "e": "1.5", "f": "x"}
    assert read(environment={"FLAGD_CONTEXT_VALUE": values}).context_value == expected
    with pytest.raises(UsageError, match="must be plain"):
        read(config={"context-value": {"a": [1]}})
    assert read(config={"context-value": {"a": "b=c"}}).context_value == {"a": "b=c"}
    sources = [{"uri": "x", "provider": "file"}]
    assert read(config={"sources": sources}).sources == sources


@pytest.mark.parametrize("text", ["", "5", "s", "5x", "1h-5m", "soon"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("port", "-1"),
        ("port", "65536"),
        ("port", "x"),
        ("debug", "maybe"),
        ("log-format", "xml"),
        ("context-value", "x"),
    ],
)
def test_a_wrong_value_names_the_option_and_where_it_was_set(name: str, text: str) -> None:
    variable = f"FLAGD_{name.replace('-', '_').upper()}"
    with pytest.raises(UsageError, match=variable):
        read(environment={variable: text})
    with pytest.raises(UsageError, match=f"{name} in the config file"):
        read(config={name: text})
