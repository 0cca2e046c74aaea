"""What a client sends along: its evaluation context, enriched by the operator, and the selector of its flags.

Facts go over what a client sends, because a client must not make them up, and under what the operator says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wigwag.errors import SelectorError
from wigwag.wire.rpc import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.flags.flagset import FlagSet
    from wigwag.serve.snapshot import Snapshot
    from wigwag.wire.http import Request
    from wigwag.wire.rpc import Call

SELECTOR = b"flagd-selector"


class Enrichment(Struct, frozen=True):
    """Attributes laid over every context: request body < facts < static values < values of headers that are there."""

    static: dict[str, str] = {}
    headers: dict[str, str] = {}
    """Header name → attribute."""

    def __bool__(self) -> bool:
        """Whether it adds anything by itself."""
        return bool(self.static or self.headers)

    def apply(
        self, context: dict[str, Any], source: Call | Request, facts: Mapping[str, Any], *, headers: bool = True
    ) -> dict[str, Any]:
        """Return the context that rules see; the very same object where there is nothing to add."""
        if not self and not facts:
            return context
        from_headers = {}
        if headers:
            for name, attribute in self.headers.items():
                value = source.header(name.lower().encode())
                if value:
                    from_headers[attribute] = value.decode("utf-8", "replace")
        return {**context, **facts, **self.static, **from_headers}


def selector_of(source: Call | Request) -> str:
    """Return the selector that the header names; empty for all flags."""
    value = source.header(SELECTOR)
    return value.decode("utf-8", "replace") if value else ""


def select(snapshot: Snapshot, call: Call, selector: str | None = None) -> FlagSet:
    """Return the flags that a call selects by its header, or by the selector given."""
    try:
        return snapshot.select(selector_of(call) if selector is None else selector)
    except SelectorError as error:
        raise RpcError(Code.INVALID_ARGUMENT, str(error)) from error
