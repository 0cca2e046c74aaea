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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.dflag.kubelet import Volume
from tests.real.containers import RUN, RunningContainer, Surroundings
from tests.real.podstatus import PodProgress, pod_status, sidecars
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import CONFIG_MAP, POD, SECRET, SERVICE_ACCOUNT
from wigwag.pipeline.clock import LoopClock, wait_event
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


@dataclass(frozen=True)
class MountedVolume:
    """A volume that is written again when an object changes that it is made of."""

    files: Volume
    parts: Sequence[Mapping[str, Any]]
    tokens: dict[str, str]


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
        self._volumes: list[MountedVolume] = []
        self._running: list[RunningContainer] = []
        self._changed = asyncio.Event()

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
        """Restart the containers whose image has changed; return whether its mounts are to be written again."""
        before, self.pod = self.pod, pod
        specs = {each["name"]: each for each in (*sidecars(pod), *pod["spec"]["containers"])}
        for container in self._running:
            container.change(specs[container.name])
        self._changed.set()
        return self._lazy and before["metadata"].get("annotations") != pod["metadata"].get("annotations")

    async def refresh(self) -> None:
        """Write all volumes again, as they are now at the API server."""
        with suppress(ApiError, FetchError):  # the pod goes, or the API server does
            for volume in list(self._volumes):
                for part in volume.parts:
                    if name := part.get("configMap", {}).get("name"):
                        live = await self._kubelet.kube.get(CONFIG_MAP, name, self.namespace)
                        self._kubelet.config_maps = {**self._kubelet.config_maps, (self.namespace, name): live}
            self._write_volumes()

    def replace_token(self, token: str) -> None:
        """Write another token, as the kubelet does before one ends, into the volumes that have one."""
        for volume in self._volumes:
            volume.tokens.update(dict.fromkeys(volume.tokens, token))
        self._write_volumes()

    def remount(self) -> None:
        """Write volumes again, where an object that they are made of has changed; not at once, if the pod is lazy."""
        if not self._lazy:
            self._write_volumes()

    def _write_volumes(self) -> None:
        """Write volumes. An object that is gone changes nothing, unless it is optional: then its files go."""
        for volume in self._volumes:
            if (content := self._content(volume)) is not None:
                volume.files.write(content)

    async def _live(self) -> None:
        if not self.pod["spec"].get("nodeName"):
            await self._bind()
        mounts = await self._mount()
        async with asyncio.TaskGroup() as group:
            running, tasks = self._running, []
            running.clear()
            for spec in (*sidecars(self.pod), *self.pod["spec"]["containers"]):
                container = RunningContainer(spec, await self._surroundings(spec, mounts))
                running.append(container)
                if not self._kubelet.runs or container.name not in RUN:
                    container.starts = 1
                else:
                    tasks.append(group.create_task(container.run()))
                    while not await container.passes("startupProbe"):
                        if container.waiting:
                            self._progress = replace(self._progress, **self._counts())
                            await self._report()
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
            counts = self._counts()  # first: a new container is not ready because the old one was
            passing = [not self._kubelet.runs or await each.passes("readinessProbe") for each in containers]
            ready = frozenset(each.name for each, passes in zip(containers, passing, strict=True) if passes)
            self._progress = replace(self._progress, ready=ready, **counts)
            await self._report()
            until = LoopClock().now() + (PERIOD if all(passing) else PAUSE)
            await wait_event(LoopClock(), self._changed, until)

    def _counts(self) -> dict[str, Any]:
        """Return what the containers have come through."""
        return {
            "restarts": tuple((each.name, each.restarts) for each in self._running if each.restarts),
            "starts": tuple((each.name, each.starts) for each in self._running),
            "waiting": tuple((each.name, each.waiting) for each in self._running if each.waiting),
        }

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
        """Make the directory of every volume; wait for ConfigMaps and Secrets that are not there yet."""
        mounts = {}
        for volume in self.pod["spec"].get("volumes") or []:
            path = self._folder / volume["name"]
            path.mkdir(parents=True, exist_ok=True)
            parts = volume["projected"]["sources"] if "projected" in volume else [volume]
            tokens = [each["serviceAccountToken"] for each in parts if "serviceAccountToken" in each]
            if any("audience" not in each for each in tokens):
                token = await self._token(tokens[0])
                self._kubelet.access.with_token(token).kubeconfig(path / "kubeconfig", self.namespace)
            elif tokens or any(kind in each for each in parts for kind in ("configMap", "secret")):
                issued = {each["path"]: await self._token(each) for each in tokens}
                await self._fill(MountedVolume(Volume(path), parts, issued))
            mounts[volume["name"]] = path
        return mounts

    async def _fill(self, volume: MountedVolume) -> None:
        while (content := self._content(volume)) is None:
            self._progress = PodProgress(trouble=f"not found: {json.dumps(volume.parts)}")
            await self._report()
            await asyncio.sleep(PAUSE)
        self._progress = PodProgress()
        volume.files.write(content)
        self._volumes.append(volume)

    def _content(self, volume: MountedVolume) -> dict[str, bytes | str] | None:
        """Return the files of a volume; None if an object is not there."""
        content: dict[str, bytes | str] = dict(volume.tokens)
        for part in volume.parts:
            if "configMap" in part:
                reference = part["configMap"]
                found = self._kubelet.config_maps.get((self.namespace, reference["name"]))
                files = _files(found or {})
            elif "secret" in part:
                reference = part["secret"]
                found = self._kubelet.secrets.get((self.namespace, reference["secretName"]))
                files = _decoded((found or {}).get("data"))
            else:
                continue
            if found is None and not reference.get("optional"):
                return None
            content |= _chosen(files, reference.get("items"))
        return content

    async def _token(self, projection: Mapping[str, Any]) -> str:
        """Ask for a token of the pod's account that ends with the pod."""
        about = self.pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": about["uid"]}
        audiences = {"audiences": [projection["audience"]]} if "audience" in projection else {}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": projection.get("expirationSeconds", 3600),
                "boundObjectRef": bound,
                **audiences,
            },
        }
        account = self.pod["spec"].get("serviceAccountName") or "default"
        made = await self._kubelet.kube.create(SERVICE_ACCOUNT, request, self.namespace, account, "token")
        return str(made["status"]["token"])

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


def _files(source: Mapping[str, Any]) -> dict[str, bytes | str]:
    """Return the files of a ConfigMap."""
    return {**(source.get("data") or {}), **_decoded(source.get("binaryData"))}


def _decoded(data: Mapping[str, str] | None) -> dict[str, bytes | str]:
    return {key: base64.b64decode(text) for key, text in (data or {}).items()}


def _chosen(files: Mapping[str, bytes | str], items: list[Mapping[str, str]] | None) -> dict[str, bytes | str]:
    return (
        dict(files) if items is None else {each["path"]: files[each["key"]] for each in items if each["key"] in files}
    )
