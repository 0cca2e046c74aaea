"""The metrics of the agent, under the names that flagd gives them.

The labels of a remote procedure call come from its route and from the headers and trailers of the response. Those are
the same few tuples again and again, so they are worked out once for each. The hard case is gRPC-Web, which says in the
body how a call ended: then there is no status code. Connect says it by its HTTP status; where several codes share one,
the first counts.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeAlias

from wigwag.observe import Cell, Counter, Gauge, Histogram, HistogramView, Registry
from wigwag.wire.http import Reply, Stream
from wigwag.wire.rpc import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from wigwag.flags.model import Resolution
    from wigwag.wire.http import Handler, Request, Response

    Note = Callable[[Request, Response, float], None]
    Observe = Callable[[float], None]

PROVIDER = "flagd"
MOST_KINDS = 500
LONGEST_LABEL = 128
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BYTES = tuple(100 * 10**power for power in range(8))
_STREAM_SECONDS = (30, 60, 120, 300, 480, 600, 1200, 1800, 3600, 10800)
RpcLabels: TypeAlias = tuple[str, str, str, str]
"""System, service, method, status code."""
RPC = ("rpc.system", "rpc.service", "rpc.method", "rpc.grpc.status_code")
NO_RPC: RpcLabels = ("", "", "", "")
Tallies: TypeAlias = "dict[int, tuple[Resolution, Cell, Cell]]"
"""Where prepared resolutions are counted, by their id: with each of them, so that no other object can have its id."""
_BY_STATUS = {code.http_status: str(int(code)) for code in reversed(Code)}
_HTTP = ("service.name", "http.route", "http.request.method", "http.response.status_code", "url.scheme")


def no_rpc(route: str, answer: Response) -> RpcLabels:
    """Return nothing: for ports without remote procedure calls."""
    return NO_RPC


def rpc_labels(route: str, answer: Response) -> RpcLabels:
    """Return the labels of a unary call; streams have metrics of their own."""
    _, _, rest = route.partition("/")
    service, separator, method = rest.partition("/")
    fields = dict(answer.headers)
    content_type = fields.get(b"content-type", b"")
    if not separator or not content_type or isinstance(answer, Stream):
        return NO_RPC
    if content_type.startswith(b"application/grpc-web"):
        return "grpc_web", service, method, ""
    if content_type.startswith(b"application/grpc"):
        fields.update(answer.trailers or ())
        return "grpc", service, method, fields.get(b"grpc-status", b"").decode("ascii", "replace")
    return "connect_rpc", service, method, _BY_STATUS.get(answer.status, "")


class Recorder(Protocol):
    """What counts evaluations."""

    def evaluated(self, key: str, resolution: Resolution, tallies: Tallies) -> None:
        """Count one evaluation. Where prepared resolutions are counted is remembered in `tallies`."""

    def evaluated_all(self, keys: Sequence[str], resolutions: Sequence[Resolution], tallies: Tallies) -> None:
        """Count all evaluations of one request."""


class Metrics:
    """The instruments of an agent."""

    def __init__(self) -> None:
        self._impressions = Counter(
            "feature_flag.flagd.impression",
            "Evaluations of a flag, by key, variant and reason.",
            ("feature_flag.key", "feature_flag.provider.name", "feature_flag.reason", "feature_flag.result.variant"),
            "{impression}",
        )
        self._reasons = Counter(
            "feature_flag.flagd.result.reason",
            "Evaluations by reason.",
            ("feature_flag.provider.name", "feature_flag.reason", "error.type"),
            "{reason}",
        )
        self._duration = Histogram("requests", "", _SECONDS, (*_HTTP, *RPC))
        self._size = Histogram("answers", "", _BYTES, (*_HTTP, *RPC))
        self.active = 0
        self.streams: dict[tuple[str, str], int] = {}
        self.stream_duration = Histogram(
            "feature_flag.flagd.sync.stream.duration",
            "How long sync streams were open.",
            _STREAM_SECONDS,
            ("selector", "provider_id", "reason"),
            "s",
        )
        self.registry = Registry([self._impressions, self._reasons, *self._views(), self.stream_duration])
        self.registry.add(
            Gauge(
                "http.server.active_requests",
                "Requests under way.",
                lambda: [((), self.active)],
                unit="{request}",
                adds=True,
            ),
            Gauge(
                "feature_flag.flagd.sync.active_streams",
                "Open sync streams.",
                self.streams.items,
                ("selector", "provider_id"),
                "{stream}",
                adds=True,
            ),
        )

    def _views(self) -> list[HistogramView]:
        """Requests are noted once; HTTP and remote procedure calls are two ways to look at them."""
        seconds, sizes = self._duration, self._size
        return [
            HistogramView(seconds, "http.server.request.duration", "Duration of requests.", _HTTP, "s"),
            HistogramView(sizes, "http.server.response.body.size", "Size of answers.", _HTTP, "By"),
            HistogramView(seconds, "rpc.server.duration", "Duration of calls.", RPC, "ms", 1000),
            HistogramView(sizes, "rpc.server.response.size", "Size of the answers to calls.", RPC, "By"),
        ]

    def evaluated(self, key: str, resolution: Resolution, tallies: Tallies) -> None:
        """Count one evaluation."""
        tally = tallies.get(id(resolution))
        if tally is None:
            self._first(key, resolution, tallies)
        else:
            _, impressions, reasons = tally
            impressions[0] += 1
            reasons[0] += 1

    def evaluated_all(self, keys: Sequence[str], resolutions: Sequence[Resolution], tallies: Tallies) -> None:
        """Count many evaluations."""
        known = list(map(tallies.get, map(id, resolutions)))
        for at, tally in enumerate(known):
            if tally is None:
                self._first(keys[at], resolutions[at], tallies)
            else:
                _, impressions, reasons = tally
                impressions[0] += 1
                reasons[0] += 1

    def _first(self, key: str, resolution: Resolution, tallies: Tallies) -> None:
        """Count an evaluation whose labels are not known yet; a prepared resolution has the same ones each time."""
        reasons = self._reasons.cell((PROVIDER, resolution.reason, resolution.error or ""))
        reasons[0] += 1
        if resolution.error is None:
            impressions = self._impressions.cell((key, PROVIDER, resolution.reason, resolution.variant or ""))
            impressions[0] += 1
            if resolution.variant is not None:
                tallies[id(resolution)] = resolution, impressions, reasons

    def impressions(self) -> Iterator[tuple[str, str, Cell]]:
        """Return the key, the variant and the counter of all evaluations, the first evaluated first."""
        return ((key, variant, cell) for (key, _, _, variant), cell in self._impressions.cells())

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

    def observing(
        self,
        handler: Handler,
        service: str,
        route: Callable[[bytes], str],
        outcome: Callable[[str, Response], RpcLabels] = no_rpc,
    ) -> Handler:
        """Return the handler with its requests timed; streams count only until they begin."""
        note = self._notes(service, route, outcome)

        def handle(request: Request) -> object:
            start = perf_counter()
            answer = handler(request)
            if answer.__class__ is not Reply and hasattr(answer, "__await__"):
                return self._awaited(request, answer, note, start)
            note(request, answer, perf_counter() - start)
            return answer

        return handle  # type: ignore[return-value]

    async def _awaited(self, request: Request, answer: object, note: Note, start: float) -> Response:
        self.active += 1
        try:
            response: Response = await answer  # type: ignore[misc]
        finally:
            self.active -= 1
        note(request, response, perf_counter() - start)
        return response

    def _notes(
        self, service: str, route: Callable[[bytes], str], outcome: Callable[[str, Response], RpcLabels]
    ) -> Note:
        """Return what notes a request. Routes, methods and outcomes are few, so their observers are kept."""
        known: dict[tuple[str, bytes, int, str, object], tuple[Observe, Observe]] = {}
        telling = outcome is not no_rpc

        def note(request: Request, answer: Response, seconds: float) -> None:
            scheme = request.peer.scheme if request.peer else "http"
            ending = (answer.headers, answer.trailers) if telling and answer.__class__ is Reply else None
            kind = route(request.path), request.method, answer.status, scheme, ending
            observers = known.get(kind)
            if observers is None:
                http = service, kind[0], kind[1].decode("latin-1"), str(kind[2]), scheme
                labels = http + outcome(kind[0], answer)
                observers = self._duration.observer(labels), self._size.observer(labels)
                if len(known) < MOST_KINDS:
                    known[kind] = observers
            observers[0](seconds)
            if answer.__class__ is Reply:
                observers[1](len(answer.body))

        return note
