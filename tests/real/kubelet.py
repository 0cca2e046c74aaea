"""A small kubelet: pods get a node, an address, mounts and a status, and the agents in them run for real.

An agent or proxy is a local process of this checkout with the command of its container (`containers`); the application
beside it is only marked as running. Every pod has a loopback address of its own, so all of them listen on the ports
that their objects say. Rights are real: an agent asks the API server with a token of the pod's own service account.

    watch of pods ──▶ one PodWorker per pod ──▶ processes, mounts, status
    watch of ConfigMaps and Secrets ──▶ the mounts of those pods, in the kubelet's own write order

There is one node and no scheduler: the kubelet binds what is not bound. With `runs=False` no process is started, and
all pods are ready at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from traceback import format_exception
from types import TracebackType
from typing import Any, Self

from tests.real.access import Access
from tests.real.podworker import PAUSE, PodWorker, timestamp
from tests.real.services import LoopbackServices, loopback_address
from wigwag.kube.client import Kube, KubeDeps
from wigwag.kube.config.cluster import find_cluster
from wigwag.kube.errors import ApiError
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import CONFIG_MAP, LEASE, NODE, POD, SECRET, SERVICE, Kind
from wigwag.kube.watch.decode import plain
from wigwag.kube.watch.spec import KubeWatch
from wigwag.wire.client.errors import FetchError

HEARTBEAT = 10.0
"""Seconds; without one for 40 s, the controllers take the node for lost, and its pods for not ready."""
ENDED = ("Succeeded", "Failed")
Objects = Mapping[tuple[str, str], Any]


class Kubelet:
    """`with Kubelet(access, folder):` runs the pods of a cluster; `folder` gets their logs and mounts."""

    def __init__(self, access: Access, folder: Path, *, node: str = "node", runs: bool = True) -> None:
        self.access, self.node, self.runs, self._folder = access, node, runs, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._address = loopback_address()
        self.config_maps: Objects = {}
        self.secrets: Objects = {}
        self._pods: Objects = {}
        self._known_services: Objects = {}
        self._workers: dict[str, PodWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._started = threading.Event()
        self._stop: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(40), "the kubelet could not register its node"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._thread.join()

    def volume(self, pod: Mapping[str, Any], name: str) -> Path:
        """Return the directory that stands for a volume of a pod."""
        return self._folder_of(pod["metadata"]["uid"]) / name

    def replace_token(self, pod: Mapping[str, Any], token: str) -> None:
        """Have a pod find another token where it has one for somebody else than the API server."""
        self._loop.call_soon_threadsafe(self._workers[pod["metadata"]["uid"]].replace_token, token)

    def _folder_of(self, uid: str) -> Path:
        """Return the directory of a pod. It is short, because the path of a Unix socket has 107 characters at most."""
        return self._folder / uid[:8]

    async def _main(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        config = self.access.kubeconfig(self._folder / "kubeconfig")
        self.kube = Kube(find_cluster({}, str(config)), KubeDeps(environment={}))
        hub = Hub(lambda: self.kube)
        self.services = LoopbackServices(lambda: self._known_services, lambda: self._pods.values())
        await self._register()
        async with asyncio.TaskGroup() as group:
            follow = (
                self._follow(hub, POD, lambda objects: self._see_pods(objects, group)),
                self._follow(hub, CONFIG_MAP, self._see_config_maps),
                self._follow(hub, SECRET, self._see_secrets),
                self._follow(hub, SERVICE, self._see_services),
            )
            beside = [group.create_task(each) for each in (hub.run(), self._beat(), self.services.run(), *follow)]
            self._started.set()
            await stopped.wait()
            for task in (*beside, *self._tasks):
                task.cancel()

    async def _register(self) -> None:
        now = timestamp()
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        capacity = {"cpu": "1000", "memory": "1Ti", "pods": "10000"}
        await self.kube.apply(NODE, node, "kubelet")
        status = {"conditions": [ready], "capacity": capacity, "allocatable": capacity}
        await self.kube.patch(NODE, self.node, {"status": status}, subresource="status")

    async def _beat(self) -> None:
        about = {"name": self.node, "namespace": "kube-node-lease"}
        while True:
            now = timestamp().replace("Z", ".000000Z")
            spec = {"holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": now}
            lease = {"apiVersion": LEASE.api, "kind": "Lease", "metadata": about, "spec": spec}
            with suppress(ApiError, FetchError):  # the API server is restarted
                await self.kube.apply(LEASE, lease, "kubelet")
            await asyncio.sleep(HEARTBEAT)

    async def _follow(self, hub: Hub, kind: Kind, see: Callable[[Objects], object]) -> None:
        async for item in hub.watch(KubeWatch(kind), plain):
            if isinstance(item, Mapping):
                see(item)

    def _see_config_maps(self, objects: Objects) -> None:
        self.config_maps = objects
        self._remount()

    def _see_secrets(self, objects: Objects) -> None:
        self.secrets = objects
        self._remount()

    def _remount(self) -> None:
        for worker in self._workers.values():
            worker.remount()

    def _see_services(self, objects: Objects) -> None:
        self._known_services = objects

    def _see_pods(self, objects: Objects, group: asyncio.TaskGroup) -> None:
        """Start a worker for each pod that is new, and end those whose pods are deleted."""
        self._pods = objects
        present = {pod["metadata"]["uid"]: pod for pod in objects.values() if self._is_ours(pod)}
        for uid, pod in present.items():
            deleted = "deletionTimestamp" in pod["metadata"]
            if uid not in self._workers and (deleted or pod.get("status", {}).get("phase") not in ENDED):
                address = self._address if pod["spec"].get("hostNetwork") else loopback_address()
                self._workers[uid] = PodWorker(self, pod, self._folder_of(uid), address)
                self._tasks.add(task := group.create_task(self._work(uid)))
                task.add_done_callback(self._tasks.discard)
            elif uid in self._workers and self._workers[uid].see_pod(pod):
                self._tasks.add(task := group.create_task(self._workers[uid].refresh()))
                task.add_done_callback(self._tasks.discard)
            if deleted and uid in self._workers:
                self._workers[uid].leaving.set()
        for uid in self._workers.keys() - present.keys():
            self._workers[uid].leaving.set()

    def _is_ours(self, pod: Mapping[str, Any]) -> bool:
        return bool(pod["spec"].get("nodeName", self.node) == self.node)

    async def _work(self, uid: str) -> None:
        """Run a worker until its pod is gone. What goes wrong, such as a missing Secret, is noted and tried again."""
        worker, done = self._workers[uid], False
        try:
            while not done:
                try:
                    await worker.run()
                    done = True
                except* Exception as errors:  # noqa: BLE001 - a bad pod does not hurt its neighbours
                    worker.say("".join(format_exception(errors)))
                    await asyncio.sleep(PAUSE)
        finally:
            del self._workers[uid]
