"""The command line of `wigwag operator`: as the original takes it, and errors that name what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from wigwag.cli.commands import operator
from wigwag.cli.main import _options, _rewritten, command_parser, main
from wigwag.kube.control.lease import LeaseTiming
from wigwag.operator.run import lease_timing
from wigwag.operator.settings import OperatorOptions


def parsed(*arguments: str) -> OperatorOptions:
    given = _rewritten(["operator", *arguments])
    options = _options(operator, command_parser("operator").parse_args(given[1:]))
    assert isinstance(options, OperatorOptions)
    return options


def test_the_flags_of_the_original_are_taken_with_one_dash_or_two() -> None:
    expected = OperatorOptions(
        leader_elect=True, metrics_secure=False, labels={"team": "shop"}, health_probe_bind_address=":8082"
    )
    for dash in ("-", "--"):
        flags = "leader-elect=true", "metrics-secure=false", "labels=team:shop", "health-probe-bind-address=:8082"
        assert parsed(*(dash + each for each in flags)) == expected
    assert parsed("-leader-elect", "-image-pull-secrets", "a,b").image_pull_secrets == ("a", "b")


def test_a_config_file_has_the_same_names(tmp_path: Path) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text("leader-elect: true\nlabels: {team: shop}\nimage-pull-secrets: [a, b]\nsidecar-cpu-limit: 1\n")
    options = parsed("--config", str(path))
    assert (options.labels, options.image_pull_secrets) == ({"team": "shop"}, ("a", "b"))
    assert (options.leader_elect, options.sidecar_cpu_limit) == (True, "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--leader-elct"], "operator: unknown option --leader-elct; did you mean --leader-elect?"),
        (["-leader-elct"], "operator: unknown option -leader-elct; did you mean --leader-elect?"),
        (["--sidecar-cpu-request=2"], "--sidecar-cpu-request: 2 is more than --sidecar-cpu-limit 0.5"),
        (["--sidecar-ram-limit=64X"], "--sidecar-ram-limit: '64X'"),
        (["--labels=team"], "--labels: 'team' is not of the form key:value"),
        (["--cross-namespace=maybe"], "invalid choice: 'maybe'"),
        (["--leader-elect-lease-duration=2500ms"], "--leader-elect-lease-duration: 2.5s is no whole number of seconds"),
        (["--leader-elect-lease-duration=9s"], "--leader-elect-renew-deadline: 10s is not less than"),
        (["--leader-elect-renew-deadline=2s"], "--leader-elect-retry-period: 2s is not between 0 and"),
        (["--leader-elect-retry-period=0"], "--leader-elect-retry-period: 0 is not between 0 and"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operator", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_times_of_leader_election_are_those_of_kubernetes_unless_told() -> None:
    assert lease_timing(parsed("--leader-elect")) == LeaseTiming(15, 10.0, 2.0)
    times = "-leader-elect-lease-duration=3s", "-leader-elect-renew-deadline=2s", "-leader-elect-retry-period=300ms"
    assert lease_timing(parsed(*times)) == LeaseTiming(3, 2.0, 0.3)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SIDECAR_PORT", "seven")
    assert main(["operator"]) == 2
    assert capsys.readouterr().err == "wigwag: SIDECAR_PORT: 'seven' is not a whole number\n"


def test_an_option_may_be_a_variable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OPERATOR_WATCHDOG", "often")
    assert main(["operator"]) == 2
    assert capsys.readouterr().err.startswith("wigwag: OPERATOR_WATCHDOG: ")


def test_the_help_has_groups_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "--help"]) == 0
    text = capsys.readouterr().out
    for expected in ("serving:", "injected agents:", "policy:", "(default :9443,", "(default grant,"):
        assert expected in text
