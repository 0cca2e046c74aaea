"""The evaluation services: `flagd.evaluation.v2`, `flagd.evaluation.v1` and the old `schema.v1`.

They differ in what they make of an evaluation without a value:

                        no default variant                  disabled
    evaluation.v2       success, value and variant unset    success, value and variant unset
    evaluation.v1       NOT_FOUND                           success, zero value
    schema.v1           success, zero value, "FALLBACK"     success, zero value
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from wigwag.flags.model import DEFAULT, DISABLED, ERROR
from wigwag.serve import messages
from wigwag.serve.context import SELECTOR, select, selector_of
from wigwag.serve.messages import AnyFlag
from wigwag.serve.streams import NOT_YET
from wigwag.wire.rpc import Code, Method, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import FlagType, Resolution
    from wigwag.serve.context import Enrichment
    from wigwag.serve.events import ChangeStreams
    from wigwag.serve.resolve import Resolver
    from wigwag.serve.snapshot import Snapshot
    from wigwag.wire.rpc import Call, Unary

V2, V1, OLD = "flagd.evaluation.v2.Service", "flagd.evaluation.v1.Service", "schema.v1.Service"
_METHODS: dict[str, FlagType] = {
    "Boolean": "boolean",
    "String": "string",
    "Int": "integer",
    "Float": "float",
    "Object": "object",
}
_ERRORS = {
    "FLAG_NOT_FOUND": (Code.NOT_FOUND, "Flag not found"),
    "TYPE_MISMATCH": (Code.INVALID_ARGUMENT, "Type mismatch error"),
    "PARSE_ERROR": (Code.DATA_LOSS, "Error parsing input or configuration"),
}
_OTHER = (Code.UNKNOWN, "General error")
_ANY_TYPES: dict[type, FlagType] = {bool: "boolean", str: "string", int: "float", float: "float", dict: "object"}
_ZEROS = {"boolean": False, "string": "", "float": 0.0, "object": {}}


class Evaluation:
    """Evaluates flags of the current snapshot for remote callers."""

    def __init__(
        self, current: Callable[[], Snapshot], enrichment: Enrichment, resolver: Resolver, changes: ChangeStreams
    ) -> None:
        self._current, self._enrichment, self._resolver, self._changes = current, enrichment, resolver, changes

    def methods(self) -> dict[bytes, Method]:
        """Return all methods of all three services."""
        methods: dict[bytes, Method] = {}
        for service in (V2, V1, OLD):
            for name, kind in _METHODS.items():
                methods[f"/{service}/Resolve{name}".encode()] = Method(unary=self._resolving(service, kind), safe=True)
            if service != V2:
                methods[f"/{service}/ResolveAll".encode()] = Method(unary=self._all(service), safe=True)
            methods[f"/{service}/EventStream".encode()] = Method(
                stream=self._changes.event_stream(bounded=service != OLD)
            )
        return methods

    def _resolving(self, service: str, type: FlagType) -> Unary:
        current, enrichment, resolver, adds = self._current, self._enrichment, self._resolver, bool(self._enrichment)
        optional, with_headers = service == V2, service != OLD
        read, forms = messages.read_resolve, (f"{service} {type}", f"{service} {type} json")

        def resolve(call: Call) -> bytes:
            key, context = read(call.body, call.json)
            snapshot = current()
            flags = select(snapshot, call) if SELECTOR in call.fields else snapshot.flags
            if adds or snapshot.facts:
                context = enrichment.apply(context, call, snapshot.facts, headers=with_headers)
            result = resolver.resolve(snapshot, flags, key, type, context)
            known = snapshot.forms[forms[call.json]].get(id(result))
            if known is not None:
                return known[1]
            if result.error is not None:
                raise failure(result)
            if result.variant is None:
                return self._valueless(service, type, result, call.json)
            return resolver.encoded(snapshot, forms[call.json], result, lambda result: encode(result, call.json))

        def encode(result: Resolution, json: bool) -> bytes:
            return messages.resolved(
                type,
                result.value,
                result.reason,
                result.variant,
                result.metadata,
                optional=optional,
                json=json,
            )

        return resolve

    def _valueless(self, service: str, type: str, result: Resolution, json: bool) -> bytes:
        reason = result.reason
        if reason == DEFAULT and service == V1:
            raise RpcError(*_ERRORS["FLAG_NOT_FOUND"])
        if reason == DEFAULT and service == OLD:
            reason = "FALLBACK"
        return messages.resolved(type, None, reason, None, result.metadata, optional=service == V2, json=json)

    def _all(self, service: str) -> Unary:
        old = service == OLD
        forms = (f"{service} all", f"{service} all json")

        def resolve_all(call: Call) -> bytes:
            context = messages.read_context(call.body, call.json)
            snapshot = self._current()
            if snapshot.extent == "none":
                raise RpcError(Code.UNAVAILABLE, NOT_YET)  # or the client would take it that there are none
            selector = selector_of(call)
            flags = select(snapshot, call, selector)
            context = self._enrichment.apply(context, call, snapshot.facts, headers=not old)
            budget, resolve, encoded = flags.budget(), self._resolver.resolve, self._resolver.encoded
            encode = partial(_entry, old=old, json=call.json)
            entries = []
            for key, kind in snapshot.keep(selector, "typed keys", lambda: _typed_keys(flags)):
                if kind is not None or old:
                    result = resolve(snapshot, flags, key, kind, context, budget)
                    entries.append(encoded(snapshot, forms[call.json], result, partial(encode, key, kind)))
            return messages.resolved_all(list(filter(None, entries)), None if old else flags.reflected, json=call.json)

        return resolve_all


def _typed_keys(flags: FlagSet) -> tuple[tuple[str, FlagType | None], ...]:
    """Return each key with the type of its default variant; None without one, or if it is an array.

    Several flag sets may have a key: then it is the flag that answers, and they may differ in type.
    """
    return tuple(
        (key, _kind(flag.variants.get(flag.default_variant or ""))) for key in flags if (flag := flags.flag(key))
    )


def _kind(value: object) -> FlagType | None:
    return _ANY_TYPES.get(value.__class__)


def _entry(key: str, kind: FlagType | None, result: Resolution, *, old: bool, json: bool) -> bytes:
    """Write the answer of one flag among all; nothing if it is left out.

    The oldest service takes a flag without a default as what its rule answers, and has no metadata.
    """
    metadata = None if old else result.metadata
    if kind is None:
        kind = _kind(result.value)
        if kind is None or result.variant is None:
            return b""
    if result.error is not None or result.variant is None:
        reason = ERROR if result.error else result.reason if result.reason == DISABLED else DEFAULT
        return messages.all_entry(key, AnyFlag(reason, "", kind, _ZEROS[kind], metadata), json=json)
    return messages.all_entry(key, AnyFlag(result.reason, result.variant, kind, result.value, metadata), json=json)


def failure(result: Resolution) -> RpcError:
    """Return what a failed evaluation is to a remote caller."""
    code, message = _ERRORS.get(result.error or "", _OTHER)
    return RpcError(code, message)
