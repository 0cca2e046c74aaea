"""What reconcilers decide, on a real API server: a rollout's patch, the rights of a Role, large flags."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.json import encode

from tests.operator.known import Laid, settings, source_object
from tests.real.cluster import OPENFEATURE, Namespace
from tests.real.processes import until
from tests.real.rest import RestError
from wigwag.kube.kinds import DEPLOYMENT
from wigwag.operator.configmaps import MOST_BYTES
from wigwag.operator.names import ENABLED, FEATURE_FLAG_SOURCE, RESTARTED_AT, ObjectName
from wigwag.operator.reconcile.access import access_objects
from wigwag.operator.reconcile.flags import ObservedFlag, flag_config_maps
from wigwag.operator.reconcile.rollout import RolloutPlanner
from wigwag.operator.reconcile.usage import FlagUse
from wigwag.operator.reconcile.workloads import read_workload
from wigwag.operator.resources.featureflagsource import FeatureFlagSourceStatus
from wigwag.operator.resources.kubernetes import ObjectMeta

JSON_PATCH = "application/json-patch+json"


def deployment() -> dict[str, Any]:
    annotations = {ENABLED: "true", FEATURE_FLAG_SOURCE: "flags"}
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": annotations},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def test_a_patch_rolls_once_although_it_is_sent_twice_and_somebody_edits_the_workload(namespace: Namespace) -> None:
    path = namespace.path("apps/v1", "Deployment", "web")
    made = namespace.apply(deployment())
    for port in (1, 2):  # the first digest of a workload, and another one
        known, name = Laid(), ObjectName(namespace.name, "flags")
        found = source_object({"source": "x", "provider": "http"}, port=port, rolloutOnChange=True)
        status = FeatureFlagSourceStatus(digest="before", observed_generation=1)
        known.sources[str(name)] = type(found)(metadata=found.metadata, spec=found.spec, status=status)
        workload = read_workload(DEPLOYMENT, encode(made))
        assert workload
        (rollout,) = RolloutPlanner(known=known, settings=settings(), now=port, rate=1.0).plan(name, [workload]).due
        namespace.cluster.patch(path, {"metadata": {"labels": {"edited": str(port)}}})
        made = namespace.cluster.rest.call("PATCH", path, list(rollout.patch), kind=JSON_PATCH).json
        assert made["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT] == f"1970-01-01T00:00:0{port}Z"
        with pytest.raises(RestError) as caught:
            namespace.cluster.rest.call("PATCH", path, list(rollout.patch), kind=JSON_PATCH)
        assert caught.value.status == 422


def test_a_role_lets_an_account_watch_the_flags_that_it_names_and_no_others(namespace: Namespace) -> None:
    account = ObjectName(namespace.name, "default")
    use = FlagUse(account, "kubernetes", ObjectName(namespace.name, "shop"))
    for flag in ("shop", "other"):
        namespace.feature_flag(flag, {"flags": {}})
    for role, binding in access_objects([use], Laid(), settings()).values():
        namespace.apply(role)
        namespace.apply(binding)

    def may(verb: str, name: str = "") -> bool:
        about = {"group": "core.openfeature.dev", "resource": "featureflags", "namespace": namespace.name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace.name}:default",
                "resourceAttributes": {**about, "verb": verb, "name": name},
            },
        }
        path = namespace.cluster.path(review["apiVersion"], review["kind"])  # type: ignore[arg-type]
        return bool(namespace.cluster.rest.call("POST", path, review).json["status"]["allowed"])

    until(lambda: all(may(verb, "shop") for verb in ("get", "list", "watch")), "the role taking effect")
    assert not any(may(verb, name) for verb in ("get", "list", "watch") for name in ("other", ""))
    assert not may("update", "shop")
    assert namespace.cluster.exists(namespace.path(OPENFEATURE, "FeatureFlag", "other"))


def test_flags_may_outgrow_a_config_map_and_come_back(namespace: Namespace) -> None:
    name = ObjectName(namespace.name, "shop")
    for length, member in ((1, "data"), (MOST_BYTES, "binaryData"), (2, "data")):
        flag = {"state": "ENABLED", "variants": {"on": "x" * length}, "defaultVariant": "on"}
        made = namespace.feature_flag("shop", {"flags": {"banner": flag}})
        document = json.dumps(made["spec"]["flagSpec"], separators=(",", ":")).encode()
        about = ObjectMeta(name="shop", namespace=namespace.name, uid=made["metadata"]["uid"])
        maps = flag_config_maps(ObservedFlag(name=name, about=about, document=document), [namespace.name], {})
        stored = namespace.apply(maps.apply[0])
        assert stored[member].keys() == {name.file}
        assert {"data", "binaryData"} & stored.keys() == {member}
