"""The pods that ask for agents, watched for upgrades and for the watchdog: those that are this operator's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.kube.control.informer import Informer
from wigwag.kube.kinds import POD
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.upgrades.pods import OFF, MissedPod, SidecarPod, is_opted_out, read_pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.controllers.namespaces import Namespaces
    from wigwag.operator.upgrades.pods import ObservedPod


class ObservedPods:
    """The newest pods. Run it, and wait until it is synced."""

    def __init__(self, context: ControlContext, namespaces: Namespaces) -> None:
        self._context, self._namespaces = context, namespaces
        self._informer: Informer[ObservedPod] = Informer()

    async def run(self) -> None:
        """Watch, until cancelled; if nobody needs to know them, there is nothing to do."""
        options = self._context.settings.options
        if (options.sidecar_upgrade, options.watchdog) != (OFF, OFF):
            await self._informer.follow(self._context.watch(KubeWatch(POD), read_pod))

    async def synced(self) -> None:
        """Wait until all of them are known."""
        await self._namespaces.synced()
        await self._informer.synced()

    def on_change(self, listen: Callable[[], object]) -> None:
        """Have a function called when a pod that asks for an agent, or a namespace, has changed."""
        self._informer.feed(lambda _: listen(), lambda *_: (None,))
        self._namespaces.on_change(lambda _: listen())

    def agents(self) -> list[SidecarPod]:
        """Return the pods with an agent."""
        return [
            pod._replace(opted_out=pod.opted_out or is_opted_out(self._namespaces.annotations(pod.name.namespace)))
            for pod in (self._informer.objects or {}).values()
            if isinstance(pod, SidecarPod) and self._namespaces.owns_pod(pod.name.namespace, pod.revision)
        ]

    def missed(self) -> list[MissedPod]:
        """Return the pods that should have an agent, and have none."""
        return [
            pod
            for pod in (self._informer.objects or {}).values()
            if isinstance(pod, MissedPod) and self._namespaces.owns_pod(pod.name.namespace, pod.revision)
        ]

    def missed_pod(self, key: Key) -> MissedPod | None:
        """Return a pod that should have an agent, if this one is still there."""
        return next((pod for pod in self.missed() if pod.name == key), None)
