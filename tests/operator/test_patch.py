"""Differences of objects."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.operator.known import patched
from wigwag.operator.injection.patch import covers, difference

KEYS = st.sampled_from(["a", "b/c", "d~e", "resources"])
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, "", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES)


@given(OBJECTS, OBJECTS)
def test_a_patch_makes_one_object_from_another(before: dict[str, Any], more: dict[str, Any]) -> None:
    after = {**before, **more}
    result = patched(before, difference(before, after))
    assert result == after


@given(OBJECTS, OBJECTS)
def test_an_object_covers_itself_and_less(part: dict[str, Any], more: dict[str, Any]) -> None:
    assert covers(part, part)
    assert covers({**more, **part}, part)
    assert difference(part, part) == []


def test_quantities_count_by_their_value_only_where_there_are_quantities() -> None:
    assert covers(
        {"resources": {"limits": {"memory": "1Gi", "cpu": 1}}}, {"resources": {"limits": {"memory": "1024Mi"}}}
    )
    assert not covers({"resources": {"limits": {"memory": "1G"}}}, {"resources": {"limits": {"memory": "1Gi"}}})
    assert not covers({"image": "1000"}, {"image": "1k"})
    assert not covers({"resources": {"limits": {"cpu": "some"}}}, {"resources": {"limits": {"cpu": "1"}}})


def test_lists_of_objects_may_have_more_and_lists_of_words_may_not() -> None:
    assert covers({"env": [{"name": "a"}, {"name": "b", "value": "1"}]}, {"env": [{"name": "b"}]})
    assert not covers({"env": [{"name": "a"}]}, {"env": [{"name": "b"}]})
    assert not covers({"args": ["a", "b"]}, {"args": ["a"]})
    assert not covers({"args": None}, {"args": ["a"]})
