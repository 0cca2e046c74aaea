"""The command line of flagd-proxy means the same here."""

from __future__ import annotations

import pytest

from wigwag.cli.main import command_parser
from wigwag.options import collect, duration_or_seconds, plain_booleans
from wigwag.proxy.options import ProxyOptions


def told(*arguments: str) -> ProxyOptions:
    given = plain_booleans(arguments, ProxyOptions)
    return collect(ProxyOptions, command_parser("proxy").parse_args(given), {"PORT": "1", "FLAGD_PORT": "2"})


def test_without_options_the_ports_are_those_of_flagd_proxy_and_no_environment_changes_them() -> None:
    options = told("start")
    assert (options.port, options.management) == (8015, 8016)
    assert (options.auth, options.allow, options.file_root, options.server_cert_path) == ("none", (), "", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-p", "1", "-m", "2", "-z", "json", "-x"), (1, 2, "json", True)),
        (("--port=1", "--management-port=2", "--log-format=json", "--debug"), (1, 2, "json", True)),
        (("--management-port", "9", "--debug"), (8015, 9, "console", True)),  # what the original's operator writes
        (("--metrics-port=7",), (8015, 7, "console", False)),
    ],
)
def test_its_options_have_the_same_names(arguments: tuple[str, ...], expected: tuple[object, ...]) -> None:
    options = told("start", *arguments)
    assert (options.port, options.management, options.log_format, options.debug) == expected


def test_pings_are_limited_as_its_newer_builds_are_told() -> None:
    options = told("start", "--keep-alive-min-time=1m30s", "--keep-alive-permit-without-stream=false")
    assert (options.keep_alive_min_time, options.keep_alive_permit_without_stream) == (90.0, False)


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "soon"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number of seconds|duration"):
        duration_or_seconds(text)
