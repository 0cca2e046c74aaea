"""The effective configuration of a pod.

| group | test |
|---|---|
| U05 | `test_u05_of_variables_with_one_name_the_last_counts` |
| U06 | `test_u06_arguments_keep_their_first_place` |
| U09 | `test_u09_merging_nothing_changes_nothing` |
| U10 | `test_u10_every_member_has_its_rule` |
| U12 | `test_u12_a_default_does_not_override_in_process` |
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from wigwag.operator.injection.merge import (
    effective_in_process,
    effective_source,
    merge_in_process,
    merge_sources,
    merge_variables,
    source_defaults,
)
from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec, SourceEntry
from wigwag.operator.resources.inprocessconfiguration import InProcessSpec
from wigwag.operator.resources.kubernetes import EnvVar, ResourceRequirements
from wigwag.operator.settings import InProcessSettings, SidecarSettings

SECRET = {"secretKeyRef": {"name": "a", "key": "b"}}


def spec(**members: Any) -> FeatureFlagSourceSpec:
    return FeatureFlagSourceSpec(**{"sources": [], **members})


def test_u05_of_variables_with_one_name_the_last_counts() -> None:
    first, second = EnvVar("a", "1"), EnvVar("b", "2")
    assert merge_variables([first, second], [EnvVar("a", "3")]) == [EnvVar("a", "3"), second]
    assert merge_variables([first], [EnvVar("a", value_from=SECRET)]) == [EnvVar("a", value_from=SECRET)]
    assert merge_variables([first, second], []) == [first, second]


def test_u06_arguments_keep_their_first_place() -> None:
    merged = merge_sources(spec(sync_provider_args=["a", "b"]), spec(sync_provider_args=["c", "a"]))
    assert merged.sync_provider_args == ["a", "b", "c"]


def test_u09_merging_nothing_changes_nothing() -> None:
    base = source_defaults(SidecarSettings())
    assert merge_sources(base, None) == base
    assert merge_sources(base, spec()) == base
    assert merge_in_process(InProcessSpec(port=1), None) == InProcessSpec(port=1)


def test_u10_every_member_has_its_rule() -> None:
    first = spec(
        sources=[SourceEntry(source="a")],
        management_port=1,
        port=2,
        ofrep_port=3,
        socket_path="a",
        evaluator="a",
        env_vars=[EnvVar("a", "1"), EnvVar("b", "2")],
        env_var_prefix="A",
        default_sync_provider="file",
        log_format="a",
        rollout_on_change=True,
        probes_enabled=True,
        debug_logging=True,
        otel_collector_uri="a",
        resources=ResourceRequirements({"cpu": "1"}, {"cpu": "2", "memory": "3"}),
        context_values={"a": "1", "b": "2"},
        header_to_context_mappings={"A": "a"},
        cors=["a", "b"],
    )
    second = spec(
        sources=[SourceEntry(source="b")],
        management_port=10,
        port=0,
        ofrep_port=30,
        socket_path="",
        evaluator="b",
        env_vars=[EnvVar("b", "20"), EnvVar("c", "3")],
        env_var_prefix="",
        default_sync_provider="kubernetes",
        log_format="b",
        probes_enabled=False,
        debug_logging=False,
        otel_collector_uri="b",
        resources=ResourceRequirements({"memory": "1"}, {"cpu": "4"}),
        context_values={"b": "20", "c": "30"},
        header_to_context_mappings={"B": "b"},
        cors=["c"],
    )
    assert merge_sources(first, second) == spec(
        sources=[SourceEntry(source="a"), SourceEntry(source="b")],
        management_port=10,
        port=2,
        ofrep_port=30,
        socket_path="a",
        evaluator="b",
        env_vars=[EnvVar("c", "3"), EnvVar("b", "20"), EnvVar("a", "1")],
        env_var_prefix="A",
        default_sync_provider="kubernetes",
        log_format="b",
        rollout_on_change=True,
        probes_enabled=False,
        debug_logging=False,
        otel_collector_uri="b",
        resources=ResourceRequirements({"cpu": "1", "memory": "1"}, {"cpu": "4", "memory": "3"}),
        context_values={"a": "1", "b": "20", "c": "30"},
        header_to_context_mappings={"A": "a", "B": "b"},
        cors=["c"],
    )
    assert merge_sources(first, spec()).cors == ["a", "b"]


def test_u12_a_default_does_not_override_in_process() -> None:
    base = InProcessSpec(
        port=1, host="a", tls=True, cache="disabled", cache_max_size=2, env_var_prefix="A", selector="s"
    )
    assert merge_in_process(base, InProcessSpec()) == base
    assert merge_in_process(base, InProcessSpec(cache_max_size=0)).cache_max_size == 0
    other = InProcessSpec(port=9, host="b", env_vars=[EnvVar("x", "1")], offline_flag_source_path="/f")
    merged = merge_in_process(base, other)
    assert (merged.port, merged.host, merged.tls, merged.selector) == (9, "b", True, "s")
    assert (merged.env_vars, merged.offline_flag_source_path) == ([EnvVar("x", "1")], "/f")


def test_the_operators_own_in_process_settings_survive_objects_of_defaults() -> None:
    settings = InProcessSettings(port=9, host="flags", cache_max_size=5)
    assert effective_in_process(settings, [InProcessSpec(), InProcessSpec(tls=True)]) == InProcessSpec(
        port=9, host="flags", cache_max_size=5, tls=True
    )


TEXT = st.sampled_from(["", "a", "b"])
VARIABLES = st.lists(st.builds(EnvVar, st.sampled_from("abc"), TEXT), max_size=3)
SPECS = st.builds(
    FeatureFlagSourceSpec,
    sources=st.lists(st.builds(SourceEntry, source=TEXT), max_size=2),
    port=st.integers(0, 2),
    socket_path=TEXT,
    probes_enabled=st.none() | st.booleans(),
    env_vars=VARIABLES,
    sync_provider_args=st.lists(TEXT, max_size=2),
    resources=st.builds(ResourceRequirements, st.dictionaries(st.sampled_from("cm"), TEXT)),
    context_values=st.dictionaries(TEXT, TEXT),
    cors=st.lists(TEXT, max_size=2),
)


@given(SPECS, SPECS, SPECS)
def test_merging_is_associative_but_for_the_order_of_variables(
    a: FeatureFlagSourceSpec, b: FeatureFlagSourceSpec, c: FeatureFlagSourceSpec
) -> None:
    left, right = merge_sources(merge_sources(a, b), c), merge_sources(a, merge_sources(b, c))
    for field in fields(FeatureFlagSourceSpec):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if field.name == "env_vars":
            one, other = sorted(one, key=str), sorted(other, key=str)
            if not all((a.env_vars, b.env_vars, c.env_vars)):
                continue  # one with a name twice is not de-duplicated unless something is merged into it
            assert {each.name: each.value for each in one} == {each.name: each.value for each in other}
        elif field.name == "sync_provider_args":
            assert list(dict.fromkeys(one)) == list(dict.fromkeys(other))
        else:
            assert one == other


@given(st.lists(SPECS, max_size=4))
def test_the_last_object_that_sets_a_member_wins(specs: list[FeatureFlagSourceSpec]) -> None:
    effective = effective_source(SidecarSettings(port=99), specs)
    assert effective.port == next((each.port for each in reversed(specs) if each.port), 99)
    assert effective.sources == [each for one in specs for each in one.sources]
