"""FlagSourceConfiguration to FeatureFlagSource, and what a FeatureFlagConfiguration says about the agent to the same.

| was | is |
|---|---|
| `metricsPort` | `managementPort` |
| `syncProviders` (early v1alpha3) | `sources` |
| provider `filepath`, `kube-proxy`, `https`, `grpcs` | `file`, `flagd-proxy`, `http`, `grpc` with `tls` |
| `image`, `tag` | settings of the operator, for all agents |

Empty members (0, "", [], null) say nothing, because the API server added them to every object of an old kind.

The hard case is v1alpha2, which has no sources: they came from the annotation of the workload. v1beta1 wants one at
least, so such an object is folded into the FeatureFlagSource of each workload that names it, and is not written itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wigwag.operator.migration.remarks import Migrated, Remark, members, new_object, unmigrated
from wigwag.operator.resources.featureflagsource import PROVIDERS, FeatureFlagSourceSpec, SourceEntry
from wigwag.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

Json: TypeAlias = Any
KIND, NEW_KIND = "FlagSourceConfiguration", "FeatureFlagSource"
_RENAMED = {"metricsPort": "managementPort", "syncProviders": "sources"}
_PROVIDERS = {"filepath": "file", "kube-proxy": "flagd-proxy", "https": "http", "grpcs": "grpc"}
_OF_THE_OPERATOR = {"image": "SIDECAR_IMAGE", "tag": "SIDECAR_TAG"}


def _names(record: type) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(record))


_FIELDS, _ENTRY_FIELDS = _names(FeatureFlagSourceSpec), _names(SourceEntry)


def migrate_source(old: Json, *, folded: bool) -> Migrated:
    """Return the FeatureFlagSource. `folded`: if it has no sources, workloads have what it says."""
    spec, remarks = source_spec(members(old.get("spec")))
    if not spec.get("sources") and folded:
        message = "it has no sources; the FeatureFlagSources of the workloads that name it have its settings"
        return Migrated((), (*remarks, Remark("info", "$.spec", message)))
    if not spec.get("sources"):
        return unmigrated("$.spec", "it has no sources, and v1beta1 needs one at least: add `sources`")
    if error := refusal(spec):
        return unmigrated("$.spec", error)
    return Migrated((new_object(old, NEW_KIND, spec),), remarks)


def refusal(spec: Json) -> str:
    """Return why the API server would refuse a spec; empty if it would not."""
    try:
        msgspec.convert(spec, FeatureFlagSourceSpec)
    except msgspec.ValidationError as error:
        return str(error)
    named = [spec.get("defaultSyncProvider"), *(each.get("provider") for each in spec["sources"])]
    unknown = next((name for name in named if name and name not in PROVIDERS), "")
    return f"unknown provider {unknown!r}; use one of {', '.join(PROVIDERS)}" if unknown else ""


def source_spec(old: Json) -> tuple[Json, tuple[Remark, ...]]:
    """Return the spec of the FeatureFlagSource for that of a FlagSourceConfiguration, and what is lost."""
    remarks: list[Remark] = []
    spec: Json = {}
    for name, value in old.items():
        new = _RENAMED.get(name, name)
        if empty(value):
            continue
        if name in _OF_THE_OPERATOR:
            variable = _OF_THE_OPERATOR[name]
            message = f"{name} {value!r} is dropped: set {variable} of the operator, which is for all agents"
            remarks.append(Remark("warning", f"$.spec.{name}", message))
        elif new in _FIELDS:
            spec[new] = value
        else:
            remarks.append(_unknown(f"$.spec.{name}", name, _FIELDS))
    if "defaultSyncProvider" in spec:
        spec["defaultSyncProvider"] = provider_name(spec["defaultSyncProvider"])
    if isinstance(spec.get("sources"), list):
        remarks += _entries(spec)
    return spec, tuple(remarks)


def _entries(spec: Json) -> list[Remark]:
    """Migrate the entries of `sources`, and return what is lost."""
    remarks, entries = [], []
    for at, entry in enumerate(spec["sources"]):
        if not isinstance(entry, dict):
            continue  # the check of the whole says so
        known = {name: value for name, value in entry.items() if name in _ENTRY_FIELDS and not empty(value)}
        remarks += [
            _unknown(f"$.spec.sources[{at}].{name}", name, _ENTRY_FIELDS) for name in entry if name not in _ENTRY_FIELDS
        ]
        if "provider" in known:
            known["provider"] = provider_name(known["provider"])
        if entry.get("provider") == "grpcs":
            known["tls"] = True
        entries.append(known)
    spec["sources"] = entries
    return remarks


def _unknown(path: str, name: str, known: Iterable[str]) -> Remark:
    hint = suggest(name, list(known))
    return Remark("warning", path, f"{name} is dropped: it is no field{'; ' * bool(hint)}{hint}")


def provider_name(old: Json) -> Json:
    """Return what a provider is called now.

    >>> provider_name("filepath"), provider_name("http")
    ('file', 'http')
    """
    return _PROVIDERS.get(old, old) if isinstance(old, str) else old


def empty(value: Json) -> bool:
    """Tell whether a member says nothing; False says something."""
    return value is not False and not value


def flags_source(name: str, old: Json) -> Json:
    """Return the spec of a FeatureFlagSource for a FeatureFlagConfiguration that a workload names.

    >>> flags_source("shop", {"syncProvider": {"name": "filepath"}, "flagDSpec": {"metricsPort": 9000}})
    {'managementPort': 9000, 'sources': [{'source': 'shop', 'provider': 'file'}]}
    """
    sync, agent = members(old.get("syncProvider")), members(old.get("flagDSpec"))
    remote = members(sync.get("httpSyncConfiguration"))
    provider = provider_name(sync.get("name")) or "kubernetes"
    entry = {"source": remote.get("target") or name, "provider": provider}
    if remote.get("bearerToken"):
        entry["httpSyncBearerToken"] = remote["bearerToken"]
    settings = {"managementPort": agent.get("metricsPort"), "envVars": agent.get("envs")}
    settings["resources"] = old.get("resources")
    return {name: value for name, value in settings.items() if not empty(value)} | {"sources": [entry]}


def folded_specs(specs: Iterable[Json]) -> Json:
    """Return several specs as one; sources and variables add up, and of anything else the last one counts."""
    result: Json = {}
    for spec in specs:
        for name, value in spec.items():
            before = result.get(name, [])
            adds = name in ("sources", "envVars", "syncProviderArgs") and isinstance(value, list)
            result[name] = [*before, *value] if adds else value
    return result
