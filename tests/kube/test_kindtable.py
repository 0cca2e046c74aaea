"""Which kind a name means."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.kube.discovered import CORE, OTHERS, aggregated, legacy, resource_list
from wigwag.kube.discovery import read_groups, read_kinds
from wigwag.kube.errors import UnknownKindError
from wigwag.kube.kinds import SERVICE, Kind
from wigwag.kube.kindtable import GroupVersion, KindTable


def from_aggregated() -> KindTable:
    documents = (aggregated(CORE), aggregated(OTHERS))
    return KindTable(tuple(each for one in documents for each in read_groups(json.dumps(one).encode())))


def from_legacy() -> KindTable:
    found = [
        each for path in ("/api", "/apis") for each in read_groups(json.dumps(legacy(path, CORE | OTHERS)).encode())
    ]
    lists = ((CORE | OTHERS)[each.group][each.version] for each in found)
    return KindTable(
        tuple(read_kinds(json.dumps(resource_list(one)).encode(), each) for each, one in zip(found, lists, strict=True))
    )


AGGREGATED, LEGACY = from_aggregated(), from_legacy()
INGRESS, OLD_INGRESS = Kind("networking.k8s.io", "v1", "ingresses"), Kind("extensions", "v1beta1", "ingresses")
MAPPING, MAPPING_2 = Kind("getambassador.io", "v3alpha1", "mappings"), Kind("getambassador.io", "v2", "mappings")


def test_both_kinds_of_discovery_give_the_same_table() -> None:
    assert AGGREGATED == LEGACY
    assert [each.kind.kind for version in AGGREGATED.versions for each in version.kinds or ()] == [
        each.kind.kind for version in LEGACY.versions for each in version.kinds or ()
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("services", SERVICE),
        ("service", SERVICE),
        ("Service", SERVICE),
        ("SERVICES", SERVICE),
        ("svc", SERVICE),
        ("services.v1.", SERVICE),
        ("svc.v1.", SERVICE),
        ("Service.v1.", SERVICE),
        ("nodes", Kind("", "v1", "nodes", namespaced=False)),
        ("ingresses", INGRESS),
        ("ing", INGRESS),
        ("ingresses.v1.networking.k8s.io", INGRESS),
        ("ingress.networking.k8s.io", INGRESS),
        ("ingress.networking", INGRESS),
        ("ingresses.extensions", OLD_INGRESS),
        ("Ingress.v1beta1.extensions", OLD_INGRESS),
        ("ing.extensions", OLD_INGRESS),
        ("ingresses.v1beta1.", OLD_INGRESS),
        ("events", Kind("", "v1", "events")),
        ("events.events.k8s.io", Kind("events.k8s.io", "v1", "events")),
        ("mappings", MAPPING),
        ("Mapping", MAPPING),
        ("mapping.v2.getambassador.io", MAPPING_2),
        ("mapping.getambassador.io", MAPPING),
        ("tlscontexts", Kind("getambassador.io", "v2", "tlscontexts")),
        ("TLSContext.v2.getambassador.io", Kind("getambassador.io", "v2", "tlscontexts")),
        ("host", Kind("getambassador.io", "v3alpha1", "hosts")),
        ("tng", Kind("short.example.com", "v1", "things")),
        ("svc.short.example.com", Kind("short.example.com", "v1", "things")),
    ],
)
def test_a_name_means_what_it_means_to_kubectl(name: str, kind: Kind) -> None:
    assert AGGREGATED.resolve(name) == kind
    assert LEGACY.resolve(name) == kind


def test_a_kind_knows_what_manifests_call_it_which_is_not_its_identity() -> None:
    found = AGGREGATED.resolve("svc")
    assert (found.kind, found.api, found.namespaced) == ("Service", "v1", True)
    assert found == replace(found, kind="")
    assert hash(found) == hash(replace(found, kind=""))
    assert not AGGREGATED.resolve("no").namespaced


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mappingz", "the API server has no kind 'mappingz' (did you mean 'mapping'?)"),
        ("Servise", "the API server has no kind 'Servise' (did you mean 'service'?)"),
        ("mappings.getambasador.io", "the API server has no kind 'mappings.getambasador.io' (did you mean"),
        (
            "mapping.v1.getambassador.io",
            "; of mappings.getambassador.io it has v3alpha1, v2",
        ),
        ("services.v2.", "the API server has no kind 'services.v2.'"),
        ("services/status", "the API server has no kind 'services/status'"),
        ("status", "the API server has no kind 'status'"),
        ("", "the API server has no kind ''"),
        ("...", "the API server has no kind '...'"),
        ("cs", "componentstatuses cannot be listed and watched on this API server"),
        ("x" * 5000, f"the API server has no kind '{'x' * 100}'"),
    ],
)
def test_an_unknown_name_is_told_with_the_one_that_was_probably_meant(name: str, message: str) -> None:
    for table in (AGGREGATED, LEGACY):
        with pytest.raises(UnknownKindError) as caught:
            table.resolve(name)
        assert message in str(caught.value)
        assert len(str(caught.value)) < 300


def test_what_could_not_be_asked_is_told() -> None:
    broken = GroupVersion("metrics.k8s.io", "v1beta1", (), fault="metrics.k8s.io/v1beta1 is down")
    table = KindTable((*AGGREGATED.versions, broken), ("GET /apis: no",))
    with pytest.raises(
        UnknownKindError, match=r"not all kinds are known: GET /apis: no; metrics.k8s.io/v1beta1 is down"
    ):
        table.resolve("podmetrics")
    assert table.resolve("svc") == SERVICE


def test_a_version_keeps_its_last_kinds_while_it_has_none() -> None:
    (known,) = (each for each in AGGREGATED.versions if str(each) == "networking.k8s.io/v1")
    down = GroupVersion("networking.k8s.io", "v1").or_last(AGGREGATED, "down")
    assert down == replace(known, fault="down")
    assert GroupVersion("new.example.com", "v1").or_last(AGGREGATED, "down").kinds == ()


def test_a_resource_that_has_no_kind_or_cannot_be_in_a_path_is_left_out() -> None:
    document = aggregated({"a.example.com": {"v1": [*CORE[""]["v1"]]}})
    resources = document["items"][0]["versions"][0]["resources"]
    resources[0]["resource"] = "../secrets"
    del resources[1]["responseKind"]  # which has subresources only
    (version,) = read_groups(json.dumps(document).encode())
    assert [each.kind.plural for each in version.kinds or ()] == ["events", "componentstatuses"]


def test_a_group_whose_name_cannot_be_in_a_path_is_not_asked_for() -> None:
    document = legacy("/apis", {"../x": {"v1": []}, "a.example.com": {"v1": [], "v 2": []}})
    assert [str(each) for each in read_groups(json.dumps(document).encode())] == ["a.example.com/v1"]
