"""Where a path leads, name by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from wigwag.sources.disk.listen import Lookup, chain

if TYPE_CHECKING:
    import pytest


def test_a_plain_path_is_looked_up_name_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").touch()
    found = chain(f"{tmp_path}/a/./f")
    assert found.real == f"{tmp_path}/a/f"
    assert found.lookups[0] == Lookup("/", tmp_path.parts[1])
    assert found.lookups[-2:] == (Lookup(str(tmp_path), "a"), Lookup(f"{tmp_path}/a", "f", content=True))


def test_a_chain_ends_where_a_name_is_missing(tmp_path: Path) -> None:
    assert chain(f"{tmp_path}/a/b/c").real is None
    assert chain(f"{tmp_path}/a/b/c").lookups[-1] == Lookup(str(tmp_path), "a")
    assert chain(f"{tmp_path}/a").lookups[-1] == Lookup(str(tmp_path), "a", content=True)


def test_a_mounted_key_is_looked_up_through_its_links(tmp_path: Path) -> None:
    (tmp_path / "..ts").mkdir()
    (tmp_path / "..ts" / "k").touch()
    (tmp_path / "..data").symlink_to("..ts")
    (tmp_path / "k").symlink_to("..data/k")
    here = str(tmp_path)
    assert chain(f"{here}/k").lookups[-4:] == (
        Lookup(here, "k", link=True),
        Lookup(here, "..data", link=True),
        Lookup(here, "..ts"),
        Lookup(f"{here}/..ts", "k", content=True),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["a", "b/c", "../a", "./d", "..", "/"])), max_size=6)
)
def test_it_leads_where_the_system_leads(
    tmp_path_factory: pytest.TempPathFactory, links: list[tuple[str, str]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "c").touch()
    for name, target in links:
        if not (root / name).is_symlink() and not (root / name).exists():
            (root / name).symlink_to(target)
        elif not os.path.lexists(root / "a" / name):
            (root / "a" / name).symlink_to(target)
    for path in "a/c", "b/c", "c/b", "d", "a/d/a/c", "b/../a/c", "a/a/b":
        full = f"{root}/{path}"
        if Path(full).exists():
            assert chain(full).real == os.path.realpath(full)
        elif "c/" not in path:
            assert chain(full).real is None
