"""Authentication, authorization and rate limits, once per request, before the handler.

    request ─ who? ─▶ rate limit ─▶ known? ─▶ may use the selector? ─▶ handler
                          │            │              │
                         429          401          400, 403

`AccessControl` wraps the methods of an RPC port, or the handler of an HTTP port, when the port is assembled. Without
any option there is no `AccessControl`, nothing is wrapped, and it costs nothing. A caller whose rule names one selector
need not send it: the handler sees the request as if it had been sent.

The hard case is a stream: it is authorized once but stays open. When new rules are adopted, every stream whose caller
they no longer allow ends, at once if it waits, else before its next message. A stream is counted and registered from
its first pull on, because one that is dropped before that is never closed.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import AsyncIterator
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wigwag.errors import SelectorError
from wigwag.flags.selector import Selector
from wigwag.observe import Counter
from wigwag.origin import bearer_token
from wigwag.serve.access.revocable import RevocableStream
from wigwag.serve.access.throttle import UNKNOWN, place
from wigwag.serve.access.tokens import PresentedCredential, digest
from wigwag.serve.context import SELECTOR, selector_of
from wigwag.wire.http import Reply, Stream
from wigwag.wire.rpc import Code, Method, RpcError
from wigwag.wire.server.broadcast import BroadcastStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from wigwag.observe import Registry
    from wigwag.serve.access.throttle import Slots, Throttle
    from wigwag.serve.access.tokens import Caller, Rules
    from wigwag.wire.http import Handler, Headers, Request, Response
    from wigwag.wire.peer import Identity, Peer
    from wigwag.wire.rpc import Call, Methods, ServerStream, Unary

    Wanted = Callable[[Call], str | None]
    """Tells the selector of a call; None if it asks for no flags."""

AUTHORIZATION = b"authorization"
CHALLENGE: Headers = ((b"www-authenticate", b"Bearer"),)
NO_SELECTOR = "say which flags are meant, by the header Flagd-Selector, such as Flagd-Selector: flagSetId=NAME"
NO_TOKEN = "say who asks, by the header Authorization: Bearer TOKEN, or by a client certificate"  # noqa: S105 - a message
QUIET_SECONDS = 1.0
log = logging.getLogger("wigwag.serve")
NOT_YET = "the access rules have not been read yet; try again later"


class AccessPolicy(Struct, frozen=True, kw_only=True):
    """What is required of a request; by default nothing."""

    known: bool = False
    """Only callers that the rules name are accepted."""
    selector: bool = False
    """A request without a selector is refused."""
    throttle: Throttle | None = None
    slots: Slots | None = None


class Principal(Struct, frozen=True):
    """A caller whose request was accepted."""

    name: str
    """What it is counted under: the name of its rule, the identity in its certificate, or its address."""
    credential: PresentedCredential
    caller: Caller | None


class Refusals:
    """Counts refused requests by reason, and logs them together, at most once a second; nothing that a client sent."""

    def __init__(self, registry: Registry) -> None:
        self._counter = Counter("wigwag_requests_refused", "Requests that were refused, by reason.", ("reason",))
        registry.add(self._counter)
        self._unlogged = Tally[str]()
        self._logged = float("-inf")

    def note(self, reason: str, name: str, now: float) -> None:
        """Count one, of that caller or address."""
        self._counter.add((reason,))
        self._unlogged[reason] += 1
        if now - self._logged >= QUIET_SECONDS:
            log.warning("requests refused", extra={"fields": {**self._unlogged, "last": name}})
            self._logged = now
            self._unlogged.clear()


class AccessControl:
    """Accepts requests, or refuses them with an `RpcError`. With rules, it refuses all until the first are adopted."""

    def __init__(self, policy: AccessPolicy, refusals: Refusals, now: Callable[[], float] = monotonic) -> None:
        self._policy, self._refusals, self._now = policy, refusals, now
        self._held: dict[RevocableStream | BroadcastStream, tuple[Principal, str]] = {}
        self.rules: Rules | None = None

    def adopt(self, rules: Rules) -> None:
        """Use these rules from now on, and end the streams that they do not allow."""
        self.rules = rules
        for held, (principal, selector) in list(self._held.items()):
            error = self._revocation(principal, selector)
            if error is not None:
                held.end(error)

    def methods(self, methods: Methods, wanted: Wanted = selector_of) -> dict[bytes, Method]:
        """Return the methods with access control."""
        return {path: self._method(method, wanted) for path, method in methods.items()}

    def handler(self, handler: Handler, wanted: Callable[[Request], str], key: Callable[[Request], str]) -> Handler:
        """Return the handler of OFREP with access control; `key` returns the flag that a request names."""

        def handle(request: Request) -> Response | Awaitable[Response]:
            try:
                principal = self._authenticate(request.header(AUTHORIZATION), request.peer)
                selector = wanted(request)
                granted = self._authorize(principal, selector)
                if granted != selector:
                    headers = ((SELECTOR, granted.encode()), *request.headers)
                    request = replace(request, headers=headers, known=None)
                answer = handler(request)
                if isinstance(answer, Stream) and self._holds:
                    self._check_streams(principal)
                    answer.chunks = _quietly(self._revocable(answer.chunks, principal, granted))
            except RpcError as error:
                return _refused(error, key(request))
            return answer

        return handle

    def _method(self, method: Method, wanted: Wanted) -> Method:
        if method.unary is not None:
            return Method(unary=self._unary(method.unary, wanted), safe=method.safe)
        assert method.stream is not None
        return Method(stream=self._stream(method.stream, wanted))

    def _unary(self, handler: Unary, wanted: Wanted) -> Unary:
        def unary(call: Call) -> bytes | Awaitable[bytes]:
            self._admit(call, wanted)
            return handler(call)

        return unary

    def _stream(self, handler: ServerStream, wanted: Wanted) -> ServerStream:
        def stream(call: Call) -> AsyncIterator[bytes]:
            principal, selector = self._admit(call, wanted)
            self._check_streams(principal)
            messages = handler(call)
            assert isinstance(messages, AsyncIterator)  # the streams of an agent begin at once
            if isinstance(messages, BroadcastStream) and self._holds:
                messages.guard(lambda stream: stream.on_close(self._register(stream, principal, selector)))
                return messages
            return self._revocable(messages, principal, selector) if self._holds else messages

        return stream

    def _admit(self, call: Call, wanted: Wanted) -> tuple[Principal, str]:
        fields = call.fields
        principal = self._authenticate(fields.get(AUTHORIZATION), call.request.peer)
        selector = wanted(call)
        if selector is None:
            return principal, ""
        granted = self._authorize(principal, selector)
        if granted != selector:
            call.fields = {**fields, SELECTOR: granted.encode()}
        return principal, granted

    def _authenticate(self, authorization: bytes | None, peer: Peer | None) -> Principal:
        """Return who calls; raise if the caller is unknown, or calls too often."""
        policy, rules, caller = self._policy, self.rules, None
        certificate = peer.certificate if peer is not None else None
        token = bearer_token(authorization) if policy.known else None
        credential = PresentedCredential(digest(token) if token is not None else None, certificate)
        if rules is not None:
            caller = rules.caller(credential)
        name = caller.name if caller is not None else _unknown(certificate, peer)
        if policy.throttle is not None and (wait := policy.throttle.take(name, self._now())):
            raise self._refuse("rate", name, _too_often(wait))
        if policy.known and caller is None:
            raise self._unauthenticated(name, credential)
        return Principal(name, credential, caller)

    def _unauthenticated(self, name: str, credential: PresentedCredential) -> RpcError:
        if self.rules is None:
            return self._refuse("closed", name, RpcError(Code.UNAVAILABLE, NOT_YET))
        message = NO_TOKEN
        if credential.digest is not None:
            message = "the token is not known, or no longer"
        elif credential.certificate is not None:
            message = "no access rule names the client certificate; " + NO_TOKEN
        return self._refuse("unauthenticated", name, RpcError(Code.UNAUTHENTICATED, message, metadata=CHALLENGE))

    def _authorize(self, principal: Principal, selector: str) -> str:
        """Return the selector that counts: that of the request, if it is allowed, or the only one that is."""
        caller = principal.caller
        if caller is None or caller.selectors is None:
            if not selector and self._policy.selector:
                raise self._refuse("no_selector", principal.name, RpcError(Code.INVALID_ARGUMENT, NO_SELECTOR))
            return selector
        if caller.only and (not selector or selector == caller.only):
            return caller.only
        if not selector:
            raise self._refuse("no_selector", principal.name, RpcError(Code.INVALID_ARGUMENT, NO_SELECTOR))
        try:
            allowed = Selector.parse(selector) in caller.selectors
        except SelectorError as error:
            raise RpcError(Code.INVALID_ARGUMENT, str(error)) from error
        if not allowed:
            message = f"{caller.name!r} may not use this selector; ask whoever keeps the access rules"
            raise self._refuse("forbidden", principal.name, RpcError(Code.PERMISSION_DENIED, message))
        return selector

    @property
    def _holds(self) -> bool:
        return self._policy.known or self._policy.slots is not None

    def _check_streams(self, principal: Principal) -> None:
        slots = self._policy.slots
        if slots is not None and not slots.free(principal.name):
            raise self._refuse("streams", principal.name, _too_many(slots.most))

    async def _revocable(
        self, messages: AsyncIterator[bytes], principal: Principal, selector: str
    ) -> AsyncIterator[bytes]:
        """Yield what a stream yields, for as long as its principal may have it."""
        stream = RevocableStream(messages)
        release = self._register(stream, principal, selector)
        try:
            async for message in stream:
                yield message
        finally:
            release()
            await stream.aclose()

    def _register(
        self, stream: RevocableStream | BroadcastStream, principal: Principal, selector: str
    ) -> Callable[[], None]:
        """Count a stream that begins, and end it when its right ends; return what to call when it is closed."""
        slots = self._policy.slots
        error = self._revocation(principal, selector)  # other rules may have come since it was accepted
        if error is not None:
            raise error
        if slots is not None and not slots.take(principal.name):
            raise self._refuse("streams", principal.name, _too_many(slots.most))
        self._held[stream] = principal, selector

        def release() -> None:
            del self._held[stream]
            if slots is not None:
                slots.give_back(principal.name)

        return release

    def _revocation(self, principal: Principal, selector: str) -> RpcError | None:
        """Return why the current rules do not allow what was allowed before; None if they do."""
        if not self._policy.known or self.rules is None:
            return None
        caller = self.rules.caller(principal.credential)
        if caller is None:
            gone = RpcError(Code.UNAUTHENTICATED, "the token or certificate is no longer accepted", metadata=CHALLENGE)
            return self._refuse("revoked", principal.name, gone)
        if caller.selectors is None or (selector and Selector.parse(selector) in caller.selectors):
            return None
        denied = RpcError(Code.PERMISSION_DENIED, f"{caller.name!r} may no longer use this selector")
        return self._refuse("revoked", principal.name, denied)

    def _refuse(self, reason: str, name: str, error: RpcError) -> RpcError:
        self._refusals.note(reason, name, self._now())
        return error


def _unknown(certificate: Identity | None, peer: Peer | None) -> str:
    """Return what a caller without a rule is counted under."""
    if certificate is not None:
        return str(certificate)
    return place(peer.address) if peer else UNKNOWN


def _too_often(wait: float) -> RpcError:
    seconds = b"%d" % max(1, ceil(wait))
    return RpcError(
        Code.RESOURCE_EXHAUSTED, "too many requests; try again later", metadata=((b"retry-after", seconds),)
    )


def _too_many(most: int) -> RpcError:
    return RpcError(Code.RESOURCE_EXHAUSTED, f"{most} streams are open already; close one, or share it")


async def _quietly(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks of a stream that has no way to say why it ends: a client that reconnects gets the error."""
    try:
        async for chunk in chunks:
            yield chunk
    except RpcError:
        pass
    finally:
        await chunks.aclose()  # type: ignore[attr-defined]


def _refused(error: RpcError, key: str) -> Reply:
    named = {"key": key} if key else {}
    body = msgspec.json.encode(named | {"errorCode": "GENERAL", "errorDetails": error.message})
    return Reply(error.code.http_status, ((b"content-type", b"application/json"), *error.metadata), body)
