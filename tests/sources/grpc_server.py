"""Servers of flag documents: a real one of grpcio, and parts of scripts for one that misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2, sync_service_pb2_grpc

from tests.wire.client.server import Scripted
from wigwag.wire.rpcs.envelope import wrap
from wigwag.wire.rpcs.protobuf import integer, text

NEW, OLD = "/flagd.sync.v1.FlagSyncService/", "/sync.v1.FlagSyncService/"


class _Calls(grpc.ServerInterceptor):
    """Writes down which methods are called, those that do not exist, too."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        self.paths.append(details.method)
        return continuation(details)


class SyncServer:
    """`with SyncServer("{}") as server:`; it streams its document, and again whenever that is changed."""

    def __init__(self, document: str, *, old: bool = False, port: int = 0, compress: bool = False) -> None:
        self._document, self._old, self._wanted, self._over = document, old, port, False
        self._changed = threading.Condition()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self._calls = _Calls()
        self.port = 0
        options: list[tuple[str, Any]] = [("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 1)]
        self._server = grpc.server(
            ThreadPoolExecutor(8),
            interceptors=[self._calls],
            options=options,
            compression=grpc.Compression.Gzip if compress else None,
        )

    @property
    def paths(self) -> list[str]:
        return list(self._calls.paths)

    def __enter__(self) -> Self:
        if self._old:
            sync_service_pb2_grpc.add_FlagSyncServiceServicer_to_server(self, self._server)  # type: ignore[arg-type]
        else:
            sync_pb2_grpc.add_FlagSyncServiceServicer_to_server(self, self._server)  # type: ignore[arg-type]
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self._wanted}")
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._server.stop(0).wait()

    def change(self, document: str) -> None:
        with self._changed:
            self._document = document
            self._changed.notify_all()

    def SyncFlags(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802 - the service's name
        metadata = {str(name): str(value) for name, value in context.invocation_metadata()}
        self.requests.append((request.provider_id, request.selector, metadata))
        sent: str | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._document != sent)  # noqa: B023 - called at once
                if self._over:
                    return
                sent = self._document
            if self._old:
                state = sync_service_pb2.SyncState.SYNC_STATE_ALL
                yield sync_service_pb2.SyncFlagsResponse(flag_configuration=sent, state=state)
            else:
                yield sync_pb2.SyncFlagsResponse(flag_configuration=sent)

    def FetchAllFlags(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name
        raise NotImplementedError

    GetMetadata = FetchAllFlags


def document(content: str, state: int | None = None) -> bytes:
    """A message of the sync service, in its envelope."""
    return wrap(text(1, content) + (b"" if state is None else integer(2, state)))


async def one(link: Scripted, content: str = "{}") -> int:
    """Greet, and answer the first request with a document; return its stream."""
    link.greet()
    stream = await link.asked()
    link.say(stream, document(content))
    return stream
