"""Managed fields: whose items of a list are, and how they become ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.kube.control.ownership import claim, lists_with_duplicates
from wigwag.kube.errors import ApiError, ApiStatus, Cause, Details

PORTS = ("spec", "ports")
Fields = dict[str, Any]


def port(number: int) -> Fields:
    return {f'k:{{"port":{number}}}': {".": {}, "f:name": {}, "f:port": {}}}


def spec(**members: Fields) -> Fields:
    return {"f:spec": {f"f:{name}": fields for name, fields in members.items()}}


def entry(manager: str, fields: Fields, operation: str = "Update", **more: Any) -> Fields:
    return {"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields, **more}


def test_items_of_others_become_ours_and_the_rest_stays_theirs() -> None:
    ours = entry("wigwag", spec(ports=port(80), selector={}), "Apply")
    theirs = entry("kubectl-edit", spec(ports=port(81), type={}))
    assert claim([theirs, ours], [PORTS], "wigwag", "v1") == [
        entry("kubectl-edit", spec(type={})),
        {"fieldsType": "FieldsV1", **entry("wigwag", spec(ports={**port(80), **port(81)}, selector={}), "Apply")},
    ]


def test_who_owns_nothing_else_is_gone() -> None:
    entries = claim([entry("kubectl-edit", spec(ports=port(81)))], [PORTS], "wigwag", "v1")
    assert entries is not None
    assert [(each["manager"], each["operation"]) for each in entries] == [("wigwag", "Apply")]


@pytest.mark.parametrize(
    "theirs",
    [
        entry("kubectl-edit", spec(type={})),
        entry("kubectl-edit", spec(ports=port(81)), apiVersion="v2"),
        entry("kube-controller-manager", spec(ports=port(81)), subresource="status"),
        entry("wigwag", spec(ports=port(81)), "Apply"),
    ],
)
def test_there_is_nothing_to_claim(theirs: Fields) -> None:
    assert claim([theirs], [PORTS], "wigwag", "v1") is None


def test_a_list_in_an_item_of_a_list_is_claimed_without_the_item() -> None:
    theirs = spec(containers={'k:{"name":"a"}': {"f:ports": port(81), "f:image": {}}})
    entries = claim([entry("x", theirs)], [("spec", "containers", "ports")], "wigwag", "v1")
    assert entries is not None
    assert [each["fieldsV1"] for each in entries] == [
        spec(containers={'k:{"name":"a"}': {"f:image": {}}}),
        spec(containers={'k:{"name":"a"}': {"f:ports": port(81)}}),
    ]


def test_the_error_names_the_lists() -> None:
    causes = (
        Cause("FieldValueDuplicate", "", "spec.ports[1].name"),
        Cause("FieldValueDuplicate", "", "spec.template.spec.containers[0].ports[2].name"),
        Cause("FieldValueDuplicate", "", "metadata"),
        Cause("FieldValueInvalid", "", "spec.clusterIPs[0]"),
    )
    error = ApiError("PATCH /x", ApiStatus(422, "Invalid", "", Details(causes=causes)))
    assert lists_with_duplicates(error) == [PORTS, ("spec", "template", "spec", "containers", "ports")]


NAMES = st.sampled_from(["f:spec", "f:ports", 'k:{"port":1}', 'k:{"port":2}', "f:name"])
TREES: st.SearchStrategy[Fields] = st.recursive(
    st.just({}), lambda below: st.dictionaries(NAMES, below, max_size=4), max_leaves=12
)


def paths(fields: Fields, *above: str) -> set[tuple[str, ...]]:
    return {path for key, below in fields.items() for path in paths(below, *above, key) or {(*above, key)}}


@given(TREES, TREES)
def test_no_field_is_lost_and_none_appears(ours: Fields, theirs: Fields) -> None:
    entries = claim([entry("wigwag", ours, "Apply"), entry("x", theirs)], [PORTS], "wigwag", "v1")
    if entries is None:
        return
    owned = {each["manager"]: paths(each["fieldsV1"]) for each in entries}
    assert paths(ours) | paths(theirs) >= owned["wigwag"] | owned.get("x", set())
    leaves = {path for path in paths(theirs) if path[-1] not in ("f:spec", "f:ports")}
    assert leaves <= {path[: len(leaf)] for leaf in leaves for path in owned["wigwag"] | owned.get("x", set())}, (
        "a leaf may have become a branch"
    )
    assert not owned["wigwag"] & owned.get("x", set()) - paths(ours)
