"""Annotations and names.

| group | test |
|---|---|
| U04 | `test_u04_a_flag_has_an_id_and_a_file_name` |
| U17 | `test_u17_a_name_may_have_a_namespace` |
| U20 | `test_u20_only_true_enables` |
| U21 | `test_u21_a_list_has_spaces_and_commas_too_many` |
| U24 | `test_u24_a_sidecar_goes_before_in_process` |
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.operator.names import (
    ALLOW_FROM,
    ENABLED,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    ObjectName,
    config_map_name,
    is_granted,
    mode_of,
    parse_name,
    parse_names,
    unique_volume_name,
    volume_name,
)

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,100}[a-z0-9])?", fullmatch=True)


def test_u04_a_flag_has_an_id_and_a_file_name() -> None:
    flag = ObjectName("team-a", "flags")
    assert (flag.directory, flag.file) == ("/etc/flagd/team-a_flags", "team-a_flags.flagd.json")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("flags", ("team-a", "flags")),
        ("ops/flags", ("ops", "flags")),
        ("a/b/c", ("team-a", "a/b/c")),
        ("", ("team-a", "")),
    ],
)
def test_u17_a_name_may_have_a_namespace(text: str, name: tuple[str, str]) -> None:
    assert parse_name(text, "team-a") == name


@pytest.mark.parametrize("value", ["false", "True", "TRUE", "1", "", " true"])
def test_u20_only_true_enables(value: str) -> None:
    assert mode_of({ENABLED: value, FEATURE_FLAG_SOURCE: "a"}) == "disabled"
    assert mode_of({ENABLED: "true", FEATURE_FLAG_SOURCE: "a"}) == "sidecar"


@pytest.mark.parametrize(
    ("value", "names"), [("", []), ("a , b/c, ", ["team-a/a", "b/c"]), ("a,b", ["team-a/a", "team-a/b"]), (" , ,", [])]
)
def test_u21_a_list_has_spaces_and_commas_too_many(value: str, names: list[str]) -> None:
    assert list(map(str, parse_names(value, "team-a"))) == names


def test_u24_a_sidecar_goes_before_in_process() -> None:
    both = {ENABLED: "true", FEATURE_FLAG_SOURCE: "", IN_PROCESS_CONFIGURATION: "b"}
    assert mode_of(both) == "sidecar"
    assert mode_of({ENABLED: "true", IN_PROCESS_CONFIGURATION: ""}) == "in-process"
    assert mode_of({ENABLED: "true"}) == "unnamed"
    assert mode_of({FEATURE_FLAG_SOURCE: "a"}) == "disabled"


def test_a_grant_names_namespaces() -> None:
    assert is_granted({ALLOW_FROM: " a , b"}, "a")
    assert not is_granted({ALLOW_FROM: "a,b"}, "")
    assert not is_granted({ALLOW_FROM: "ab"}, "a")


@given(NAMES, NAMES)
def test_generated_names_are_valid_whatever_a_flag_is_called(name: str, other: str) -> None:
    for namespace in ("team-a", "team-b"):
        flag = ObjectName(namespace, name)
        for volume in (volume_name(flag, "team-a"), unique_volume_name(flag)):
            assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", volume)
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", config_map_name(flag, "team-a"))


@given(NAMES, NAMES)
def test_flags_of_two_namespaces_get_two_volumes_and_config_maps(name: str, namespace: str) -> None:
    mine, theirs = ObjectName("team-a", name), ObjectName(f"x{namespace}", name)
    assert volume_name(mine, "team-a") != volume_name(theirs, "team-a")
    assert config_map_name(mine, "team-a") != config_map_name(theirs, "team-a")
