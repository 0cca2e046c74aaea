"""How the descriptors of a process are divided among its ports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.serve.face.capacity import divide, needed
from wigwag.wire.limits import WireLimits


@given(st.integers(128, 1 << 20), st.integers(1, 4), st.integers(1, 50_000), st.integers(1, 6000))
def test_ports_and_reserve_never_take_more_than_there_is(
    files: int, ports: int, connections: int, reserve: int
) -> None:
    found = divide(files, ports, connections, reserve)
    assert found.reserve + found.management + ports * found.port <= files
    assert min(found.reserve, found.management, found.port, found.per_address) > 0
    assert found.per_address <= found.port or found.port == 1


@given(st.integers(1, 4), st.integers(1, 50_000), st.integers(1, 6000))
def test_with_enough_descriptors_everybody_has_what_was_asked_for(ports: int, connections: int, reserve: int) -> None:
    found = divide(4 * needed(ports, connections, reserve), ports, connections, reserve)
    assert (found.port, found.reserve, found.shortage) == (max(connections, 8), reserve, "")


def test_one_address_has_half_of_a_port_unless_told_otherwise() -> None:
    limits = WireLimits()
    assert divide(100_000, 3, 10_000, 512).limits(limits).connections_per_address == 5000
    asked = divide(100_000, 3, 10_000, 512, per_address=50)
    assert asked.limits(limits).connections_per_address == 50
    assert asked.limits(limits, management=True).connections == 1000


def test_too_few_descriptors_are_told_with_what_to_do() -> None:
    assert "raise the hard limit" in divide(1024, 3, 10_000, 512).shortage


@pytest.mark.parametrize("files", [16, 32])
def test_even_with_hardly_any_descriptors_each_port_takes_some(files: int) -> None:
    assert divide(files, 3, 10_000, 512).port == 8
