"""The span that a caller is in, from the W3C headers of its request: `traceparent`, `tracestate` and `baggage`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_HEADER = 8192
ROOT = Context()
_TRACE, _BAGGAGE = TraceContextTextMapPropagator(), W3CBaggagePropagator()


class _Headers(Getter["Mapping[bytes, bytes]"]):
    """Headers as propagators read them; one that is too long counts as absent."""

    def get(self, carrier: Mapping[bytes, bytes], key: str) -> list[str] | None:
        value = carrier.get(key.encode())
        return None if value is None or len(value) > LONGEST_HEADER else [value.decode("latin-1")]

    def keys(self, carrier: Mapping[bytes, bytes]) -> list[str]:
        return [key.decode("latin-1") for key in carrier]


_HEADERS = _Headers()


def parent(fields: Mapping[bytes, bytes]) -> Context:
    """Return the caller's context; the root if it sent none, or one that cannot be read."""
    context = ROOT
    if b"traceparent" in fields:
        context = _TRACE.extract(fields, context, _HEADERS)
    if b"baggage" in fields:
        context = _BAGGAGE.extract(fields, context, _HEADERS)
    return context
