"""The command line of `wigwag operator`: as the original takes it, and errors that name what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from wigwag.cli.commands import operator
from wigwag.cli.main import _options, _rewritten, command_parser, main
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
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operator", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SIDECAR_PORT", "seven")
    assert main(["operator"]) == 2
    assert capsys.readouterr().err == "wigwag: SIDECAR_PORT: 'seven' is not a whole number\n"


def test_the_help_has_groups_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "--help"]) == 0
    text = capsys.readouterr().out
    for expected in ("serving:", "injected agents:", "policy:", "(default :9443)", "(default grant)"):
        assert expected in text
