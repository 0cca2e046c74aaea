"""A real proxy in a process of its own, and clients that subscribe to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.agent.process import AgentProcess

PATIENCE = 100.0


class ProxyProcess(AgentProcess):
    """`with ProxyProcess("--linger=1") as proxy:`; it is up when the block begins."""

    command: ClassVar[tuple[str, ...]] = ("proxy", "start")
    ports: ClassVar[tuple[str, ...]] = ("port", "management-port")

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments, ready=False)

    def metric(self, name: str) -> float | None:
        """Return the value of a metric, by its name with labels."""
        lines = self.fetch("management", "/metrics")[1].decode().splitlines()
        values = (line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == name)
        return next(map(float, values), None)

    def wait_for_trouble(self, target: str, after: int = 0) -> None:
        """Wait until the log warns of a target, after so many lines."""
        self.wait_for_log(lambda line: target in line["msg"] and line.get("level") == "warning", after)

    def targets(self) -> Any:
        """Return what the proxy tells of its targets."""
        return json.loads(self.fetch("management", "/debug/targets")[1])


class Subscriber:
    """A client of grpcio that is subscribed to a target."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def next(self) -> str:
        """Wait for a document and return it."""
        return str(next(self._stream).flag_configuration)

    def document(self) -> Any:
        """Wait for a document and return it decoded."""
        return json.loads(self.next())

    def said(self) -> Any:
        """Wait for a document and return what it says."""
        return self.document()["said"]


@contextmanager
def subscribed(proxy: ProxyProcess, selector: str, timeout: float = PATIENCE) -> Iterator[Subscriber]:
    """Subscribe by a connection of its own; the stream has so many seconds in all."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(proxy.address("sync"), options) as channel:
        stub = sync_pb2_grpc.FlagSyncServiceStub(channel)
        stream = stub.SyncFlags(sync_pb2.SyncFlagsRequest(selector=selector), timeout=timeout)
        yield Subscriber(stream)
        stream.cancel()


def document(said: Any, **more: Any) -> dict[str, Any]:
    """Return a flag document that says something."""
    return {"flags": {}, "said": said, **more}
