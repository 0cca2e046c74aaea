"""Keys of Consul: one key, or all keys below a prefix; as flags (`watch_consul`) or as they are (`watch_values`).

As flags, each key holds a document. A missing key is not an empty document: it is reported as `Unavailable`, its last
flags stay in force, and the watch goes on, so the key may appear at any time. The same holds for a prefix without keys.
Of a prefix with keys, all keys together are the document: a deleted key takes its flags with it, because the others
show that the response is complete.

As values, no key is an answer, too: an empty mapping. A token that may not read them is still an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct, field

from wigwag.errors import UsageError
from wigwag.flags.document import format_of
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.sources.consul.access import ConsulAccess, ConsulRefusedError
from wigwag.sources.consul.query import ConsulDeps, FollowedQuery, QueryTiming, follow
from wigwag.sources.document import AnyDocument, Document, ReadResult
from wigwag.sources.merge import Merger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.sources.consul.query import BlockingQuery
    from wigwag.wire.client.client import ClientResponse

V = TypeVar("V")
MOST_KEYS = 10_000
_OVERHEAD = 1024
"""Bytes that a key takes in a response beside its value."""


@dataclass(frozen=True, slots=True)
class ConsulWatch:
    """A key; if it ends in a slash, all keys below it."""

    access: ConsulAccess
    key: str
    most: int = 64 << 20
    """The largest size of all values together that is read, in bytes."""

    def __post_init__(self) -> None:
        parts = self.key.removesuffix("/").split("/")
        if not all(parts) or "." in parts or ".." in parts or not self.key.isprintable():
            raise UsageError(f"{self.key!r} is not a key; write consul://HOST:PORT/KEY, or KEY/ for all keys below it")

    @property
    def prefix(self) -> bool:
        """Whether all keys below are meant."""
        return self.key.endswith("/")

    def __str__(self) -> str:
        return f"{self.access}/{self.key}"


class KeyEntry(Struct, frozen=True):
    """A key in a response of Consul."""

    key: str = field(name="Key")
    value: bytes | None = field(default=None, name="Value")


_entries = msgspec.json.Decoder(list[KeyEntry]).decode


def watch_consul(
    spec: ConsulWatch,
    deps: ConsulDeps = ConsulDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[AnyDocument | Unavailable | Unchanged]:
    """Yield the document when it changes, `UNCHANGED` when it has not, or `Unavailable`."""
    merger = Merger()

    def decode(response: ClientResponse, _: BlockingQuery) -> ReadResult[AnyDocument]:
        entries = read_entries(spec, response)
        if not entries:
            return ReadResult(trouble=Unavailable(f"{spec}: {_missing(spec)}"))
        if not spec.prefix:
            return ReadResult(Document(entries[0].value or b"", format_of(spec.key)))
        merged, problem = merger.merge({entry.key.removeprefix(spec.key): entry.value or b"" for entry in entries})
        return ReadResult(merged, Unavailable(f"{spec}: {problem}") if problem else None)

    return _follow(spec, decode, QueryTiming, deps)


def watch_values(
    spec: ConsulWatch,
    deps: ConsulDeps = ConsulDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[dict[str, bytes] | Unavailable | Unchanged]:
    """Yield the values by key when one changes, `UNCHANGED` when none has, or `Unavailable`."""

    def decode(response: ClientResponse, _: BlockingQuery) -> ReadResult[dict[str, bytes]]:
        return ReadResult({entry.key: entry.value or b"" for entry in read_entries(spec, response)})

    return _follow(spec, decode, QueryTiming.prompt, deps)


def _follow(
    spec: ConsulWatch,
    decode: Callable[[ClientResponse, BlockingQuery], ReadResult[V]],
    timing: Callable[[], QueryTiming],
    deps: ConsulDeps,
) -> AsyncIterator[V | Unavailable | Unchanged]:
    keys = MOST_KEYS if spec.prefix else 1
    largest = spec.most * 4 // 3 + keys * _OVERHEAD
    query = {"recurse": "true"} if spec.prefix else {}
    return follow(spec.access, FollowedQuery(spec, f"/v1/kv/{spec.key}", query, largest, decode, timing), deps)


def read_entries(spec: ConsulWatch, response: ClientResponse) -> list[KeyEntry]:
    """Return the keys of a response that hold values, in order. A folder of Consul's UI is a key without a value."""
    if response.status == 404:
        return []
    try:
        entries = [entry for entry in _entries(response.body) if not entry.key.endswith("/")]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise ConsulRefusedError(f"{spec}: the response is not one of Consul; check what listens there") from None
    if len(entries) > MOST_KEYS:
        raise ConsulRefusedError(f"{spec}: there are more than {MOST_KEYS} keys; name a longer prefix")
    if sum(len(entry.value or b"") for entry in entries) > spec.most:
        raise ConsulRefusedError(f"{spec}: larger than the limit of {spec.most} bytes; raise maxBytes")
    return sorted(entries, key=lambda entry: entry.key)


def _missing(spec: ConsulWatch) -> str:
    what = "there is no key below it" if spec.prefix else "there is no such key"
    return f"{what}, or the token may not read it; write it, or check the token and its policy"
