"""A store of blobs for the tests of the agent, one for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sources.blob_stores import AWS, Store, s3


@pytest.fixture(scope="session")
def moto() -> Iterator[Store]:
    with s3() as found:
        yield found


@pytest.fixture
def store(moto: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """S3, and in the environment what it takes to be let in: obstore looks there by itself."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    return moto
