"""What the agent counts, under the names that flagd's metrics have in Prometheus form."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from wigwag.observe import Counter, Gauge, Histogram, Registry
from wigwag.wire.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.flags.model import Resolution
    from wigwag.wire.http import Answer, Handler, Request

    Note = Callable[[Request, Answer, float], None]

PROVIDER = "flagd"
MOST_KINDS = 500
LONGEST_LABEL = 128
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BYTES = tuple(100 * 10**power for power in range(8))
_STREAM_SECONDS = (30, 60, 120, 300, 480, 600, 1200, 1800, 3600, 10800)
_HTTP = ("service_name", "http_route", "http_request_method", "http_response_status_code", "url_scheme")


class Metrics:
    """The instruments of an agent."""

    def __init__(self) -> None:
        self._impressions = Counter(
            "feature_flag_flagd_impression",
            "Evaluations of a flag, by key, variant and reason.",
            ("feature_flag_key", "feature_flag_provider_name", "feature_flag_reason", "feature_flag_result_variant"),
        )
        self._reasons = Counter(
            "feature_flag_flagd_result_reason",
            "Evaluations by reason.",
            ("feature_flag_provider_name", "feature_flag_reason", "error_type"),
        )
        self._duration = Histogram("http_server_request_duration_seconds", "Duration of requests.", _SECONDS, _HTTP)
        self._size = Histogram("http_server_response_body_size_bytes", "Size of answers.", _BYTES, _HTTP)
        self.active = 0
        self.streams: dict[tuple[str, str], int] = {}
        self.stream_duration = Histogram(
            "feature_flag_flagd_sync_stream_duration_seconds",
            "How long sync streams were open.",
            _STREAM_SECONDS,
            ("selector", "provider_id", "reason"),
        )
        self.registry = Registry([self._impressions, self._reasons, self._duration, self._size, self.stream_duration])
        self.registry.add(
            Gauge("http_server_active_requests", "Requests under way.", lambda: [((), self.active)]),
            Gauge(
                "feature_flag_flagd_sync_active_streams",
                "Open sync streams.",
                self.streams.items,
                ("selector", "provider_id"),
            ),
        )

    def evaluated(self, key: str, found: Resolution) -> None:
        """Count one evaluation."""
        if found.error is None:
            self._impressions.add((key, PROVIDER, found.reason, found.variant or ""))
            self._reasons.add((PROVIDER, found.reason, ""))
        else:
            self._reasons.add((PROVIDER, found.reason, found.error))

    def stream_opened(self, selector: str, provider_id: str) -> tuple[str, str]:
        """Note that a sync stream began; return the labels it is counted under, which are short and not too many."""
        labels = selector[:LONGEST_LABEL], provider_id[:LONGEST_LABEL]
        if labels not in self.streams and len(self.streams) >= MOST_KINDS:
            labels = "(others)", "(others)"
        self.streams[labels] = self.streams.get(labels, 0) + 1
        return labels

    def stream_closed(self, labels: tuple[str, str], seconds: float, reason: str) -> None:
        """Note that a sync stream ended, and why."""
        self.streams[labels] -= 1
        if not self.streams[labels]:
            del self.streams[labels]
        self.stream_duration.observe((*labels, reason), seconds)

    def observing(self, handler: Handler, service: str, route: Callable[[bytes], str]) -> Handler:
        """Return the handler with its requests timed; streams count only until they begin."""
        note = self._notes(service, route)

        def handle(request: Request) -> object:
            start = perf_counter()
            answer = handler(request)
            if hasattr(answer, "__await__"):
                return self._awaited(request, answer, note, start)
            note(request, answer, perf_counter() - start)
            return answer

        return handle  # type: ignore[return-value]

    async def _awaited(self, request: Request, answer: object, note: Note, start: float) -> Answer:
        self.active += 1
        try:
            found: Answer = await answer  # type: ignore[misc]
        finally:
            self.active -= 1
        note(request, found, perf_counter() - start)
        return found

    def _notes(self, service: str, route: Callable[[bytes], str]) -> Note:
        """Return what notes a request. Routes, methods and states are few, so their observers are kept."""
        known: dict[tuple[str, bytes, int, str], tuple[Callable[[float], None], Callable[[float], None]]] = {}

        def note(request: Request, answer: Answer, seconds: float) -> None:
            kind = route(request.path), request.method, answer.status, request.peer.scheme if request.peer else "http"
            observers = known.get(kind)
            if observers is None:
                labels = (service, kind[0], kind[1].decode("latin-1"), str(kind[2]), kind[3])
                observers = self._duration.observer(labels), self._size.observer(labels)
                if len(known) < MOST_KINDS:
                    known[kind] = observers
            observers[0](seconds)
            if answer.__class__ is Reply:
                observers[1](len(answer.body))

        return note
