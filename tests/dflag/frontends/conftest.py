"""What the tests of the front ends share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def root_level() -> Iterator[None]:
    """Leave the root logger as it was."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)
