"""Variables of agents and workloads.

| group | test |
|---|---|
| U02, U03 | `test_u02_u03_a_name_gets_the_prefix_if_there_is_one` |
| U11 | `test_u11_an_agents_variables_have_an_order`, `test_u11_variables_come_from_anywhere` |
| U13 | `test_u13_in_process_variables_have_an_order` |
"""

from __future__ import annotations

from typing import Any

import pytest

from wigwag.operator.injection.environment import (
    agent_variables,
    in_process_variables,
    is_credential,
    prefixed,
    workload_variables,
)
from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec
from wigwag.operator.resources.inprocessconfiguration import InProcessSpec
from wigwag.operator.resources.kubernetes import EnvVar

REFERENCES = [
    {"configMapKeyRef": {"name": "a", "key": "b"}},
    {"fieldRef": {"fieldPath": "metadata.name"}},
    {"resourceFieldRef": {"resource": "limits.cpu"}},
    {"secretKeyRef": {"name": "a", "key": "b"}},
]


def spec(**members: Any) -> FeatureFlagSourceSpec:
    standard = {
        "management_port": 8014,
        "port": 8013,
        "evaluator": "json",
        "log_format": "json",
        "env_var_prefix": "PRE",
    }
    return FeatureFlagSourceSpec(**{"sources": [], **standard, **members})


def pairs(variables: list[EnvVar]) -> list[tuple[str, str]]:
    return [(each.name, each.value) for each in variables]


@pytest.mark.parametrize(("prefix", "name"), [("pre", "pre_suf"), (" ", "suf"), ("", "suf")])
def test_u02_u03_a_name_gets_the_prefix_if_there_is_one(prefix: str, name: str) -> None:
    assert prefixed(prefix, "suf") == name


def test_u11_an_agents_variables_have_an_order() -> None:
    own = [
        EnvVar("b", "1"),
        EnvVar("a", "2"),
        EnvVar("AWS_ID", "3"),
        EnvVar("GOOGLE_X", "4"),
        EnvVar("AZURE_STORAGE_Y", "5"),
    ]
    assert pairs(agent_variables(spec(env_vars=own, socket_path="/run/s"))) == [
        ("PRE_b", "1"),
        ("PRE_a", "2"),
        ("AWS_ID", "3"),
        ("GOOGLE_X", "4"),
        ("AZURE_STORAGE_Y", "5"),
        ("PRE_MANAGEMENT_PORT", "8014"),
        ("PRE_PORT", "8013"),
        ("PRE_EVALUATOR", "json"),
        ("PRE_LOG_FORMAT", "json"),
        ("PRE_RESOLVER", "rpc"),
        ("PRE_SOCKET_PATH", "/run/s"),
    ]


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda reference: next(iter(reference)))
def test_u11_variables_come_from_anywhere(reference: dict[str, Any]) -> None:
    assert agent_variables(spec(env_vars=[EnvVar("a", value_from=reference)]))[0] == EnvVar(
        "PRE_a", value_from=reference
    )
    assert agent_variables(spec(env_vars=[EnvVar("a", "1", reference)]))[0] == EnvVar("PRE_a", "1")


def test_ours_goes_before_a_users_variable_of_the_same_name() -> None:
    names = [each.name for each in agent_variables(spec(env_vars=[EnvVar("PORT", "1")]))]
    assert names.count("PRE_PORT") == 1
    assert ("PRE_PORT", "8013") in pairs(agent_variables(spec(env_vars=[EnvVar("PORT", "1")])))


def test_u13_in_process_variables_have_an_order() -> None:
    given = InProcessSpec(
        host="flags",
        tls=True,
        cache_max_size=11,
        env_var_prefix="PRE",
        env_vars=[EnvVar("name2", "v2"), EnvVar("name1", "v1")],
        socket_path="/s",
        offline_flag_source_path="/f",
        selector="x",
    )
    assert pairs(in_process_variables(given)) == [
        ("PRE_name2", "v2"),
        ("PRE_name1", "v1"),
        ("PRE_HOST", "flags"),
        ("PRE_PORT", "8015"),
        ("PRE_TLS", "true"),
        ("PRE_CACHE", "lru"),
        ("PRE_MAX_CACHE_SIZE", "11"),
        ("PRE_RESOLVER", "in-process"),
        ("PRE_SOCKET_PATH", "/s"),
        ("PRE_OFFLINE_FLAG_SOURCE_PATH", "/f"),
        ("PRE_SOURCE_SELECTOR", "x"),
    ]
    assert len(in_process_variables(InProcessSpec())) == 6


@pytest.mark.parametrize(
    ("variable", "secret"),
    [
        (EnvVar("AWS_REGION", "eu"), True),
        (EnvVar("AZURE_STORAGE_ACCOUNT", "a"), True),
        (EnvVar("FLAGD_GITHUB_TOKEN", "a"), True),
        (EnvVar("FLAGD_DB_PASSWORD", "a"), True),
        (EnvVar("FLAGD_X", value_from=REFERENCES[3]), True),
        (EnvVar("FLAGD_X", value_from=REFERENCES[0]), False),
        (EnvVar("FLAGD_PORT", "8013"), False),
        (EnvVar("FLAGD_KEYBOARD", "a"), False),
    ],
)
def test_a_credential_is_known_by_its_name_or_by_where_it_comes_from(variable: EnvVar, secret: bool) -> None:
    assert is_credential(variable) is secret
    assert workload_variables([variable], share_credentials=False) == ([] if secret else [variable])
    assert workload_variables([variable], share_credentials=True) == [variable]
