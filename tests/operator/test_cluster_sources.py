"""Shared sources of the cluster, as a pod meets them: order, who may use them, and what it is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.operator.known import OWNER, SERVER_DEFAULTS, Laid, settings
from wigwag.operator.injection.decide import PodRequest, admit_pod
from wigwag.operator.injection.verdict import Allowed, Denied, Verdict
from wigwag.operator.names import CLUSTER_FEATURE_FLAG_SOURCE, ENABLED, FEATURE_FLAG_SOURCE, ObjectName, source_names
from wigwag.operator.resources.clusterfeatureflagsource import AllowedNamespaces, ClusterFeatureFlagSource
from wigwag.operator.resources.featureflagsource import FeatureFlagSource
from wigwag.operator.resources.unreadable import UnreadableSource, decode_cluster_source


def of_cluster(*sources: dict[str, Any], **spec: Any) -> ClusterFeatureFlagSource:
    entries = list(sources) or [{"source": "http://shared.test", "provider": "http"}]
    made = {"metadata": {"name": "shared"}, "spec": {**SERVER_DEFAULTS, "sources": entries, **spec}}
    return msgspec.convert(made, ClusterFeatureFlagSource)


def of_team(**spec: Any) -> FeatureFlagSource:
    entries = [{"source": "http://team.test", "provider": "http"}]
    return msgspec.convert({"spec": {"sources": entries, **spec}}, FeatureFlagSource)


def admitted(known: Laid, shared: str = "shared", own: str = "", **options: Any) -> Verdict:
    annotations = {ENABLED: "true", CLUSTER_FEATURE_FLAG_SOURCE: shared, **({FEATURE_FLAG_SOURCE: own} if own else {})}
    metadata = {"annotations": annotations, "ownerReferences": [OWNER]}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "app"}]}}
    return admit_pod(PodRequest(object=pod, namespace="team-a"), known, settings(**options))


def arguments(verdict: Verdict) -> str:
    assert isinstance(verdict, Allowed), verdict
    [container] = [each["value"] for each in verdict.patch if each["path"].startswith("/spec/initContainers")]
    return " ".join((container[0] if isinstance(container, list) else container)["args"])


def refused(verdict: Verdict) -> tuple[int, str]:
    assert isinstance(verdict, Denied)
    return verdict.code, verdict.message


def test_a_shared_source_comes_first_and_one_of_the_namespace_wins() -> None:
    known = Laid(sources={"shared": of_cluster(contextValues={"a": "1", "b": "1"}), "team-a/flags": of_team(port=9000)})
    given = arguments(admitted(known, own="flags"))
    assert given.index("http://shared.test") < given.index("http://team.test")
    assert "--port 9000" in given
    assert "--context-value a=1" in given


def test_a_bare_name_is_read_in_the_namespace_of_the_pod_and_others_need_a_grant() -> None:
    entry = {"source": "shop", "provider": "kubernetes"}
    known = Laid(sources={"shared": of_cluster(entry)}, flags={"team-a/shop": {}})
    assert '"uri":"team-a/shop"' in arguments(admitted(known))
    known.sources["shared"] = of_cluster({**entry, "source": "ops/shop"})
    known.flags["ops/shop"] = {}
    assert refused(admitted(known))[0] == 403
    known.flags["ops/shop"] = {"openfeature.dev/allow-from": "team-a"}
    assert '"uri":"ops/shop"' in arguments(admitted(known))


def test_one_that_is_missing_is_waited_for() -> None:
    code, message = refused(admitted(Laid()))
    assert code == 404
    assert message.startswith("ClusterFeatureFlagSource shared does not exist, or does not allow pods of the namespace")


@pytest.mark.parametrize("policy", ["grant", "deny", "allow"])
def test_by_default_all_namespaces_may_whatever_the_policy_for_other_teams(policy: str) -> None:
    assert "http://shared.test" in arguments(admitted(Laid(sources={"shared": of_cluster()}), cross_namespace=policy))


def test_a_namespace_that_is_not_allowed_is_told_whom_to_ask() -> None:
    known = Laid(sources={"shared": of_cluster(allowedNamespaces={"names": ["team-b"]})})
    assert refused(admitted(known)) == refused(admitted(Laid())), "and not whether there is one"


@pytest.mark.parametrize(
    ("allowed", "labels", "may"),
    [
        ({}, {}, False),
        ({"names": ["team-a"]}, None, True),
        ({"selector": {}}, {}, True),
        ({"selector": {}}, None, False),
        ({"selector": {"matchLabels": {"tier": "a"}}}, {"tier": "a"}, True),
        ({"selector": {"matchLabels": {"tier": "a"}}}, {"tier": "b"}, False),
        ({"names": ["team-a"], "selector": {"matchLabels": {"tier": "a"}}}, {"tier": "b"}, True),
        ({"selector": {"matchExpressions": [{"key": "x", "operator": "In", "values": ["1"]}]}}, {"x": "1"}, True),
        ({"selector": {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["1"]}]}}, {}, True),
        ({"selector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}, {}, False),
        ({"selector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}, {"x": ""}, False),
    ],
)
def test_namespaces_are_allowed_by_name_or_by_label(allowed: Any, labels: Any, may: bool) -> None:
    assert msgspec.convert(allowed, AllowedNamespaces).includes("team-a", labels) is may


def test_an_operator_of_some_namespaces_says_that_it_cannot() -> None:
    code, message = refused(admitted(Laid(sources={"shared": of_cluster()}), namespaces=("team-a",)))
    assert code == 403
    assert message == (
        "ClusterFeatureFlagSource shared cannot be used: this operator serves some namespaces only (--namespaces), and "
        "reads nothing that belongs to the whole cluster; use a FeatureFlagSource"
    )


def test_what_is_in_a_namespace_of_another_operator_is_said_to_be_there() -> None:
    known = Laid(sources={"ops/flags": of_team()})
    code, message = refused(admitted(known, "", "ops/flags", namespaces=("team-a",), cross_namespace="allow"))
    assert code == 403
    assert message.startswith("FeatureFlagSource ops/flags is in a namespace that this operator does not serve")


def test_a_name_with_a_namespace_is_no_name_of_a_shared_one() -> None:
    assert source_names({CLUSTER_FEATURE_FLAG_SOURCE: "ops/flags"}, "team-a") == [ObjectName("", "ops/flags")]


def test_one_that_does_not_fit_its_schema_is_named() -> None:
    broken = decode_cluster_source(msgspec.Raw(b'{"metadata":{"name":"shared"},"spec":{"sources":7}}'))
    assert isinstance(broken, UnreadableSource)
    code, message = refused(admitted(Laid(unreadable={"shared": broken})))
    assert code == 500
    assert message.startswith("ClusterFeatureFlagSource shared does not fit its schema")
