"""One pod on the test kubelet's node, from binding to its end.

The order is the kubelet's: volumes, then each native sidecar until its startup probe passes, then the other containers,
then readiness. A pod of a Job ends as soon as all of it runs: its containers are done, and then its sidecars are ended.
Initial delays of probes are left out.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.dflag.kubelet import Volume
from tests.real.containers import RUN, RunningContainer, Surroundings
from tests.real.podstatus import PodProgress, pod_status, sidecars
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import CONFIG_MAP, POD, SECRET, SERVICE_ACCOUNT
from wigwag.wire.client.errors import FetchError

if TYPE_CHECKING:
    from tests.real.kubelet import Kubelet

PAUSE, PERIOD = 0.05, 1.0
"""Seconds between two probes: of a pod that is not ready, and of one that is."""
LAZY = "test/lazy-mounts"
"""An annotation of pods whose mounted ConfigMaps are written again only when the pod itself is changed. A real kubelet
also looks about once a minute."""
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class PodWorker:
    """Runs a pod until `leaving` is set, and then lets go of it."""

    def __init__(self, kubelet: Kubelet, pod: Mapping[str, Any], folder: Path, address: str) -> None:
        self.pod, self._kubelet, self._folder, self.address = pod, kubelet, folder, address
        self.namespace, self.name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self.leaving = asyncio.Event()
        folder.mkdir(exist_ok=True)
        self.say(f"{self.namespace}/{self.name}")
        self._progress = PodProgress()
        self._written: PodProgress | None = None
        self._volumes: dict[str, Volume] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            life = group.create_task(self._live())
            await self.leaving.wait()
            life.cancel()
        with suppress(ApiError):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod["metadata"]["uid"]}}
            await self._kubelet.kube.delete(POD, self.name, self.namespace, options)

    def say(self, text: str) -> None:
        """Note something beside the logs of the pod."""
        with (self._folder / "kubelet.log").open("a") as log:
            log.write(f"{text}\n")

    @property
    def _lazy(self) -> bool:
        return LAZY in (self.pod["metadata"].get("annotations") or {})

    def see_pod(self, pod: Mapping[str, Any]) -> bool:
        """Note the pod as it is now; return whether its mounts are to be written again."""
        before, self.pod = self.pod, pod
        return self._lazy and before["metadata"].get("annotations") != pod["metadata"].get("annotations")

    async def refresh(self) -> None:
        """Write all ConfigMaps again, as they are now."""
        with suppress(ApiError, FetchError):  # the pod goes, or the API server does
            for name, volume in list(self._volumes.items()):
                volume.write(_content(await self._kubelet.kube.get(CONFIG_MAP, name, self.namespace)))

    def see_config_map(self, config_map: Mapping[str, Any]) -> None:
        """Write a ConfigMap again where the pod mounts it."""
        if config_map["metadata"]["namespace"] == self.namespace and not self._lazy:
            volume = self._volumes.get(config_map["metadata"]["name"])
            if volume:
                volume.write(_content(config_map))

    async def _live(self) -> None:
        if not self.pod["spec"].get("nodeName"):
            await self._bind()
        mounts = await self._mount()
        async with asyncio.TaskGroup() as group:
            running, tasks = [], []
            for spec in (*sidecars(self.pod), *self.pod["spec"]["containers"]):
                container = RunningContainer(spec, await self._surroundings(spec, mounts))
                running.append(container)
                if self._kubelet.runs and container.name in RUN:
                    tasks.append(group.create_task(container.run()))
                    while not await container.passes("startupProbe"):  # noqa: ASYNC110 - it tells nobody
                        await asyncio.sleep(PAUSE)
                self._progress = replace(self._progress, started=self._progress.started | {container.name})
            self._progress = replace(self._progress, phase="Running")
            if self.pod["spec"].get("restartPolicy") in ("Never", "OnFailure"):
                await self._report()
                for task in tasks:
                    task.cancel()
            else:
                await self._readiness(running)
        self._progress = PodProgress("Succeeded")
        await self._report()

    async def _readiness(self, containers: list[RunningContainer]) -> None:
        while True:
            passing = [not self._kubelet.runs or await each.passes("readinessProbe") for each in containers]
            ready = frozenset(each.name for each, passes in zip(containers, passing, strict=True) if passes)
            restarts = tuple((each.name, each.restarts) for each in containers if each.restarts)
            self._progress = replace(self._progress, ready=ready, restarts=restarts)
            await self._report()
            await asyncio.sleep(PERIOD if all(passing) else PAUSE)

    async def _report(self) -> None:
        """Write the status, if there is something new to say; wait for an API server that is not there."""
        while self._progress != self._written:
            change = {"status": pod_status(self.pod, self._progress, self.address, timestamp())}
            try:
                with suppress(ApiError):  # the pod is gone, which the watch says, too
                    await self._kubelet.kube.patch(POD, self.name, change, self.namespace, subresource="status")
                self._written = self._progress
            except FetchError:
                await asyncio.sleep(PAUSE)

    async def _bind(self) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": self._kubelet.node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.name}, "target": target}
        await self._kubelet.kube.create(POD, binding, self.namespace, self.name, "binding")

    async def _mount(self) -> dict[str, Path]:
        """Make the directory of every volume; wait for ConfigMaps that are not there yet."""
        mounts = {}
        for volume in self.pod["spec"].get("volumes") or []:
            path = self._folder / volume["name"]
            path.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                await self._mount_config_map(path, volume["configMap"]["name"])
            elif any("serviceAccountToken" in each for each in volume.get("projected", {}).get("sources", ())):
                await self._mount_token(path)
            mounts[volume["name"]] = path
        return mounts

    async def _mount_config_map(self, path: Path, name: str) -> None:
        key = self.namespace, name
        while key not in self._kubelet.config_maps:
            self._progress = PodProgress(trouble=f'configmap "{name}" not found')
            await self._report()
            await asyncio.sleep(PAUSE)
        self._progress = PodProgress()
        self._volumes[name] = Volume(path, _content(self._kubelet.config_maps[key]))

    async def _mount_token(self, path: Path) -> None:
        """Ask for a token of the pod's account that ends with the pod, and write a kubeconfig with it."""
        about = self.pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": about["uid"]}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600, "boundObjectRef": bound},
        }
        account = self.pod["spec"].get("serviceAccountName") or "default"
        made = await self._kubelet.kube.create(SERVICE_ACCOUNT, request, self.namespace, account, "token")
        access = self._kubelet.access.with_token(made["status"]["token"])
        access.kubeconfig(path / "kubeconfig", self.namespace)

    async def _surroundings(self, spec: Mapping[str, Any], volumes: Mapping[str, Path]) -> Surroundings:
        mounts = {each["mountPath"]: volumes[each["name"]] for each in spec.get("volumeMounts") or []}
        services = self._kubelet.services
        variables = {each["name"]: await self._value(each) for each in spec.get("env") or []}
        if ACCOUNT in mounts:
            variables["KUBECONFIG"] = str(mounts[ACCOUNT] / "kubeconfig")
        around = Surroundings(self.address, self._folder, mounts, variables, services.address)
        return replace(around, variables={name: around.local(value) for name, value in variables.items()})

    async def _value(self, variable: Mapping[str, Any]) -> str:
        """Return the value of a variable: its own, or of a Secret or of the pod's metadata."""
        origin = variable.get("valueFrom") or {}
        if reference := origin.get("secretKeyRef"):
            secret = await self._kubelet.kube.get(SECRET, reference["name"], self.namespace)
            return base64.b64decode(secret["data"][reference["key"]]).decode()
        if reference := origin.get("configMapKeyRef"):
            config_map = await self._kubelet.kube.get(CONFIG_MAP, reference["name"], self.namespace)
            return str(config_map["data"][reference["key"]])
        if reference := origin.get("fieldRef"):
            return str(self.pod["metadata"][reference["fieldPath"].removeprefix("metadata.")])
        assert not origin, f"the test kubelet has no value for {json.dumps(variable)}"
        return str(variable.get("value", ""))


def _content(config_map: Mapping[str, Any]) -> dict[str, bytes | str]:
    binary = {key: base64.b64decode(data) for key, data in (config_map.get("binaryData") or {}).items()}
    return {**(config_map.get("data") or {}), **binary}
