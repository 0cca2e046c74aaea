"""Webhooks on loopback that a real API server calls: the admission service in a thread, with a CA of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from tests.real.cluster import Cluster
from tests.real.processes import claim_port
from wigwag.operator.admission.registration import WebhookEndpoint, mutating, validating
from wigwag.operator.admission.review import AdmissionRequest, AdmissionResponse
from wigwag.operator.admission.server import AdmissionService, admission_port
from wigwag.operator.certificates.authority import CertificatePolicy
from wigwag.operator.certificates.rotation import advance
from wigwag.operator.certificates.secret import bundle, served
from wigwag.wire.server.server import serve
from wigwag.wire.tls import MemoryCertificate

Review = Callable[[AdmissionRequest], AdmissionResponse]
NAMES = ("127.0.0.1", "localhost")


class Webhooks:
    """`with Webhooks({path: review}) as webhooks:` serves; `seen` counts the requests by path and object."""

    def __init__(self, reviews: Mapping[str, Review], policy: CertificatePolicy | None = None) -> None:
        self.policy = policy or CertificatePolicy()
        self.seen: Counter[tuple[str, str]] = Counter()
        self.port = claim_port()
        self.secret: dict[str, str] = {}
        self.step("")
        pair = served(self.secret)
        assert pair
        self.certificate = MemoryCertificate(*pair)
        self.service = AdmissionService({path: self._counted(path, review) for path, review in reviews.items()})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def step(self, published: str) -> str:
        """Take one step of the rotation, and return its name."""
        step, self.secret = advance(self.secret, NAMES, published, datetime.now(UTC), self.policy)
        return step.name

    def endpoint(self, trusted: str = "") -> WebhookEndpoint:
        """Return where the API server reaches them, and whom it trusts there."""
        return WebhookEndpoint(trusted or bundle(self.secret), url=f"https://127.0.0.1:{self.port}")

    def register(self, cluster: Cluster, trusted: str = "") -> list[dict[str, Any]]:
        """Apply both webhook configurations."""
        endpoint = self.endpoint(trusted)
        return [cluster.apply(mutating(endpoint)), cluster.apply(validating(endpoint))]

    def _counted(self, path: str, review: Review) -> Review:
        def counted(request: AdmissionRequest) -> AdmissionResponse:
            self.seen[path, request.name] += 1
            return review(request)

        return counted

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(started)))
        self._thread.start()
        assert started.wait(40)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop
        assert self._stop
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _main(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        port = admission_port(self.service, self.certificate, "127.0.0.1", self.port)
        async with serve(port.handler, [port.listener], port.limits):
            started.set()
            await self._stop.wait()
        self.service.close()
