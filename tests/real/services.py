"""Services of a cluster on loopback: each has an address, and leads to one of the pods that it selects and are ready.

It is what kube-proxy and the cluster's DNS do together. A Service listens from when somebody first asks for its
address; its ports are those that it has then. Pods behind it are looked up anew for each connection.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

Object = Mapping[str, Any]
Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PAUSE = 0.05


def loopback_address() -> str:
    """Return an address of this machine that nobody else uses: 127.0.0.0/8 has 16 million."""
    return f"127.{random.randint(1, 254)}.{random.randint(0, 255)}.{random.randint(1, 254)}"


def is_ready(pod: Object) -> bool:
    """Tell whether the status of a pod says that it is ready."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class LoopbackServices:
    """The Services of one cluster, given ways to look at its Services and pods."""

    def __init__(self, services: Callable[[], Mapping[tuple[str, str], Object]], pods: Callable[[], Iterable[Object]]):
        self._services, self._pods = services, pods
        self._addresses: dict[tuple[str, str], str] = {}
        self._wanted: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def address(self, namespace: str, name: str) -> str:
        """Return the address of a Service, which need not exist yet."""
        key = namespace, name
        if key not in self._addresses:
            self._addresses[key] = loopback_address()
            self._wanted.put_nowait(key)
        return self._addresses[key]

    async def run(self) -> None:
        """Listen for all that were asked for, until cancelled."""
        with ExitStack() as servers:
            while True:
                key = await self._wanted.get()
                if key not in self._services():
                    await asyncio.sleep(PAUSE)
                    self._wanted.put_nowait(key)
                    continue
                for port in self._services()[key]["spec"]["ports"]:
                    server = await asyncio.start_server(self._forward(key, port), self._addresses[key], port["port"])
                    servers.callback(server.close)

    def _forward(self, key: tuple[str, str], port: Object) -> Connected:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                address = self._behind(key)
                onward_reader, onward_writer = await asyncio.open_connection(address, port["targetPort"])
            except OSError:
                writer.close()
                return
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, onward_writer))
                    group.create_task(_pump(onward_reader, writer))
            except BaseException:  # the cluster ends
                writer.transport.abort()
                onward_writer.transport.abort()
                raise

        return connected

    def _behind(self, key: tuple[str, str]) -> str:
        namespace, service = key[0], self._services()[key]
        selector = service["spec"]["selector"].items()
        for pod in self._pods():
            about = pod["metadata"]
            if about["namespace"] == namespace and selector <= (about.get("labels") or {}).items() and is_ready(pod):
                return str(pod["status"]["podIP"])
        raise ConnectionRefusedError(f"no pod of {service['metadata']['name']} is ready")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
