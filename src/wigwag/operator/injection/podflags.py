"""The FeatureFlags that annotations of a pod name beside its sources: standing orders, and its direct set.

    sources < standing orders of the workload < standing orders of the pod < direct set

A later one wins. A flag that is named twice is served once, in its last place. The provider is the default one of the
pod's sources or of the operator; where that reads no FeatureFlags, it is `kubernetes`.

The hard case is a direct set whose FeatureFlag does not exist yet, because the controller that makes it is not that
fast: it is not waited for, since the agent does that (`PodFlags.awaited`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from wigwag.errors import UsageError
from wigwag.operator.names import (
    DIRECT_SET,
    INLINE_FLAGS,
    STANDING_ORDERS,
    ObjectName,
    generated_name,
    parse_name,
    parse_names,
)
from wigwag.operator.resources.featureflagsource import FLAG_PROVIDERS, KUBERNETES, SourceEntry
from wigwag.sources.kubernetes.references import ORDERS, references

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec


class PodFlags(NamedTuple):
    """What a pod is to get beside its sources."""

    orders: tuple[ObjectName, ...] = ()
    direct: ObjectName | None = None
    problem: str = ""
    """Why an annotation cannot be read."""

    @property
    def names(self) -> tuple[ObjectName, ...]:
        """All of them, each once; later ones win."""
        return tuple(each for each in self.orders if each != self.direct) + self.awaited

    @property
    def awaited(self) -> tuple[ObjectName, ...]:
        """Those that need not exist when the pod is created."""
        return () if self.direct is None else (self.direct,)


def pod_flags(annotations: Mapping[str, str], namespace: str, pod: str = "") -> PodFlags:
    """Return the flags that a pod, or the pods of a template, are to get. `pod` is the name of a pod with its own.

    >>> pod_flags({STANDING_ORDERS: "ops/base", ORDERS[0]: "shop", DIRECT_SET: "web-deployment"}, "team-a").names[-1]
    ObjectName(namespace='team-a', name='web-deployment')
    """
    own, problem = standing_orders(annotations, namespace, "the pod")
    orders = dict.fromkeys((*parse_names(annotations.get(STANDING_ORDERS, ""), namespace), *own))
    direct = annotations.get(DIRECT_SET) or (generated_name("Pod", pod) if INLINE_FLAGS in annotations else "")
    return PodFlags(tuple(orders), ObjectName(namespace, direct) if direct else None, problem)


def standing_orders(annotations: Mapping[str, str], namespace: str, owner: str) -> tuple[tuple[ObjectName, ...], str]:
    """Return the FeatureFlags that standing orders name, and what is wrong with the annotations."""
    if not any(each in annotations for each in ORDERS):
        return (), ""
    try:
        orders = references(annotations, namespace, ORDERS, owner)
    except UsageError as error:
        return (), str(error)
    return tuple(parse_name(name, namespace) for name in orders.names), orders.problem


def with_flags(spec: FeatureFlagSourceSpec, flags: PodFlags, namespace: str) -> FeatureFlagSourceSpec:
    """Return the configuration of an agent with these flags as its last sources."""
    if not flags.names:
        return spec
    default = spec.default_sync_provider
    provider = default if default in FLAG_PROVIDERS else KUBERNETES
    others = [each for each in spec.sources if _flag_of(each, default, namespace) not in flags.names]
    return replace(spec, sources=[*others, *(SourceEntry(source=str(name), provider=provider) for name in flags.names)])


def named_flags(spec: FeatureFlagSourceSpec, namespace: str) -> Iterator[tuple[str, ObjectName]]:
    """Yield the provider and the name of each FeatureFlag that is a source."""
    for entry in spec.sources:
        if flag := _flag_of(entry, spec.default_sync_provider, namespace):
            yield entry.provider or spec.default_sync_provider, flag


def _flag_of(entry: SourceEntry, default: str, namespace: str) -> ObjectName | None:
    is_flag = (entry.provider or default) in FLAG_PROVIDERS
    return parse_name(entry.source, namespace) if is_flag else None
