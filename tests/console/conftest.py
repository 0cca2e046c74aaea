"""A browser for all tests of a worker, and agents to look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.browser import Browser, browser, chromium


@pytest.fixture(scope="session")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("Chromium is not here: scripts/tools installs it where it may (apt-get install chromium)")
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running
