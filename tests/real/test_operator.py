"""The operator against a real API server: its webhooks, its certificates, and what it knows."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real.access import Access
from tests.real.cluster import OPENFEATURE, Cluster
from tests.real.controlplane import ControlPlane
from tests.real.operators import register
from tests.real.processes import until
from tests.real.rest import Answer
from tests.real.test_admission import create, flag, plane, unique
from wigwag.operator.admission.registration import MUTATING, MUTATING_NAME, VALIDATING
from wigwag.operator.run import Operator
from wigwag.operator.settings import OperatorOptions, read_settings

__all__ = ["plane"]
SOURCE = {"openfeature.dev/enabled": "true", "openfeature.dev/featureflagsource": "flags"}
SECRET = "/api/v1/namespaces/default/secrets/webhook-server-cert"


class RunningOperator:
    """An operator in a thread of its own."""

    def __init__(self, namespace: str = "default", **settings: Any) -> None:
        anywhere = "127.0.0.1:0"
        options = OperatorOptions(
            webhook_bind_address=anywhere,
            metrics_bind_address=anywhere,
            health_probe_bind_address=anywhere,
            **{"allow_orphan_pods": True, **settings},
        )
        self.operator = Operator(read_settings({"POD_NAMESPACE": namespace}, options))
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.operator.run(self._stop))
        self._loop.close()

    @contextmanager
    def running(self) -> Iterator[RunningOperator]:
        self._thread.start()
        try:
            until(lambda: self.operator.ready, "a ready operator")
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(20)
            assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        port = self.operator.lifecycle.addresses["admission"][0].rpartition(":")[2]
        return f"https://localhost:{port}"


@pytest.fixture
def cluster(plane: ControlPlane, kubeconfig: Callable[[Access], Path]) -> Iterator[Cluster]:
    kubeconfig(plane.cluster.access)
    yield plane.cluster
    for kind in (MUTATING, VALIDATING):
        plane.cluster.rest.call("DELETE", kind.path())
    if plane.cluster.exists(SECRET):
        plane.cluster.delete(SECRET)


def source(name: str, **entry: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": "default"}
    return {
        "apiVersion": OPENFEATURE, "kind": "FeatureFlagSource", "metadata": about, "spec": {"sources": [entry]}
    }  # fmt: skip


def test_pods_are_injected_and_flags_are_checked(cluster: Cluster) -> None:
    with RunningOperator().running() as running:
        register(cluster, running.url)
        until(lambda: create(cluster, "probe", SOURCE, dryRun="All").status == 404, "the source is missing")
        missing = create(cluster, unique("app"), SOURCE)
        assert 'featureflagsources.core.openfeature.dev "flags" not found' in missing.json["message"]

        cluster.apply(source("flags", source="http://flags.test", provider="http"))
        until(lambda: create(cluster, "probe", SOURCE, dryRun="All").status == 201, "the source is known")
        made = create(cluster, unique("app"), SOURCE).json
        [agent] = made["spec"]["initContainers"]
        assert (agent["name"], agent["restartPolicy"]) == ("flagd", "Always")
        assert '"uri":"http://flags.test"' in agent["args"][agent["args"].index("--sources") + 1]
        names = [variable["name"] for variable in made["spec"]["containers"][0]["env"]]
        assert "FLAGD_PORT" in names

        refused = cluster.rest.ask("POST", cluster.path(OPENFEATURE, "FeatureFlag", "default"), flag("of"))
        assert refused.status == 403
        assert "spec.flagSpec.flags.banner.defaultVariant" in refused.json["message"]
        path = cluster.path(OPENFEATURE, "FeatureFlag", "default")
        assert cluster.rest.ask("POST", path, flag("off", name=unique("flags"))).status == 201


def test_tests_and_impact_reach_whoever_writes_a_flag(cluster: Cluster) -> None:
    name = unique("tested")
    path = cluster.path(OPENFEATURE, "FeatureFlag", "default")
    made = flag("off", name=name)
    made["spec"]["tests"] = [{"flag": "banner", "variant": "off"}]
    on = {"flagSpec": {"flags": {"banner": {"defaultVariant": "on"}}}}

    def change(spec: dict[str, Any]) -> Answer:
        return cluster.rest.ask("PATCH", f"{path}/{name}", {"spec": spec}, kind="application/merge-patch+json")

    with RunningOperator().running() as running:
        register(cluster, running.url)
        assert cluster.rest.ask("POST", path, made).status == 201
        refused = change(on)
        assert refused.status == 403
        assert "spec.tests[0]: flag banner gives the variant 'on' for {}, not 'off'" in refused.json["message"]
        warned = change({**on, "tests": []})
        assert warned.status == 200
        assert "defaultVariant off" in warned.headers["Warning"]


def test_the_certificate_survives_a_restart_and_a_bundle_that_is_written_back_is_repaired(cluster: Cluster) -> None:
    with RunningOperator().running() as running:
        first = cluster.get(SECRET)["data"]
        assert b"BEGIN CERTIFICATE" in b64decode(first["tls.crt"])
        register(cluster, running.url)
        path = MUTATING.path(name=MUTATING_NAME)
        change = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        cluster.rest.call("PATCH", path, change, kind="application/json-patch+json")
        until(lambda: cluster.get(path)["webhooks"][0]["clientConfig"].get("caBundle"), "the bundle is back")
    with RunningOperator().running():
        assert cluster.get(SECRET)["data"] == first


def flagd(name: str, **spec: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": "default"}
    return {
        "apiVersion": OPENFEATURE, "kind": "Flagd", "metadata": about, "spec": {"featureFlagSource": "served", **spec}
    }  # fmt: skip


def test_a_flagd_gets_its_objects_which_are_repaired_and_go_when_they_are_disabled(cluster: Cluster) -> None:
    name = unique("flagd")
    deployment = cluster.path("apps/v1", "Deployment", "default", name)
    service, ingress = (
        cluster.path(api, kind, "default", name)
        for api, kind in (("v1", "Service"), ("networking.k8s.io/v1", "Ingress"))
    )
    path = cluster.path(OPENFEATURE, "Flagd", "default", name)

    def condition(kind: str) -> Any:
        found = (cluster.get(path).get("status") or {}).get("conditions") or []
        return next((each for each in found if each["type"] == kind), {})

    with RunningOperator(leader_elect=True).running():
        cluster.apply(flagd(name, ingress={"enabled": True, "hosts": ["flags.test"]}))
        until(lambda: condition("Resolved").get("reason") == "SourceNotFound", "the missing source in the status")
        assert not cluster.exists(deployment)
        cluster.apply(source("served", source="http://flags.test", provider="http"))
        for child in (deployment, service, ingress):
            until(lambda child=child: cluster.exists(child), "an object of the Flagd")  # type: ignore[misc]
        until(lambda: condition("Resolved").get("status") == "True", "the source is resolved")

        cluster.delete(deployment)
        until(lambda: cluster.exists(deployment), "the Deployment is back")
        cluster.patch(deployment, {"spec": {"replicas": 5}})
        until(lambda: cluster.get(deployment)["spec"]["replicas"] == 1, "the Deployment is as it was")
        cluster.apply(source("served", source="http://other.test", provider="http"))
        until(lambda: "http://other.test" in str(cluster.get(deployment)), "the change of the source")

        cluster.apply(flagd(name, ingress={"enabled": False, "hosts": ["flags.test"]}))
        until(lambda: not cluster.exists(ingress), "the Ingress is gone")

        def told() -> bool:
            events = cluster.get("/api/v1/namespaces/default/events")["items"]
            return any(each["reason"] == "SourceNotFound" for each in events)

        until(told, "an event")
    lease = cluster.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/131bf64c.openfeature.dev")
    assert not lease["spec"].get("holderIdentity"), "released"


def test_a_deployment_that_the_server_refuses_does_not_keep_the_other_objects_from_existing(cluster: Cluster) -> None:
    name = unique("flagd")
    cluster.apply(source("served", source="http://flags.test", provider="http"))
    with RunningOperator().running():
        cluster.apply(flagd(name, tolerations=[{"operator": "Sometimes"}]))
        until(lambda: cluster.exists(cluster.path("v1", "Service", "default", name)), "the Service")
        assert not cluster.exists(cluster.path("apps/v1", "Deployment", "default", name))
