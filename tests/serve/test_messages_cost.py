"""What reading a message costs, however it is written."""

from __future__ import annotations

from typing import Any

from wigwag.serve.messages import read_resolve
from wigwag.wire.rpcs.protobuf import blob, text
from wigwag.wire.rpcs.struct import encode


class Counted(bytes):
    """Bytes that count how many of them are copied by concatenation."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return Counted(found) if isinstance(found, bytes) else found

    def __add__(self, other: Any) -> Counted:
        Counted.copied += len(self) + len(other)
        return Counted(bytes(self) + bytes(other))

    def __radd__(self, other: Any) -> Counted:
        Counted.copied += len(self) + len(other)
        return Counted(bytes(other) + bytes(self))


def test_a_context_in_many_pieces_is_copied_once() -> None:
    pieces = [blob(2, encode({f"key-{n}": "v"})) for n in range(200)]
    body = Counted(text(1, "flag") + b"".join(pieces))
    key, context = read_resolve(body, json=False)
    assert (key, len(context)) == ("flag", 200)
    assert Counted.copied <= len(body)
