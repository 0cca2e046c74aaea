"""Lists that are not the same are told apart: by their texts, on the page, and in digests."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from tests.dflag.page.asking import OPEN, ask, put
from wigwag import dflag
from wigwag.dflag.page.site import Site

WAYS: list[dict[str, Any]] = [{}, {"quoted": True}, {"keep_empty": True}, {"keep_empty": True, "quoted": True}]
VALUES = [[], ["a"], ["a", "b"], ["a,b"], ["b", "a"], [""], ["", ""], ['["a"]'], ['"a,b"'], ["a\nb"]]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_two_lists_have_two_tags_and_each_is_a_change_from_the_other(way: dict[str, Any]) -> None:
    plain = way == {"keep_empty": True}
    for first, second in combinations([each for each in VALUES if not plain or "," not in "".join(each)], 2):
        flags = dflag.FlagSet("test")
        flag = flags.list("x", first, item=str, **way)
        site = Site(flags, access=OPEN)
        before = ask(site, "GET", "/flags/x").json
        flag.set_value(second)
        after = ask(site, "GET", "/flags/x").json
        assert (before["is_changed"], after["is_changed"]) == (False, True), (first, second)
        assert before["etag"] != after["etag"], (first, second)
        assert put(site, "x", "z", If_Match=f'"{before["etag"]}"').status == 412


@pytest.mark.parametrize("kind", ["list", "set"])
def test_an_item_that_could_not_be_told_from_two_is_refused(kind: str) -> None:
    flags = dflag.FlagSet("test")
    define: Any = getattr(flags, kind)
    flag = define("x", ["a"], item=str, keep_empty=True)
    told = "an item with a comma in it would be read as two: define the flag with quoted=True"
    with pytest.raises(dflag.FlagError, match=told):
        flag.set_value(["a", "b,c"])
    with pytest.raises(dflag.FlagError, match=told):
        flag.compose(["a", "b,c"])
    with pytest.raises(dflag.UsageError, match=told):
        define("y", ["b,c"], item=str, keep_empty=True)
    assert list(flag.get()) == ["a"]
