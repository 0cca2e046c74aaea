"""A watch of ours that runs beside a test, in a thread with a loop of its own, and what it saw and asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.real.access import Access
from tests.real.processes import until
from wigwag.kube.client import STREAM, ApiRequest, Kube, KubeDeps
from wigwag.kube.config.cluster import find_cluster
from wigwag.kube.errors import ApiError
from wigwag.kube.watch.decode import Decode, plain
from wigwag.kube.watch.follow import watch_kube
from wigwag.kube.watch.listwatch import WatchTiming
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.wire.client.client import StreamedResponse
from wigwag.wire.h1.client import ResponseLimits


class Counting(Kube):
    """Remembers what it asked, and how that was answered; comparisons with the server apart."""

    def __init__(self, path: Path, **deps: Any) -> None:
        super().__init__(find_cluster({}, str(path)), KubeDeps(environment={}, **deps))
        self.asked: list[tuple[ApiRequest, int]] = []
        self.compared: list[ApiRequest] = []
        self.before: Callable[[ApiRequest], object] = lambda _: None
        """What happens before a request."""

    @asynccontextmanager
    async def stream(self, request: ApiRequest, limits: ResponseLimits = STREAM) -> AsyncIterator[StreamedResponse]:
        self.before(request)
        if _compares(request):
            self.compared.append(request)
            async with super().stream(request, limits) as incoming:
                yield incoming
            return
        self.asked.append((request, 0))
        try:
            async with super().stream(request, limits) as incoming:
                self.asked[-1] = request, incoming.status
                yield incoming
        except ApiError as error:
            self.asked[-1] = request, error.status.code
            raise

    def queries(self) -> list[dict[str, str]]:
        return [dict(request.query) for request, _ in self.asked]

    def whole(self) -> int:
        """Return how often the whole list was asked for; further pages do not count."""
        return sum(
            "continue" not in query and ("watch" not in query or "sendInitialEvents" in query)
            for query in self.queries()
        )


def _compares(request: ApiRequest) -> bool:
    return "PartialObjectMetadata" in request.accept and not {"resourceVersion", "watch"} & dict(request.query).keys()


class Watching:
    """`with Watching(kubeconfig, spec) as seen:`."""

    def __init__(
        self,
        path: Path,
        spec: KubeWatch,
        decode: Decode[Any] = plain,
        timing: WatchTiming = WatchTiming(),  # noqa: B008
        streams: bool = True,
        **deps: Any,
    ) -> None:
        self.kube = Counting(path, **deps)
        self.kube.capabilities.watch_list = streams
        self._spec, self._decode, self._timing = spec, decode, timing
        self.values: list[Mapping[Any, Any]] = []
        self.troubles: list[str] = []
        self.last: Any = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._started = threading.Event()
        self._stop: Callable[[], object] = lambda: None

    async def _run(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._follow())
            self._started.set()
            await stopped.wait()
            task.cancel()
        self.kube.close()

    async def _follow(self) -> None:
        async with closing(watch_kube(self.kube, self._spec, self._decode, self._timing)) as items:
            async for item in items:
                if isinstance(item, Unavailable):
                    self.troubles.append(item.reason)
                elif not isinstance(item, Unchanged):
                    self.values.append(item)
                self.last = item

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._thread.join()

    @property
    def value(self) -> Mapping[Any, Any] | None:
        return self.values[-1] if self.values else None

    def names(self) -> set[str]:
        return {name for _, name in self.value or {}}

    def until(self, ask: Callable[[], Any], what: str) -> None:
        """Wait until something is so."""
        try:
            until(ask, what)
        except BaseException as failure:
            failure.add_note(
                f"values: {self.values[-3:]}\ntroubles: {self.troubles[-5:]}\nasked: {self.kube.asked[-5:]}"
            )
            raise

    def live(self) -> bool:
        """Tell whether there is a value and no trouble."""
        return bool(self.values) and not isinstance(self.last, Unavailable)


def kubeconfig(access: Access, folder: Path, name: str = "kubeconfig") -> Path:
    return access.kubeconfig(folder / name)
