"""Projections: what they select, and when the digest of a part changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.watt.snapshots import CONFIG_MAPS, consul, kubernetes, services, snapshot
from wigwag.errors import UsageError
from wigwag.watt.snapshots.formats import document
from wigwag.watt.snapshots.projection import MOST_VALUES, Projection, projected_digest
from wigwag.watt.snapshots.snapshot import TableName, WatchPart, WattSnapshot, entry

MAPS = kubernetes(CONFIG_MAPS, "ConfigMap", ("shop", "c"), spelled="cm")
WEB = consul({("dc1", "web"): "10.0.0.1", ("dc1", "api"): "10.0.0.2"})
FILES = WatchPart.of(TableName("Files", "/etc/app"), {("", "a"): entry("a", b'"x"')})


def whole(**fields: Any) -> WattSnapshot:
    return snapshot(services(("shop", "a"), ("admin", "b"), **fields), MAPS, WEB, FILES)


def selected(projection: Projection) -> dict[str, Any]:
    """Return the names of what is selected, by section and table."""
    found = json.loads(b"".join(document(whole().numbered(1, 0.0, None), "v2", projection)))
    listed = found.get("Kubernetes", {}).items()
    kinds = {kind: [each["metadata"]["name"] for each in objects] for kind, objects in listed}
    endpoints = [each["Service"] for each in found.get("Consul", {}).get("Endpoints", [])]
    names = [name for each in kinds.values() for name in each] + endpoints + ["a"] * ("Files" in found)
    assert sorted(each["name"] for each in found["Deltas"]) == sorted(names)  # changes are projected as objects are
    others = {"Endpoints": endpoints} if "Consul" in found else {}
    return kinds | others | ({"Files": 1} if "Files" in found else {})


SERVICES_ONLY = {"services": ["b", "a"]}


@pytest.mark.parametrize(
    ("projection", "expected"),
    [
        (Projection(), {"configmaps": ["c"], **SERVICES_ONLY, "Endpoints": ["api", "web"], "Files": 1}),
        (Projection(kinds=("services",)), SERVICES_ONLY),
        (Projection(kinds=("Service",)), SERVICES_ONLY),
        (Projection(kinds=("SERVICE",)), SERVICES_ONLY),
        (Projection(kinds=("cm",)), {"configmaps": ["c"]}),
        (Projection(kinds=("configmap", "services")), {"configmaps": ["c"], **SERVICES_ONLY}),
        (Projection(kinds=("pods",)), {}),
        (Projection(namespaces=("shop",)), {"configmaps": ["c"], "services": ["a"]}),
        (Projection(kinds=("services",), namespaces=("shop", "admin")), SERVICES_ONLY),
        (Projection(names=("b",)), {"configmaps": [], "services": ["b"]}),
        (Projection(services=("web",)), {"Endpoints": ["web"]}),
        (Projection(kinds=("cm",), services=("web",)), {"configmaps": ["c"], "Endpoints": ["web"]}),
        (Projection(sections=("Consul",)), {"Endpoints": ["api", "web"]}),
        (Projection(kinds=("cm",), sections=("Kubernetes", "Files")), {"configmaps": ["c"], "Files": 1}),
    ],
    ids=str,
)
def test_a_projection_selects(projection: Projection, expected: dict[str, Any]) -> None:
    assert selected(projection) == expected


def test_a_kind_has_the_names_that_any_of_its_watches_has() -> None:
    shop, admin = services(("shop", "a"), spelled="service"), services(("admin", "b"), spelled="svc")
    for name in ("service", "svc", "services", "Service"):
        assert len(Projection(kinds=(name,)).tables(snapshot(shop, admin))) == 1


@pytest.mark.parametrize(
    "projection",
    [Projection(), Projection(kinds=("services",)), Projection(namespaces=("shop",)), Projection(names=("a",))],
    ids=str,
)
def test_the_digest_changes_with_the_part(projection: Projection) -> None:
    assert projected_digest(whole(), projection) == projected_digest(whole(), projection)
    assert projected_digest(whole(), projection) != projected_digest(whole(spec=1), projection)


@pytest.mark.parametrize(
    "projection",
    [
        Projection(kinds=("cm",)),
        Projection(sections=("Consul",)),
        Projection(services=("web",)),
        Projection(names=("c",)),
    ],
    ids=str,
)
def test_the_digest_does_not_change_with_other_parts(projection: Projection) -> None:
    assert projected_digest(whole(), projection) == projected_digest(whole(spec=1), projection)


def test_an_empty_table_is_not_the_same_as_none() -> None:
    assert projected_digest(snapshot(services())) != projected_digest(snapshot())


def test_a_query_repeats_parameters_or_separates_values_with_commas() -> None:
    pairs = [("kind", "services,cm"), ("kind", "pods"), ("ns", "shop"), ("section", "kubernetes"), ("deltas", "")]
    expected = Projection(("services", "cm", "pods"), ("shop",), sections=("Kubernetes",), deltas_only=True)
    assert Projection.from_query(pairs) == expected


def test_a_config_has_texts_or_lists() -> None:
    config = {"kinds": ["services"], "namespaces": "shop", "sections": ["Consul"], "deltas": True}
    expected = Projection(("services",), ("shop",), sections=("Consul",), deltas_only=True)
    assert Projection.from_config(config) == expected
    assert Projection.from_config({}) == Projection()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"namespace": "shop"}, "files.x.namespace: unknown member; did you mean `namespaces`?"),
        (
            {"zebra": "shop"},
            "x.zebra: unknown member; one of kinds, namespaces, names, services, sections, deltas",
        ),
        ({"sections": "Consult"}, "files.x: unknown section 'Consult'; did you mean `Consul`?"),
        ({"sections": "zebra"}, "one of Kubernetes, Consul, Files, Documents"),
        ({"kinds": 1}, "files.x: Expected `array`, got `int`"),
        ({"kinds": [None]}, "files.x: Expected `str`, got `null`"),
        ({"kinds": ""}, "files.x: kinds: a value is empty; leave it out to select everything"),
        ({"deltas": "yes"}, "files.x: Expected `bool`, got `str`"),
        ({"names": ["a"] * (MOST_VALUES + 1)}, "more than 1000 values"),
    ],
)
def test_a_config_that_is_wrong_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        Projection.from_config(config, "files.x")
    assert message in str(error.value)
