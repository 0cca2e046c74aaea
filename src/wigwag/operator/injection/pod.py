"""A pod with what is injected into it. What it already has stays as it is, so injecting twice changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from wigwag.operator.injection.patch import covers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from wigwag.operator.resources.kubernetes import EnvVar

Json: TypeAlias = Any


class PodMeta(Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata of a pod."""

    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class PodSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The spec of a pod."""

    containers: list[dict[str, Any]]
    init_containers: list[dict[str, Any]] | None = None
    volumes: list[dict[str, Any]] | None = None
    automount_service_account_token: bool | None = None
    host_network: bool | None = None


class AdmittedPod(Struct, frozen=True, kw_only=True):
    """A pod, as far as injection looks at it."""

    metadata: PodMeta
    spec: PodSpec


def with_annotation(pod: Json, name: str, value: str) -> Json:
    """Return the pod with an annotation."""
    return _with_metadata(pod, "annotations", name, value)


def with_label(pod: Json, name: str, value: str) -> Json:
    """Return the pod with a label."""
    return _with_metadata(pod, "labels", name, value)


def _with_metadata(pod: Json, member: str, name: str, value: str) -> Json:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, member: {**(metadata.get(member) or {}), name: value}}}


def with_init_container(pod: Json, container: Mapping[str, Json]) -> Json:
    """Return the pod with an init container, as the last one or in the place of one with the same name."""
    return _with_items(pod, "initContainers", [container], "name")


def with_volumes(pod: Json, volumes: Iterable[Mapping[str, Json]]) -> Json:
    """Return the pod with volumes; one of the user's with the same name stays."""
    present = pod["spec"].get("volumes") or []
    names = {each["name"] for each in present}
    added = [volume for volume in volumes if volume["name"] not in names]
    return _with_spec(pod, "volumes", [*present, *added]) if added else pod


def with_variables(pod: Json, variables: Sequence[EnvVar]) -> Json:
    """Return the pod with variables in each of its containers. They go before those of the same name."""
    wanted = msgspec.to_builtins(variables)
    containers = [_merged(each, "env", wanted, "name") for each in pod["spec"]["containers"]]
    return _with_spec(pod, "containers", containers)


def with_mount(pod: Json, directory: str, volume: str) -> Json:
    """Return the pod with a volume mounted in each of its containers, except where something is mounted already."""
    mount = {"name": volume, "mountPath": directory}
    containers = [
        each
        if any(present.get("mountPath") == directory for present in each.get("volumeMounts") or [])
        else _merged(each, "volumeMounts", [mount], "mountPath")
        for each in pod["spec"]["containers"]
    ]
    return _with_spec(pod, "containers", containers)


def _with_items(pod: Json, member: str, items: Sequence[Mapping[str, Json]], key: str) -> Json:
    return {**pod, "spec": _merged(pod["spec"], member, items, key)}


def _with_spec(pod: Json, member: str, value: Json) -> Json:
    return {**pod, "spec": {**pod["spec"], member: value}}


def _merged(owner: Json, member: str, items: Sequence[Mapping[str, Json]], key: str) -> Json:
    """Return an object whose list has these items: in the place of one with the same key, or at the end."""
    present = list(owner.get(member) or [])
    places = {each.get(key): index for index, each in enumerate(present)}
    for item in items:
        index = places.get(item[key])
        if index is None:
            present.append(item)
        elif not covers(present[index], item):
            present[index] = item
    return {**owner, member: present} if present else owner
