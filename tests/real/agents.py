"""Clients of an agent that has its flags from Kubernetes: what they see, and what the agent tells of its source."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Any, Self

import grpc
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2, evaluation_pb2_grpc

from tests.agent.process import AgentProcess
from tests.real.processes import until

RESOLVE = "/flagd.evaluation.v1.Service/ResolveBoolean"


def flags(variant: str = "on", **more: Any) -> dict[str, Any]:
    one = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": variant}
    return {"flags": {"x": one}, **more}


class Client:
    """A client of an agent: what it evaluates to, and every change that it is told of."""

    def __init__(self, agent: AgentProcess) -> None:
        self.agent = agent
        self.changes: list[dict[str, Any]] = []
        self._channel = grpc.insecure_channel(agent.address("evaluation"))
        self._thread = threading.Thread(target=self._listen)
        self._listening = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(40)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()
        self._thread.join()

    def _listen(self) -> None:
        stub = evaluation_pb2_grpc.ServiceStub(self._channel)
        try:
            for event in stub.EventStream(evaluation_pb2.EventStreamRequest()):
                if event.type == "configuration_change":
                    self.changes.append(dict(event.data["flags"]))  # type: ignore[arg-type]
                self._listening.set()
        except grpc.RpcError:
            self._listening.set()

    def value(self, key: str = "x") -> Any:
        """Return what a flag is now; None if there is no such flag."""
        body = self.agent.fetch("evaluation", RESOLVE, {"flagKey": key}, content_type="application/json")[1]
        return json.loads(body).get("value")

    def source(self, number: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.agent.fetch("management", "/debug/sources")[1])[number]
        return found

    def sees(self, value: Any, key: str = "x") -> None:
        until(lambda: self.value(key) is value, f"{key} being {value}")

    def is_told(self, *words: str) -> None:
        """Wait until the status of the source has these words in its error."""
        until(lambda: all(word in (self.source()["error"] or "") for word in words), f"the error {words}")

    def told_of(self, changes: int) -> list[set[str]]:
        """Wait until so many changes have been told; return the flags of each of all that were."""
        until(lambda: len(self.changes) >= changes, f"{changes} changes being told")
        return [set(change) for change in self.changes]

    def ready(self) -> bool:
        return self.agent.fetch("management", "/readyz")[0] == 200
