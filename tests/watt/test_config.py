"""Options, hooks and outputs as people write them, and what they are told if they write something else."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from wigwag.errors import UsageError
from wigwag.sources.consul import hub
from wigwag.watt import options
from wigwag.watt.config import initial_watches, read_hooks, read_outputs
from wigwag.watt.hooks.hook import Hook, ShellCommand
from wigwag.watt.options import WattOptions, options_of
from wigwag.watt.run import WattServer, listen_address
from wigwag.watt.snapshots import formats, history
from wigwag.watt.snapshots.projection import Projection
from wigwag.wire.client.url import parse_url


def note(_: object) -> None:
    """A hook."""


class TestOptions:
    def test_keyword_arguments_are_options(self) -> None:
        options = options_of({"source": ["a", "b,c"], "interval": "1s", "consul_resolvers": False, "notify": note})
        assert options == WattOptions(source=("a", "b", "c"), interval=1.0, consul_resolvers=False, notify=(note,))

    def test_the_command_line_is_light_and_repeats_what_it_does_not_import(self) -> None:
        assert (options.FORMATS, options.SLOTS) == (formats.FORMATS, hub.SLOTS)
        assert (WattOptions().history, WattOptions().history_bytes) == (history.COUNT, history.BUDGET)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"sorce": ["a"]}, "'sorce' is not an option of watt; did you mean `source`?"),
            ({"zzz": 1}, "'zzz' is not an option of watt; see `wigwag watt --help`"),
            ({"port": 1}, "'port' is for the command only: as an object, watt has no port, log and config file"),
            ({"config": "a.yaml"}, "'config' is for the command only"),
            ({"interval": "soon"}, "--interval: "),
            ({"format": "v3"}, "--format: 'v3' is not one of watt1, v2"),
            ({"history": 0}, "--history: 0 is not at least 1"),
        ],
    )
    def test_what_is_none_is_refused(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError) as caught:
            options_of(settings)
        assert str(caught.value).startswith(message)


class TestInitialWatches:
    def test_sources_share_selectors_and_come_first(self) -> None:
        options = WattOptions(
            source=("service", "cm"), namespace="shop", fields="f=1", labels="l=2", grace=5.0,
            watches=[{"source": "directory", "path": "/a"}],
        )  # fmt: skip
        wanted = initial_watches(options, {})
        assert [(str(want.spec), want.grace) for want in wanted] == [
            ("kubernetes service|shop|f=1|l=2", 5.0), ("kubernetes cm|shop|f=1|l=2", 5.0), ("directory /a", None)
        ]  # fmt: skip

    def test_nothing_is_not_enough(self) -> None:
        with pytest.raises(UsageError, match=r"^no initial sources configured; name a kind with -s, or other sources"):
            initial_watches(WattOptions(), {})

    def test_an_error_names_the_option(self) -> None:
        with pytest.raises(UsageError, match=r"^source: 'a/b' is not the name of a kind; write it as in `kubectl get`"):
            initial_watches(WattOptions(source=("a/b",)), {})
        with pytest.raises(UsageError, match=r"^watches: \$\[0\]: unknown field `pth`; did you mean `path`\?"):
            initial_watches(WattOptions(watches='[{"source": "directory", "pth": "/a"}]'), {})


class TestHooks:
    def test_texts_records_and_functions(self) -> None:
        given = [
            "./sync.sh --all",
            {"command": "./sync.sh", "name": "sync", "timeout": "10s", "on-failure": "fatal"},
            {"url": "http://127.0.0.1:9000/sync", "timeout": 2.5, "projection": {"kinds": ["services"]}},
            {"python": "json:dumps", "on-failure": "skip"},
            note,
            partial(note),
        ]
        command, url = ShellCommand("./sync.sh"), parse_url("http://127.0.0.1:9000/sync")
        assert list(read_hooks(given, "notify", 7.0)) == [
            Hook(ShellCommand("./sync.sh --all"), "sync.sh", 7.0),
            Hook(command, "sync", 10.0, "fatal"),
            Hook(url, "http://127.0.0.1:9000/sync", 2.5, "retry", Projection(kinds=("services",))),
            Hook(json.dumps, "python:json:dumps", 7.0, "skip"),
            Hook(note, "note", 7.0),
            Hook(given[-1], "partial", 7.0),  # type: ignore[arg-type]
        ]

    @pytest.mark.parametrize(
        ("hook", "message"),
        [
            ("", "a hook is a command, a URL, or python:package.module:function; this one is empty"),
            ({}, "a hook has one of command, url and python"),
            ({"command": "a", "url": "http://b"}, "a hook has one of command, url and python"),
            ({"comand": "a"}, "unknown field `comand`; did you mean `command`?"),
            ({"command": "a", "on_failure": "skip"}, "unknown field `on_failure`; did you mean `on-failure`?"),
            ({"command": "a", "on-failure": "stop"}, "$.on-failure: Invalid enum value 'stop'"),
            ({"command": "a", "timeout": "soon"}, "timeout: "),
            ({"command": "a", "timeout": "0s"}, "the timeout of a hook is 0 s; give it more than 0"),
            ({"command": "a", "timeout": 0}, "the timeout of a hook is 0 s; give it more than 0"),
            ({"command": "a", "timeout": True}, "$.timeout: Expected"),
            ({"command": "a", "projection": {"kind": "b"}}, "projection.kind: unknown member; did you mean `kinds`?"),
            ({"command": "a", "projection": {"sections": ["b"]}}, "projection: unknown section 'b'; "),
            ({"python": "no.such:thing"}, "the hook python:no.such:thing cannot be imported: ModuleNotFoundError"),
            ({"python": "json:nothing"}, "the hook python:json:nothing cannot be imported: AttributeError"),
            ({"python": "json:__name__"}, "the hook python:json:__name__ is a str, not a function"),
            (5, "Expected `object`, got `int`"),
            (None, "Expected `object`, got `null`"),
        ],
    )
    def test_an_error_names_the_place_and_says_what_to_do(self, hook: Any, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            read_hooks(["ok", hook], "notify", 7.0)
        assert str(caught.value).startswith(f"notify[1]: {message}")


class TestOutputs:
    def test_each_file_is_a_projection(self, tmp_path: Path) -> None:
        given = {
            "directory": str(tmp_path), "format": "v2",
            "files": {"all.json": {}, "shop.json": {"kinds": "services", "namespaces": ["shop"]}},
        }  # fmt: skip
        (output,) = read_outputs([given])
        assert output == read_outputs(json.dumps([given]))[0]
        assert (output.path, dict(output.files)) == (
            str(tmp_path),
            {"all.json": (Projection(), "v2"), "shop.json": (Projection(("services",), ("shop",)), "v2")},
        )
        assert read_outputs(()) == read_outputs("") == read_outputs(None) == ()

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("[", "Input data was truncated"),
            ({"directory": "/a"}, "Expected `array`, got `object`"),
            ([{"files": {}}], "$[0]: Object missing required field `directory`"),
            ([{"directory": "/a", "files": {}}], "an output has a directory, and at least one file"),
            ([{"directory": "", "files": {"a": {}}}], "an output has a directory, and at least one file"),
            ([{"directory": "/a", "file": {"a": {}}, "files": {}}], "$[0]: unknown field `file`; did you mean"),
            ([{"directory": "/a", "files": {"a/b": {}}}], "'a/b' cannot be the name of a file; leave out slashes"),
            ([{"directory": "/a", "files": {"..data": {}}}], "'..data' cannot be the name of a file"),
            ([{"directory": "/a", "files": {"a": {"kind": "b"}}}], "a.kind: unknown member; did you mean `kinds`?"),
            ([{"directory": "/a", "files": {"a": []}}], "$[0].files[...]: Expected `object`, got `array`"),
            ([{"directory": "/a", "files": {"a": {}}, "format": "v3"}], "$[0].format: Invalid enum value 'v3'"),
            ([{"directory": "/a", "files": {"a": {}}}, {"directory": "/b/../a/", "files": {"b": {}}}],
             "2 of them are the directory /a; give each a directory of its own"),
            ("[" * 100_000, "maximum recursion depth"),
            ("\ud800", "'utf-8' codec"),
        ],
    )  # fmt: skip
    def test_an_error_names_the_place_and_says_what_to_do(self, value: Any, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            read_outputs(value)
        assert str(caught.value).startswith(f"outputs: {message}")


class TestListening:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, ("127.0.0.1", 7000)),
            ({"port": 0}, ("127.0.0.1", 0)),
            ({"listen_network": "tcp6"}, ("::1", 7000)),
            ({"listen_address": "127.0.0.1:8002"}, ("127.0.0.1", 8002)),
            ({"listen_address": "[::1]:0"}, ("::1", 0)),
            ({"listen_address": "localhost:0"}, ("localhost", 0)),
            ({"listen_address": ":8002"}, ("", 8002)),
            ({"listen_address": ":8002", "listen_network": "tcp4"}, ("0.0.0.0", 8002)),
            ({"listen_address": "127.0.0.1:8002", "port": 9}, ("127.0.0.1", 8002)),
        ],
    )
    def test_an_address_is_a_host_and_a_port(self, settings: dict[str, Any], expected: tuple[str, int]) -> None:
        assert listen_address(WattOptions(**settings)) == expected

    @pytest.mark.parametrize(
        ("address", "message"),
        [
            ("8002", "'8002' has no port; write HOST:PORT"),
            ("localhost", "'localhost' is not a whole number; write HOST:PORT"),
            ("localhost:", "'' is not a whole number; write HOST:PORT"),
            ("localhost:70000", "'70000' is not a port; write HOST:PORT"),
            ("::1", "'::1' may mean two things; write [ADDRESS]:PORT"),
            ("2001:db8::1:80", "'2001:db8::1:80' may mean two things; write [ADDRESS]:PORT"),
        ],
    )
    def test_what_is_none_is_refused(self, address: str, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            listen_address(WattOptions(listen_address=address))
        assert str(caught.value) == f"--listen-address: {message}"

    @pytest.mark.parametrize("address", [":8002", "0.0.0.0:8002", "[::]:8002", "10.0.0.1:8002", "example.com:8002"])
    def test_others_than_this_machine_need_a_token(self, address: str) -> None:
        with pytest.raises(UsageError, match=r"is not loopback; give --token-file, or listen on 127\.0\.0\.1$"):
            WattServer(WattOptions(listen_address=address))
