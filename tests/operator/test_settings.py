"""The operator's environment and options.

| group | test |
|---|---|
| U23 | `test_u23_the_environment_makes_the_defaults_of_sources` |
| U55 | `test_u55_the_proxy_has_the_defaults_of_the_original` |
| U56 | `test_u56_every_variable_of_the_proxy_counts` |
"""

from __future__ import annotations

import argparse

import pytest

from wigwag.errors import UsageError
from wigwag.operator.injection.merge import source_defaults
from wigwag.operator.settings import OperatorOptions, ProxySettings, read_settings
from wigwag.options import add_options, collect, plain_booleans
from wigwag.version import __version__


def options(*arguments: str) -> OperatorOptions:
    parser = argparse.ArgumentParser()
    add_options(parser, OperatorOptions)
    return collect(OperatorOptions, parser.parse_args(plain_booleans(arguments, OperatorOptions)))


def test_without_any_variable_the_defaults_of_the_original_hold() -> None:
    settings = read_settings({})
    assert settings.pod.namespace == "open-feature-operator-system"
    assert settings.flags.validation_enabled
    assert (settings.flagd.port, settings.flagd.ofrep_port, settings.flagd.sync_port) == (8013, 8016, 8015)
    assert settings.flagd.cluster_domain == "cluster.local"
    assert (settings.in_process.port, settings.in_process.cache, settings.in_process.tls) == (8015, "lru", False)


def test_u23_the_environment_makes_the_defaults_of_sources() -> None:
    environment = {
        "SIDECAR_MANAGEMENT_PORT": "10",
        "SIDECAR_PORT": "20",
        "SIDECAR_SOCKET_PATH": "/run/s/socket",
        "SIDECAR_EVALUATOR": "evaluator",
        "SIDECAR_PROVIDER_ARGS": "a=b,c=d",
        "SIDECAR_SYNC_PROVIDER": "file",
        "SIDECAR_ENV_VAR_PREFIX": "PRE",
        "SIDECAR_LOG_FORMAT": "console",
        "SIDECAR_PROBES_ENABLED": "false",
    }
    spec = source_defaults(read_settings(environment).sidecar)
    assert (spec.management_port, spec.port, spec.ofrep_port) == (10, 20, 0)
    assert (spec.socket_path, spec.evaluator, spec.log_format) == ("/run/s/socket", "evaluator", "console")
    assert (spec.sync_provider_args, spec.default_sync_provider) == (["a=b", "c=d"], "file")
    assert (spec.env_var_prefix, spec.probes_enabled, spec.debug_logging) == ("PRE", False, False)
    assert (spec.rollout_on_change, spec.sources, spec.env_vars) == (None, [], [])


def test_u55_the_proxy_has_the_defaults_of_the_original() -> None:
    assert read_settings({}).proxy == ProxySettings(
        tag=__version__, replica_count=1, port=8015, management_port=8016, debug_logging=False
    )


def test_u56_every_variable_of_the_proxy_counts() -> None:
    environment = {
        "FLAGD_PROXY_IMAGE": "img",
        "FLAGD_PROXY_TAG": "tag",
        "FLAGD_PROXY_REPLICA_COUNT": "3",
        "FLAGD_PROXY_PORT": "1",
        "FLAGD_PROXY_METRICS_PORT": "2",
        "FLAGD_PROXY_DEBUG_LOGGING": "true",
    }
    wanted = ProxySettings(image="img", tag="tag", replica_count=3, port=1, management_port=2, debug_logging=True)
    assert read_settings(environment).proxy == wanted
    assert read_settings({**environment, "FLAGD_PROXY_MANAGEMENT_PORT": "4"}).proxy.management_port == 4


def test_a_service_beside_the_operator_does_not_set_its_ports() -> None:
    assert read_settings({"FLAGD_PORT": "tcp://10.0.0.1:80"}).flagd.port == 8013


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SIDECAR_PORT": "many"}, "SIDECAR_PORT: 'many' is not a whole number"),
        ({"SIDECAR_SYNC_PROVIDER": "ftp"}, "SIDECAR_SYNC_PROVIDER: 'ftp' is not one of"),
        ({"IN_PROCESS_CACHE": "big"}, "IN_PROCESS_CACHE: 'big' is not one of lru, disabled"),
        ({"FLAGS_VALIDATION_ENABLED": "maybe"}, "FLAGS_VALIDATION_ENABLED: 'maybe' is neither true nor false"),
    ],
)
def test_a_wrong_variable_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_settings(environment)


def test_the_options_of_the_original_are_understood() -> None:
    given = options(
        *("--metrics-bind-address=:8443", "--leader-elect", "--verbose=false", "--image-pull-secrets=a, b"),
        *("--sidecar-cpu-limit=500m", "--sidecar-cpu-request=200m", "--labels=team:a,b:c", "--annotations=x/y:z"),
    )
    assert (given.metrics_bind_address, given.leader_elect, given.verbose) == (":8443", True, False)
    assert given.image_pull_secrets == ("a", "b")
    assert (given.labels, given.annotations) == ({"team": "a", "b": "c"}, {"x/y": "z"})
    assert given.sidecar_resources.limits == {"cpu": "500m", "memory": "64M"}


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--sidecar-ram-request=1G", "--sidecar-ram-request: 1G is more than --sidecar-ram-limit 64M"),
        ("--sidecar-cpu-limit=much", "--sidecar-cpu-limit: 'much' is not a quantity"),
        ("--labels=team", "--labels: 'team' is not of the form key:value"),
        ("--cross-namespace=often", "is not one of grant, allow, deny"),
    ],
)
def test_a_wrong_option_is_named(argument: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        options(argument)
    except UsageError as error:
        assert message in str(error)
    except SystemExit:
        assert "invalid choice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--sidecar-upgrade-budget", "0", "at least 1"),
        ("--sidecar-upgrade-budget", "101%", "at most 100%"),
        ("--sidecar-upgrade-budget", "many", "not a whole number"),
        ("--watchdog", "0s", "off, once, or a longer duration"),
        ("--watchdog", "often", "duration"),
        ("--revision", "Not_A_Label", "lower-case letters"),
    ],
)
def test_settings_of_upgrades_are_checked(option: str, value: str, reason: str) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, OperatorOptions)
    with pytest.raises(UsageError, match=f"{option}.*{reason}"):
        collect(OperatorOptions, parser.parse_args([f"{option}={value}"]))
