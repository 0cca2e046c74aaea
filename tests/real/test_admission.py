"""Webhooks that a real API server calls: what reaches them, what comes back, and certificates that change meanwhile."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import uuid4

import pytest

from tests.real import programs
from tests.real.cluster import OPENFEATURE, Cluster
from tests.real.conftest import loudly
from tests.real.controlplane import ControlPlane
from tests.real.processes import until
from tests.real.rest import Answer
from tests.real.webhooks import Webhooks
from wigwag.operator.admission.registration import FLAG_PATH, MUTATING, POD_PATH, VALIDATING, bundle_patch, published
from wigwag.operator.admission.review import AdmissionRequest, AdmissionResponse, allowed, denied, patched, shown
from wigwag.operator.certificates.authority import CertificatePolicy, new_authority
from wigwag.operator.certificates.secret import bundle, served

ENABLED = {"openfeature.dev/enabled": "true"}
PODS = "/api/v1/namespaces/default/pods"
JSON_PATCH = "application/json-patch+json"
REASON = "flags.banner.defaultVariant: 'of' is no variant; did you mean 'off'?"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Webhook configurations are of the whole cluster, so it is a cluster of our own."""
    with loudly("KUBERNETES"):
        found = programs.kubernetes()
    with ControlPlane(tmp_path_factory.mktemp("plane"), found._replace(controllers=None)) as plane:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        for namespace in ("default", "kube-system"):
            plane.cluster.apply({**account, "metadata": {"name": "default", "namespace": namespace}})
        yield plane


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[Cluster]:
    yield plane.cluster
    for kind in (MUTATING, VALIDATING):
        plane.cluster.rest.call("DELETE", kind.path())


def label(_: AdmissionRequest) -> AdmissionResponse:
    return patched([{"op": "add", "path": "/metadata/labels", "value": {"injected": "yes"}}])


def validate(request: AdmissionRequest) -> AdmissionResponse:
    if b'"of"' in bytes(request.object):
        return denied(422, REASON, warnings=["flags.banner: the flag has no description"])
    return allowed()


def pod(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    about = {"name": name, "annotations": annotations}
    spec = {"containers": [{"name": "app", "image": "app"}], "nodeName": "node"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def create(
    cluster: Cluster, name: str, annotations: dict[str, str], namespace: str = "default", **query: str
) -> Answer:
    path = PODS.replace("default", namespace)
    return cluster.rest.ask("POST", path, pod(name, annotations), query=query)


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid4().hex[:8]}"


def ready(cluster: Cluster, webhooks: Webhooks) -> None:
    """Wait until the API server knows of both webhooks."""
    flags = cluster.path(OPENFEATURE, "FeatureFlag", "default")

    def called() -> bool:
        create(cluster, "probe", ENABLED, dryRun="All")
        cluster.rest.ask("POST", flags, flag("off", name="probe"), query={"dryRun": "All"})
        return {path for path, _ in webhooks.seen} == {POD_PATH, FLAG_PATH}

    until(called, "a first call of each")


def flag(default: str, **about: Any) -> dict[str, Any]:
    banner = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}
    metadata = {"name": "flags", "namespace": "default", **about}
    spec = {"flagSpec": {"flags": {"banner": banner}}}
    return {"apiVersion": OPENFEATURE, "kind": "FeatureFlag", "metadata": metadata, "spec": spec}


def test_only_pods_that_ask_for_it_are_sent_to_us_and_they_are_patched(cluster: Cluster) -> None:
    with Webhooks({POD_PATH: label, FLAG_PATH: validate}) as webhooks:
        webhooks.register(cluster)
        ready(cluster, webhooks)
        asked = unique("asked")
        answer = create(cluster, asked, ENABLED)
        assert (answer.status, answer.json["metadata"]["labels"]) == (201, {"injected": "yes"})
        assert webhooks.seen[POD_PATH, asked] == 1
        before = webhooks.seen.total()
        for annotations in ({}, {"openfeature.dev/enabled": "false"}, {"other": "true"}):
            assert create(cluster, unique("other"), annotations).status == 201
        mirror = {**ENABLED, "kubernetes.io/config.mirror": "hash"}
        assert create(cluster, unique("mirror"), mirror).status == 201
        assert create(cluster, unique("system"), ENABLED, "kube-system").status == 201
        cluster.patch(f"/api/v1/namespaces/default/pods/{asked}", {"metadata": {"labels": {"changed": "yes"}}})
        cluster.rest.call("DELETE", f"/api/v1/namespaces/default/pods/{asked}", {"gracePeriodSeconds": 0})
        assert webhooks.seen.total() == before


