"""The HTTPS service that the API server calls: a path for each webhook, and a pure function behind each path.

A review is an ordinary function and is called on the event loop: it reads a snapshot, asks nobody, and takes less than
a millisecond. An object of more than `LARGE` bytes is reviewed in a thread instead, so that a large flag document does
not hold up the pods behind it. There is one such thread, `MOST_WAITING` objects may wait for it, and each waits
`SECONDS` at most; a request that is refused for that may be tried again.

Every readable request gets an answer of its own, whatever happens. If a review raises, the answer is a refusal with
code 500 that names the uid, which is in the log, too. A dropped connection would leave it to `failurePolicy`, and to
somebody who has to guess.
"""

from __future__ import annotations

import asyncio
import logging
from hmac import compare_digest
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from wigwag.background import BackgroundWorker
from wigwag.loglimit import LogLimiter
from wigwag.observe import Counter, Gauge, Histogram
from wigwag.operator.admission.review import (
    MALFORMED,
    AdmissionRequest,
    AdmissionResponse,
    decode_review,
    denied,
    encode_review,
)
from wigwag.serve.face.ports import Port
from wigwag.wire.http import Reply, error_reply
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.listen import Listener

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from wigwag.observe import Instrument
    from wigwag.wire.http import Request
    from wigwag.wire.tls import MemoryCertificate, Tls

    Review: TypeAlias = Callable[[AdmissionRequest], AdmissionResponse]

log = logging.getLogger("wigwag.operator.admission")
PORT = 9443
LIMITS = WireLimits(
    body_bytes=8 * 1024 * 1024, connections=1000, connections_per_address=500, streams=128, body_seconds=5.0
)
"""A review holds an object of up to 3 MiB twice, old and new. An API server keeps a few connections open, and nobody
else can take all of them from one address."""
LARGE = 64 * 1024
MOST_WAITING, MOST_WAITING_EACH = 16, 8
"""Large objects, in all and of one namespace: nobody can take the place of all others."""
SECONDS = 4.5
"""Less than the `timeoutSeconds` of the webhooks, so that the API server gets our answer and not its own timeout."""
_JSON = ((b"content-type", b"application/json"),)
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LABELS = "webhook", "code", "outcome"


class AdmissionService:
    """Answers AdmissionReviews. Its metrics have the names of controller-runtime."""

    def __init__(
        self, reviews: Mapping[str, Review], seconds: float = SECONDS, secret: Callable[[], str] | None = None
    ) -> None:
        """`reviews` has the function for each path; `seconds` is the longest that a large object waits.

        With `secret`, a path has to end in it, and nothing is served while it is empty. Without, any end will do: a
        replica that wants none may serve beside others that do.
        """
        self._seconds, self._secret = seconds, secret
        self._reviews = {path.encode(): (path, review) for path, review in reviews.items()}
        self._worker, self._waiting = BackgroundWorker("wigwag-admission"), 0
        self._waiting_of: dict[str, int] = {}
        self._limited = LogLimiter(log)
        self._requests = Counter("controller_runtime_webhook_requests", "Admission reviews.", _LABELS)
        self._latency = Histogram("controller_runtime_webhook_latency", "Time of reviews.", _BUCKETS, _LABELS, "s")
        waiting = Gauge("wigwag_admission_waiting", "Large objects that wait.", lambda: [((), self._waiting)])
        self.instruments: tuple[Instrument, ...] = self._requests, self._latency, waiting

    def close(self) -> None:
        """End the thread for large objects, without waiting for it."""
        self._worker.dismiss()

    def handle(self, request: Request) -> Reply | Awaitable[Reply]:
        """Answer a request of the API server."""
        path, review = self._reviews.get(self._known_path(request.path), ("", None))
        if review is None:
            return error_reply(404)
        if request.method != b"POST":
            return Reply(405, ((b"allow", b"POST"),))
        start = perf_counter()
        try:
            asked = decode_review(request.body)
        except MALFORMED as error:
            malformed = _refused("", 400, _why("AdmissionReview", error), "malformed")
            return self._answer(path, malformed, start, status=400)
        if len(request.body) > LARGE:
            return self._large(path, review, asked, start)
        return self._answer(path, reviewed(review, asked), start)

    def _known_path(self, path: bytes) -> bytes:
        """Return the path without its secret; empty if that is wrong."""
        base, _, end = (path, b"", b"") if path in self._reviews else path.rpartition(b"/")
        if self._secret is None:
            return base
        secret = self._secret().encode()
        return base if secret and compare_digest(end, secret) else b""

    async def _large(self, path: str, review: Review, asked: AdmissionRequest, start: float) -> Reply:
        """Review in the thread, if not too many wait for it already."""
        of_namespace = self._waiting_of.get(asked.namespace, 0)
        if self._waiting >= MOST_WAITING or of_namespace >= MOST_WAITING_EACH:
            busy = _refused(asked.uid, 429, "too many large objects are under review; try again", "busy")
            return self._answer(path, busy, start)
        self._waiting += 1
        self._waiting_of[asked.namespace] = of_namespace + 1
        try:
            async with asyncio.timeout(self._seconds):
                result = await self._worker.send(lambda: reviewed(review, asked))
        except TimeoutError:
            result = _refused(asked.uid, 504, f"the review took longer than {self._seconds:g} s; try again", "timeout")
        finally:
            self._waiting -= 1
            self._waiting_of[asked.namespace] -= 1
            if not self._waiting_of[asked.namespace]:
                del self._waiting_of[asked.namespace]
        return self._answer(path, result, start)

    def _answer(self, path: str, result: Reviewed, start: float, status: int = 200) -> Reply:
        """Note how a review ended, and reply."""
        labels = path, str(result.code), result.outcome
        self._requests.add(labels)
        self._latency.observe(labels, perf_counter() - start)
        if result.error is not None:
            message = "a review failed, and its object is refused: %s uid %s"
            self._limited.log(logging.ERROR, start, message, path, result.uid, error=result.error)
        return Reply(status, _JSON, result.body)


class Reviewed(Struct, frozen=True):
    """The answer to one request, and how it came about."""

    uid: str
    body: bytes
    code: int
    outcome: str
    error: Exception | None = None


def reviewed(review: Review, asked: AdmissionRequest) -> Reviewed:
    """Return the encoded answer of a review, whatever it does."""
    try:
        response = review(asked)
        body = encode_review(asked.uid, response)
    except MALFORMED as error:
        return _refused(asked.uid, 400, _why(asked.kind.kind, error), "malformed")
    except Exception as error:  # noqa: BLE001  around a request
        message = f"the review failed; the log of the operator has the reason under uid {asked.uid}"
        return _refused(asked.uid, 500, message, "error", error)
    outcome = ("patched" if response.patch else "allowed") if response.allowed else "denied"
    return Reviewed(asked.uid, body, response.code, outcome)


def _refused(uid: str, code: int, message: str, outcome: str, error: Exception | None = None) -> Reviewed:
    return Reviewed(uid, encode_review(uid, denied(code, message)), code, outcome, error)


def _why(what: str, error: Exception) -> str:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
    return f"the {what} cannot be decoded: {reason}"


def admission_port(
    service: AdmissionService, tls: Tls | MemoryCertificate, host: str | None = None, port: int = PORT
) -> Port:
    """Return the port that serves the webhooks."""
    listener = Listener(host=host, port=port, tls=tls)
    return Port("admission", "--webhook-bind-address", service.handle, listener, LIMITS)
