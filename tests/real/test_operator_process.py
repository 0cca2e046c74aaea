"""`wigwag operator` as a process against a real API server, started as the original's Deployment starts it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.access import Access
from tests.real.cluster import Cluster
from tests.real.controlplane import ControlPlane
from tests.real.operators import OperatorProcess
from tests.real.processes import until
from tests.real.test_admission import create, flag, plane, unique
from tests.real.test_operator import SECRET, SOURCE, source
from wigwag.operator.admission.registration import MUTATING, VALIDATING

__all__ = ["plane"]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/131bf64c.openfeature.dev"
ORIGINAL = (
    "--leader-elect",
    "--sidecar-cpu-limit=500m",
    "--sidecar-ram-limit=64Mi",
    "--sidecar-cpu-request=200m",
    "--sidecar-ram-request=32Mi",
    "--image-pull-secrets=pull",
    "--labels=team:shop",
    "--annotations=owner:shop",
    "--metrics-secure=false",
    "--verbose=true",
)
"""What the original's Deployment passes."""
VARIABLES = {
    "SIDECAR_IMAGE": "agents.test/flagd",
    "SIDECAR_TAG": "v0.15.4",
    "SIDECAR_ENV_VAR_PREFIX": "FLAGD",
    "SIDECAR_PROBES_ENABLED": "true",
    "FLAGS_VALIDATION_ENABLED": "true",
    "FLAGD_PROXY_REPLICA_COUNT": "1",
}


@pytest.fixture
def cluster(plane: ControlPlane, kubeconfig: Callable[[Access], Path]) -> Iterator[Cluster]:
    kubeconfig(plane.cluster.access)
    yield plane.cluster
    for kind in (MUTATING, VALIDATING):
        plane.cluster.rest.call("DELETE", kind.path())
    for path in (SECRET, LEASE):
        if plane.cluster.exists(path):
            plane.cluster.delete(path)


def test_with_the_flags_and_variables_of_the_original_it_serves_and_ends_when_told(cluster: Cluster) -> None:
    cluster.apply(source("flags", source="http://flags.test", provider="http"))
    with OperatorProcess(*ORIGINAL, environment=VARIABLES) as operator:
        operator.register(cluster)
        until(lambda: create(cluster, "probe", SOURCE, dryRun="All").status == 403, "the API server calls us")
        assert "orphan" in create(cluster, unique("app"), SOURCE).json["message"]
        assert (
            cluster.rest.ask(
                "POST", cluster.path("core.openfeature.dev/v1beta1", "FeatureFlag", "default"), flag("of")
            ).status
            == 403
        )
        until(lambda: cluster.get(LEASE)["spec"].get("holderIdentity"), "the Lease")
        assert operator.fetch("probes", "/healthz")[0] == 200
        assert b"controller_runtime_webhook_requests_total" in operator.fetch("metrics", "/metrics")[1]
        began = time.monotonic()
        assert operator.stop(signal.SIGTERM) == 0
        print("stopped in", time.monotonic() - began)
    assert not cluster.get(LEASE)["spec"].get("holderIdentity"), "released"