def test_a_refused_feature_flag_shows_our_message_and_warnings(cluster: Cluster) -> None:
    path = cluster.path(OPENFEATURE, "FeatureFlag", "default")
    with Webhooks({POD_PATH: label, FLAG_PATH: validate}) as webhooks:
        webhooks.register(cluster)
        ready(cluster, webhooks)
        answer = cluster.rest.ask("POST", path, flag("of"))
        assert answer.status == 422
        assert REASON in answer.json["message"]
        assert "the flag has no description" in answer.headers["Warning"]
        assert cluster.rest.ask("POST", path, flag("off")).status == 201
        assert webhooks.seen[FLAG_PATH, "flags"] == 2
        changed = cluster.patch(f"{path}/flags", {"metadata": {"labels": {"a": "b"}, "finalizers": ["a.example/b"]}})
        assert webhooks.seen[FLAG_PATH, "flags"] == 2, "the spec is the same"
        changed["spec"] = flag("of")["spec"]
        assert cluster.rest.ask("PUT", f"{path}/flags", changed).status == 422
    cluster.delete(f"{path}/flags")
    cluster.patch(f"{path}/flags", {"metadata": {"finalizers": []}})
    assert not cluster.exists(f"{path}/flags"), "it can be deleted while we are down"


def test_as_many_warnings_as_we_send_reach_the_client_in_full(cluster: Cluster) -> None:
    warnings = [f"finding {number}: é\n{'x' * 300}" for number in range(40)]
    with Webhooks({POD_PATH: lambda _: allowed(warnings=warnings), FLAG_PATH: validate}) as webhooks:
        webhooks.register(cluster)
        ready(cluster, webhooks)
        body, query = pod(unique("warned"), ENABLED), {"dryRun": "All"}
        with cluster.rest._open("POST", PODS, body, query, "application/json", 20) as response:
            received = [each.encode("latin-1").decode() for each in response.headers.get_all("Warning", [])]
    assert received == [f'299 - "{each}"' for each in shown(warnings)]
    assert received[-1].endswith('more warnings"')


def test_a_new_container_gets_its_token_and_we_are_asked_once(cluster: Cluster) -> None:
    """The API server mounts the token into what we add. With the reinvocation policy IfNeeded, it would ask again."""
    container = {"name": "flagd", "image": "flagd", "restartPolicy": "Always"}

    def inject(request: AdmissionRequest) -> AdmissionResponse:
        if b'"flagd"' in bytes(request.object):
            return allowed()
        return patched([{"op": "add", "path": "/spec/initContainers", "value": [container]}])

    with Webhooks({POD_PATH: inject, FLAG_PATH: validate}) as webhooks:
        webhooks.register(cluster)
        ready(cluster, webhooks)
        name = unique("asked")
        made = create(cluster, name, ENABLED).json["spec"]["initContainers"]
        assert [each["name"] for each in made] == ["flagd"]
        assert made[0]["volumeMounts"]
        assert webhooks.seen[POD_PATH, name] == 1


def test_fifty_pods_at_once_are_all_patched(cluster: Cluster) -> None:
    with Webhooks({POD_PATH: label, FLAG_PATH: validate}) as webhooks, ThreadPoolExecutor(50) as threads:
        webhooks.register(cluster)
        ready(cluster, webhooks)
        answers = list(threads.map(lambda _: create(cluster, unique("burst"), ENABLED, dryRun="All"), range(50)))
    assert [answer.json["metadata"].get("labels") for answer in answers] == [{"injected": "yes"}] * 50


