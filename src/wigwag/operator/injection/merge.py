"""The effective configuration of a pod: the operator's defaults, then every object that it names, later ones on top.

A member counts as set if it is not empty; of an InProcessConfiguration, if it differs from the default in the schema.
The merge of variables reverses their order: the original does, and its tests compare the order.

The API server adds the defaults of the schema to a FeatureFlagSource. So a later object sets, for example, the port
again although its author did not, and the operator's own `SIDECAR_PORT` holds only for pods that name no object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec
from wigwag.operator.resources.inprocessconfiguration import InProcessSpec
from wigwag.operator.resources.kubernetes import ResourceRequirements
from wigwag.operator.settings import comma_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from wigwag.operator.resources.kubernetes import EnvVar
    from wigwag.operator.settings import InProcessSettings, SidecarSettings


def effective_source(settings: SidecarSettings, specs: Iterable[FeatureFlagSourceSpec]) -> FeatureFlagSourceSpec:
    """Return what the FeatureFlagSources of a pod say together."""
    spec = source_defaults(settings)
    for each in specs:
        spec = merge_sources(spec, each)
    return spec


def source_defaults(settings: SidecarSettings) -> FeatureFlagSourceSpec:
    """Return what holds where no FeatureFlagSource says otherwise."""
    return FeatureFlagSourceSpec(
        sources=[],
        management_port=settings.management_port,
        port=settings.port,
        socket_path=settings.socket_path,
        evaluator=settings.evaluator,
        sync_provider_args=list(comma_list(settings.provider_args)),
        default_sync_provider=settings.sync_provider,
        env_var_prefix=settings.env_var_prefix,
        log_format=settings.log_format,
        debug_logging=False,
        probes_enabled=settings.probes_enabled,
    )


def merge_sources(base: FeatureFlagSourceSpec, other: FeatureFlagSourceSpec | None) -> FeatureFlagSourceSpec:
    """Return both together, where the second wins."""
    if other is None:
        return base
    changes = {
        name: _RULES.get(name, _overwrite)(getattr(base, name), value)
        for name in FeatureFlagSourceSpec.__struct_fields__
        if (value := getattr(other, name)) not in (0, "", None) or isinstance(value, bool)
    }
    return replace(base, **changes)


def _overwrite(_base: Any, other: Any) -> Any:
    return other


def _append(base: list[Any], other: list[Any]) -> list[Any]:
    return [*base, *other]


def _append_new(base: list[str], other: list[str]) -> list[str]:
    return list(dict.fromkeys([*base, *other]))


def _overlay(base: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**base, **other}


def _resources(base: ResourceRequirements, other: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(
        {**base.requests, **other.requests}, {**base.limits, **other.limits}, [*base.claims, *other.claims]
    )


def _if_any(base: list[str], other: list[str]) -> list[str]:
    return other or base


def merge_variables(base: Sequence[EnvVar], other: Sequence[EnvVar]) -> list[EnvVar]:
    """Return variables of both, the last of each name, in reversed order; nothing to merge leaves the order alone."""
    if not other:
        return list(base)
    latest: dict[str, EnvVar] = {}
    for each in reversed([*base, *other]):
        latest.setdefault(each.name, each)
    return list(latest.values())


_RULES: dict[str, Callable[[Any, Any], Any]] = {
    "sources": _append,
    "env_vars": merge_variables,
    "sync_provider_args": _append_new,
    "resources": _resources,
    "context_values": _overlay,
    "header_to_context_mappings": _overlay,
    "cors": _if_any,
}
"""How members are merged that are not simply overwritten."""
_DEFAULTS = InProcessSpec()
_PLAIN = [name for name in InProcessSpec.__struct_fields__ if name != "env_vars"]


def effective_in_process(settings: InProcessSettings, specs: Iterable[InProcessSpec]) -> InProcessSpec:
    """Return what the InProcessConfigurations of a pod say together."""
    spec = InProcessSpec(**{name: getattr(settings, name) for name in _PLAIN})
    for each in specs:
        spec = merge_in_process(spec, each)
    return spec


def merge_in_process(base: InProcessSpec, other: InProcessSpec | None) -> InProcessSpec:
    """Return both together. A default in the second does not count, so it cannot set a member back."""
    if other is None:
        return base
    changes = {name: value for name in _PLAIN if (value := getattr(other, name)) not in ("", getattr(_DEFAULTS, name))}
    return replace(base, **changes, env_vars=merge_variables(base.env_vars, other.env_vars))
