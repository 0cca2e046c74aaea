"""What `--uri` and `--sources` mean: a list of sources, lowest priority first.

A source's name, by which `source=` selects it, is its URI as configured, without the scheme that only says how to read
it (`file:`, `grpc://`, `core.openfeature.dev/`), exactly as in flagd.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from wigwag.errors import UsageError

DEMO = "demo"
FILE_PROVIDERS = ("file", "fsnotify", "fileinfo")
LATER = ("kubernetes", "http", "grpc", "gcs", "azblob", "s3")
_PREFIXES = (
    ("file:", "file"),
    ("core.openfeature.dev/", "kubernetes"),
    ("http://", "http"),
    ("https://", "http"),
    ("grpc://", "grpc"),
    ("grpcs://", "grpc"),
    ("gs://", "gcs"),
    ("azblob://", "azblob"),
    ("s3://", "s3"),
)


class Source(Struct, frozen=True):
    """Where flags come from. `name` is also what tells two sources apart."""

    name: str
    provider: str
    position: int = 0
    """Its priority: a later source wins. Also keeps two sources of the same name apart."""


class SourceConfig(Struct, forbid_unknown_fields=False):
    """One element of `--sources`."""

    uri: str
    provider: str


def parse_sources(uris: tuple[str, ...], configured: Any) -> tuple[Source, ...]:
    """Return all sources; without any, the embedded demo flags."""
    found = [_from_uri(uri) for uri in uris] + [_from_config(config) for config in _configs(configured)]
    for name, provider in found:
        if provider in LATER:
            raise UsageError(f"source {name!r}: the provider {provider!r} is not available yet; use a file")
    named = found or [(DEMO, DEMO)]
    return tuple(Source(name, provider, position) for position, (name, provider) in enumerate(named))


def _from_uri(uri: str) -> tuple[str, str]:
    for prefix, provider in _PREFIXES:
        if uri.startswith(prefix):
            keep = provider in ("http", "gcs", "azblob", "s3")
            name = uri if keep else uri.removeprefix(prefix)
            if not name:
                raise UsageError(f"--uri: {uri!r} names nothing; write {prefix}NAME")
            return name, provider
    raise UsageError(f"--uri: cannot tell what {uri!r} is; write file:PATH for a file")


def _configs(configured: Any) -> list[SourceConfig]:
    if not configured:
        return []
    try:
        if isinstance(configured, str | bytes):
            return msgspec.json.decode(configured, type=list[SourceConfig])
        return msgspec.convert(configured, type=list[SourceConfig])
    except msgspec.MsgspecError as error:
        raise UsageError(f'--sources: {error}; write [{{"uri": "flags.json", "provider": "file"}}]') from error


def _from_config(config: SourceConfig) -> tuple[str, str]:
    if config.provider in FILE_PROVIDERS:
        return config.uri.removeprefix("file:"), "file"
    if config.provider in LATER:
        return config.uri, config.provider
    known = ", ".join((*FILE_PROVIDERS, *LATER))
    raise UsageError(f"--sources: unknown provider {config.provider!r} of {config.uri!r}; known are {known}")