def test_a_pod_that_asks_for_flags_waits_while_we_are_down_and_others_do_not(cluster: Cluster) -> None:
    with Webhooks({POD_PATH: label, FLAG_PATH: validate}) as webhooks:
        webhooks.register(cluster)
        ready(cluster, webhooks)
    answer = create(cluster, unique("asked"), ENABLED)
    assert answer.status == 500
    assert "mutate.openfeature.dev" in answer.json["message"]
    assert create(cluster, unique("other"), {}).status == 201


def test_the_certificate_of_another_ca_is_refused_by_the_api_server(cluster: Cluster) -> None:
    with Webhooks({POD_PATH: label, FLAG_PATH: validate}) as webhooks:
        other = new_authority(datetime.now(UTC), webhooks.policy).certificate
        webhooks.register(cluster, other)
        until(lambda: create(cluster, unique("probe"), ENABLED, dryRun="All").status == 500, "the first refusal")
        answer = create(cluster, unique("asked"), ENABLED)
        assert "unknown authority" in answer.json["message"]
        assert not webhooks.seen
        for configuration in configurations(cluster):
            patch(cluster, configuration, bundle(webhooks.secret))
        until(lambda: create(cluster, unique("asked"), ENABLED).status == 201, "the right CA being in force")


def configurations(cluster: Cluster) -> list[Any]:
    found = []
    for kind in (MUTATING, VALIDATING):
        (one,) = cluster.get(kind.path())["items"]
        found.append({**one, "path": kind.path(name=one["metadata"]["name"])})
    return found


def patch(cluster: Cluster, configuration: Any, trusted: str) -> None:
    if operations := bundle_patch(configuration, trusted):
        cluster.rest.call("PATCH", configuration["path"], operations, kind=JSON_PATCH)


class Load:
    """Pods that are created for ever, as dry runs, in threads; `refused` has the answers that are no success."""

    def __init__(self, cluster: Cluster, threads: int = 3) -> None:
        self._cluster, self._stop = cluster, threading.Event()
        self.accepted, self.refused = 0, list[bytes]()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def _run(self) -> None:
        while not self._stop.is_set():
            answer = create(self._cluster, unique("load"), ENABLED, dryRun="All")
            if answer.status == 201 and answer.json["metadata"]["labels"] == {"injected": "yes"}:
                self.accepted += 1
            else:
                self.refused.append(answer.body)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def handshake(port: int, trusted: str) -> None:
    """Connect anew, as an API server without open connections does."""
    context = ssl.create_default_context(cadata=trusted)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1"),
    ):
        pass


def test_a_ca_is_rotated_under_load_without_one_failed_call(cluster: Cluster) -> None:
    hour = timedelta(hours=1)
    policy = CertificatePolicy(authority=hour, serving=hour, skew=hour, settle=timedelta(seconds=2), renew=0.9999)
    webhooks = Webhooks({POD_PATH: label, FLAG_PATH: validate}, policy)
    steps: list[str] = []
    with webhooks:
        webhooks.register(cluster)
        ready(cluster, webhooks)
        first = bundle(webhooks.secret)
        with Load(cluster) as load:

            def rotate() -> bool:
                """Do what a controller and a replica do: the bundle first, the certificate after it."""
                trusted = published(configurations(cluster))
                handshake(webhooks.port, trusted)
                steps.append(webhooks.step(trusted))
                for configuration in configurations(cluster):
                    patch(cluster, configuration, bundle(webhooks.secret))
                pair = served(webhooks.secret)
                assert pair
                webhooks.certificate.replace(*pair)
                handshake(webhooks.port, trusted)
                return steps[-1] == "ACTIVATE"

            until(rotate, "the next CA signing")
            enough = load.accepted + 50
            until(lambda: load.accepted > enough or load.refused, "calls with the new certificate")
        assert load.refused == []
        assert [step for step in steps if step != "KEEP"] == ["INTRODUCE", "SEEN", "ACTIVATE"]
    with pytest.raises(ssl.SSLCertVerificationError), webhooks:
        handshake(webhooks.port, first)
    with webhooks:  # no connection of before is left
        until(lambda: create(cluster, unique("after"), ENABLED).status == 201, "a call on a new connection")
