"""Kubernetes objects as entries of a snapshot: JSON without what only the server needs, and without secrets.

Lists of the API server leave out `apiVersion` and `kind` of their items, and metadata alone come as another kind; an
entry always has its own. The digest leaves out the version and the generation of an object, so a change of nothing else
is none: an object whose `status` is ignored costs nothing when its status changes. The digest of a Secret is that of
its real content, so a change of it shows, though its values do not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.kube.watch.decode import plain
from wigwag.watt.snapshots.snapshot import check_depth, entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.decode import Decode
    from wigwag.watt.snapshots.snapshot import Entry

_INSIGNIFICANT = ("resourceVersion", "generation")
_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=1_000)  # equal watches share a decoder, and by it what it decodes
def decoder(kind: Kind, ignore: tuple[str, ...] = (), *, secrets: bool = False) -> Decode[Entry]:
    """Return the decoder of a kind; `ignore` are paths to leave out, and without `secrets` their values are."""
    paths = [path.split(".") for path in ignore]
    head: dict[str, Any] = {"apiVersion": kind.api, "kind": kind.kind}
    hidden = not secrets and (kind.group, kind.plural) == ("", "secrets")

    def decode(raw: Raw) -> Entry:
        value = head | plain(raw) | head
        metadata: dict[str, Any] = value["metadata"]
        name = str(kind), metadata.get("namespace", ""), metadata.get("name", "")
        for path in paths:
            _remove(value, path)
        body = _encode(_redacted(value) if hidden else value)
        check_depth(body)
        for field in _INSIGNIFICANT:
            metadata.pop(field, None)
        return entry(name, body, _encode(value))

    return decode


def _remove(value: Any, path: Sequence[str]) -> None:
    for name in path[:-1]:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value.pop(path[-1], None)


def _redacted(secret: dict[str, Any]) -> dict[str, Any]:
    """Return a Secret with the names of its values only."""
    hidden = {
        name: dict.fromkeys(secret[name], "") for name in ("data", "stringData") if isinstance(secret.get(name), dict)
    }
    return {**secret, **hidden}
