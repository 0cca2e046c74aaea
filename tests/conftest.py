"""What holds for every test.

With CI=true nothing is skipped, because a skip there would hide a gap. No property has to hold within so many
milliseconds: a busy machine would make that fail. The garbage collector does not look through what was there before the
first test: thousands of tests, and all that they import.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import settings

settings.register_profile("wigwag", deadline=None)
settings.load_profile("wigwag")


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI skips nothing: {reason}"
    return report
