"""All documents of a run, migrated together: what one of them says may belong into another.

Old objects are looked at first, with the workloads that name them; then each document is migrated by itself. A list, as
`kubectl get -o yaml` writes it, becomes its items if one of them changes. What is of no old kind stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.operator.migration.flags import KIND as FLAGS
from wigwag.operator.migration.flags import migrate_flags
from wigwag.operator.migration.remarks import GROUP, Migrated, members
from wigwag.operator.migration.sources import KIND as SOURCES
from wigwag.operator.migration.sources import migrate_source, source_spec
from wigwag.operator.migration.workloads import OldObjects, migrate_workload, object_name, referenced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.operator.names import ObjectName

Json: TypeAlias = Any


def migrate(documents: Sequence[Json]) -> list[Migrated]:
    """Migrate documents; each has its result at the same place."""
    objects = [each for document in documents for each in _objects(document) if isinstance(each, dict)]
    specs = {
        kind: {object_name(each): members(each.get("spec")) for each in objects if _is_old(each, kind)}
        for kind in (FLAGS, SOURCES)
    }
    settings = {name: source_spec(spec)[0] for name, spec in specs[SOURCES].items()}
    old = OldObjects(specs[FLAGS], {name: spec for name, spec in settings.items() if not spec.get("sources")})
    named = frozenset(name for each in objects for name in referenced(each))
    return [_document(each, old, named) for each in documents]


def _document(document: Json, old: OldObjects, named: frozenset[ObjectName]) -> Migrated:
    objects = _objects(document)
    if objects == [document]:
        return _object(document, old, named)
    results = [_object(each, old, named) for each in objects]
    remarks = tuple(
        remark._replace(path=f"$.items[{at}]{remark.path.removeprefix('$')}")
        for at, result in enumerate(results)
        for remark in result.remarks
    )
    if all(result.objects is None for result in results):
        return Migrated(remarks=remarks)
    pairs = zip(objects, results, strict=True)
    made = [new for each, result in pairs for new in ((each,) if result.objects is None else result.objects)]
    return Migrated(tuple(made), remarks)


def _object(manifest: Json, old: OldObjects, named: frozenset[ObjectName]) -> Migrated:
    if not isinstance(manifest, dict):
        return Migrated()
    name = object_name(manifest)
    if _is_old(manifest, FLAGS):
        return migrate_flags(manifest, moved=name in named)
    if _is_old(manifest, SOURCES):
        return migrate_source(manifest, folded=name in named)
    return migrate_workload(manifest, old)


def _objects(document: Json) -> list[Json]:
    """Return the items of a list; the document itself if it is none."""
    items = document.get("items") if isinstance(document, dict) else None
    return items if isinstance(items, list) and str(document.get("kind")).endswith("List") else [document]


def _is_old(manifest: Json, kind: str) -> bool:
    return manifest.get("kind") == kind and str(manifest.get("apiVersion")).startswith(f"{GROUP}/v1alpha")
