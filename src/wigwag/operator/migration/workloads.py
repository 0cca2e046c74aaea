"""Annotations of pod templates: the old gate, and what names flags and sources.

| was | is |
|---|---|
| `openfeature.dev: enabled` | `openfeature.dev/enabled: "true"` |
| `openfeature.dev/flagsourceconfiguration: A` | `openfeature.dev/featureflagsource: A` |
| `openfeature.dev/featureflagconfiguration: F` | `openfeature.dev/featureflagsource: KIND-NAME`, a new object |

v1beta1 pods name sources, never flags. So a workload that names flags gets a FeatureFlagSource of its own, with a
source for each of them, and with what the old objects said about the agent. It comes first in the list: what the
FlagSourceConfigurations say counts more, as before.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.operator.migration.remarks import VERSION, Migrated, Remark, members, unmigrated
from wigwag.operator.migration.sources import NEW_KIND, flags_source, folded_specs, refusal
from wigwag.operator.names import ENABLED, FEATURE_FLAG_SOURCE, ObjectName, parse_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json: TypeAlias = Any
OLD_ENABLED = "openfeature.dev"
OLD_FLAGS = "openfeature.dev/featureflagconfiguration"
OLD_SOURCES = "openfeature.dev/flagsourceconfiguration"
_OLD = (OLD_ENABLED, OLD_FLAGS, OLD_SOURCES)
_TEMPLATES = (("spec", "template"), ("spec", "jobTemplate", "spec", "template"), ("template",))


@dataclass(frozen=True)
class OldObjects:
    """What the old objects of a run say about agents."""

    flags: Mapping[ObjectName, Json]
    """The specs of FeatureFlagConfigurations."""
    settings: Mapping[ObjectName, Json]
    """What FlagSourceConfigurations without sources say, as specs of FeatureFlagSources."""


@dataclass(frozen=True)
class _References:
    """What the annotations of a pod template name."""

    namespace: str
    flags: Sequence[ObjectName]
    sources: Sequence[ObjectName]

    def written(self, name: ObjectName) -> str:
        return name.name if name.namespace == self.namespace else str(name)


def object_name(manifest: Json) -> ObjectName:
    """Return the name of an object; a manifest without a namespace is in none."""
    metadata = members(manifest.get("metadata"))
    name = metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-")
    return ObjectName(str(metadata.get("namespace") or ""), str(name))


def referenced(manifest: Json) -> Iterator[ObjectName]:
    """Yield the old objects that a workload names together with flags, whose settings it gets."""
    for _, given in _annotated(manifest):
        names = _references(given, object_name(manifest).namespace)
        if names.flags:
            yield from (*names.flags, *names.sources)


def migrate_workload(manifest: Json, old: OldObjects) -> Migrated:
    """Return a workload with new annotations, and the FeatureFlagSource that it needs."""
    changed, made = deepcopy(manifest), []
    remarks: list[Remark] = []
    for path, given in _annotated(changed):
        names = _references(given, object_name(manifest).namespace)
        spec = _own_spec(names, old)
        if spec and (error := refusal(spec)):
            return unmigrated(f"{path}.annotations", f"its FeatureFlagSource would be refused: {error}")
        if spec:
            made.append(_own_source(manifest, spec))
            message = f"the flags come from the new FeatureFlagSource {made[-1]['metadata']['name']}"
            remarks.append(Remark("info", f'{path}.annotations["{OLD_FLAGS}"]', message))
        _rewrite(given, [each["metadata"]["name"] for each in made], names, old)
    if changed == manifest:
        return Migrated(remarks=tuple(_misplaced(manifest)))
    return Migrated((*made, changed), (*remarks, *_misplaced(manifest)))


def _templates(manifest: Json) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield the pod templates of an object, and the path to each; a pod is its own."""
    for place in [()] if manifest.get("kind") == "Pod" else _TEMPLATES:
        template = manifest
        for step in place:
            template = members(template).get(step)
        if isinstance(template, dict):
            yield ".".join(("$", *place)), template


def _annotated(manifest: Json) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield the annotations of pod templates that have old ones, and the path to what has them."""
    for path, template in _templates(manifest):
        annotations = members(members(template.get("metadata")).get("annotations"))
        if any(name in annotations for name in _OLD):
            yield f"{path}.metadata", annotations


def _references(annotations: Mapping[str, Any], namespace: str) -> _References:
    flags, sources = (parse_names(str(annotations.get(name) or ""), namespace) for name in (OLD_FLAGS, OLD_SOURCES))
    return _References(namespace, flags, sources)


def _own_spec(names: _References, old: OldObjects) -> Json:
    """Return the spec of the workload's own FeatureFlagSource; None if it needs none."""
    if not names.flags:
        return None
    flags = [flags_source(names.written(name), old.flags.get(name) or {}) for name in names.flags]
    return folded_specs([*flags, *(old.settings[name] for name in names.sources if name in old.settings)])


def _own_source(manifest: Json, spec: Json) -> Json:
    namespace, name = object_name(manifest)
    metadata = {
        "name": f"{str(manifest.get('kind') or 'pod').lower()}-{name}",
        **({"namespace": namespace} if namespace else {}),
    }
    return {"apiVersion": VERSION, "kind": NEW_KIND, "metadata": metadata, "spec": spec}


def _rewrite(annotations: dict[str, str], own: Sequence[str], names: _References, old: OldObjects) -> None:
    """Replace the old annotations, in their places."""
    kept = [names.written(name) for name in names.sources if not (own and name in old.settings)]
    present = [annotations[FEATURE_FLAG_SOURCE]] if FEATURE_FLAG_SOURCE in annotations else []
    sources = ", ".join((*own, *kept, *present))
    new: dict[str, str] = {}
    for name, value in annotations.items():
        if name == OLD_ENABLED:
            new.setdefault(ENABLED, "true" if value == "enabled" else "false")
        elif name in (OLD_FLAGS, OLD_SOURCES, FEATURE_FLAG_SOURCE):
            new[FEATURE_FLAG_SOURCE] = sources
        else:
            new[name] = value
    annotations.clear()
    annotations.update(new)


def _misplaced(manifest: Json) -> Iterator[Remark]:
    """Yield old annotations of the workload itself, which never had an effect."""
    annotations = members(members(manifest.get("metadata")).get("annotations"))
    if manifest.get("kind") == "Pod" or not any(_templates(manifest)):
        return
    for name in _OLD:
        if name in annotations:
            message = f"{name} is on the {manifest.get('kind')}, where it has no effect: put it on the pod template"
            yield Remark("warning", f'$.metadata.annotations["{name}"]', message)
