"""What all controllers share: the API server, what the operator knows, its settings, and how to say what was found.

A status is written only if it differs from the one that was read, as a whole, and for this object only: one that was
deleted and created again meanwhile is another object.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from wigwag.kube.control.informer import reopened
from wigwag.kube.errors import ApiError
from wigwag.operator.reconcile.status import events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.kube.control.controller import ControllerMetrics
    from wigwag.kube.control.events import EventRecorder
    from wigwag.kube.hub import Hub
    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.decode import Decode
    from wigwag.kube.watch.reflector import Item
    from wigwag.kube.watch.spec import KubeWatch
    from wigwag.operator.observed import Observed
    from wigwag.operator.resources.kubernetes import ObjectMeta, ObjectStatus
    from wigwag.operator.settings import OperatorSettings
    from wigwag.pipeline.broadcast import Broadcast

T = TypeVar("T")
MANAGER, APPLIED = "wigwag-operator", "openfeature.dev/applied"
"""The field manager of server-side apply, and the annotation with the hash of what was applied."""


@dataclass(frozen=True)
class ControlContext:
    """What controllers work with."""

    hub: Hub
    known: Broadcast[Observed]
    settings: OperatorSettings
    recorder: EventRecorder
    metrics: ControllerMetrics
    now: Callable[[], float] = time.time
    """Unix seconds."""

    def watch(self, spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
        """Watch objects for ever."""
        deps = self.hub.kube.deps
        return reopened(partial(self.hub.watch, spec, decode), deps.clock, deps.random)

    async def report(self, kind: Kind, about: ObjectMeta, before: ObjectStatus, after: ObjectStatus) -> None:
        """Write the status of an object if it has changed, and record Events about what has become of it."""
        if after == before:
            return
        change = [
            {"op": "test", "path": "/metadata/uid", "value": about.uid},
            {"op": "add", "path": "/status", "value": msgspec.to_builtins(after)},
        ]
        try:
            await self.hub.kube.patch(kind, about.name, change, about.namespace, how="json", subresource="status")
        except ApiError as error:
            if error.not_found or error.invalid:  # it is gone, or another one
                return
            raise
        for event in events(before.conditions, after.conditions):
            self.record(kind, about, event.type, event.reason, event.message)

    def record(
        self, kind: Kind, about: ObjectMeta, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record an Event about an object."""
        metadata = {"namespace": about.namespace, "name": about.name, "uid": about.uid}
        self.recorder.record(kind, {"metadata": metadata}, type, reason, message)
