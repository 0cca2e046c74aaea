"""`--proxy-auth kubernetes` end to end: agents connect by TLS with a token, and go on whatever is replaced or away.

Times that are too long for a test are written into the objects: a token that has ended, a CA that is old.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import grpc
import pytest
import yaml
from grpc import StatusCode
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.agent.process import fetch
from tests.real import programs
from tests.real.agents import flags
from tests.real.cluster import Cluster, Namespace
from tests.real.conftest import loudly
from tests.real.operated import SYSTEM, OperatedPlane
from tests.real.processes import until
from tests.real.subscribers import GROUP, ProxyClient, token_of
from tests.real.test_proxy_auth import ending_in
from tests.real.workloads import App, agent_of, deployment, resolve, sees, source, sources_of
from tools.manifests import DEPLOY, ROOT
from wigwag.operator.certificates.authority import CertificatePolicy, is_signed_by, new_authority, sign, split
from wigwag.operator.injection.proxytrust import AGENT_DIRECTORY, AUTHORITY, CERTIFICATE, VOLUME

PROXIED = {"source": "flags", "provider": "flagd-proxy"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedPlane]:
    """Its API server is stopped, and tokens are forged with its key, so it is one of our own."""
    with loudly("KUBERNETES"):
        programs.kubernetes()
    with OperatedPlane(tmp_path_factory.mktemp("own"), proxy_auth=True) as operated:
        yield operated


@pytest.fixture
def cluster(plane: OperatedPlane) -> Cluster:
    return plane.cluster


def injected(namespace: Namespace) -> App:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", PROXIED))
    namespace.apply(deployment("web", "source"))
    return App(namespace, "web")


def restarts(pod: dict[str, object]) -> int:
    statuses = pod["status"].get("initContainerStatuses") or []  # type: ignore[attr-defined]
    return sum(each["restartCount"] for each in statuses)


def restart_proxy(cluster: Cluster) -> None:
    """Delete the proxy's pod, and wait for another one."""
    proxy = App(Namespace(cluster, SYSTEM), "flagd-proxy")
    before = proxy.ready()
    cluster.delete(cluster.path("v1", "Pod", SYSTEM, before["metadata"]["name"]))
    proxy.ready(without=[before["metadata"]["uid"]])


def source_error(pod: dict[str, object]) -> str:
    status = pod["status"]
    address = f"{status['podIP']}:8014"  # type: ignore[index]
    return str(json.loads(fetch(address, "/debug/sources")[1])[0]["error"] or "")


def secret_of(cluster: Cluster) -> dict[str, str]:
    data = cluster.get(cluster.path("v1", "Secret", SYSTEM, CERTIFICATE))["data"]
    return {name: b64decode(value).decode() for name, value in data.items()}


def write_secret(cluster: Cluster, **values: str) -> None:
    encoded = {name: b64encode(value.encode()).decode() for name, value in values.items()}
    cluster.patch(cluster.path("v1", "Secret", SYSTEM, CERTIFICATE), {"data": encoded})


def test_the_example_of_the_guide_works_and_applications_get_no_token(namespace: Namespace) -> None:
    example = (DEPLOY / "examples" / "proxy-auth.yaml").read_text()
    assert example in (ROOT / "docs" / "guides" / "proxy.md").read_text()
    for manifest in yaml.safe_load_all(example):
        namespace.apply(manifest)
    pod = App(namespace, "web").ready()
    agent = agent_of(pod)
    (entry,) = sources_of(agent)
    assert (entry["tls"], entry["tokenFile"]) == (True, f"{AGENT_DIRECTORY}/token")
    assert resolve(pod, "new-checkout")["variant"] == "on"
    assert VOLUME in [each["name"] for each in agent["volumeMounts"]]
    application, in_process = pod["spec"]["containers"], App(namespace, "api").ready()["spec"]["containers"]
    assert VOLUME not in str([*application, *in_process])

    relay = App(namespace, "relay").ready()  # of in-process providers
    assert {"name": "FLAGD_HOST", "value": "relay"} in in_process[0]["env"]
    with grpc.insecure_channel(f"{relay['status']['podIP']}:8015") as channel:
        stub = sync_pb2_grpc.FlagSyncServiceStub(channel)
        found = stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(), timeout=60)
    assert "new-checkout" in found.flag_configuration


def test_a_token_that_has_ended_is_replaced_without_a_restart(namespace: Namespace, plane: OperatedPlane) -> None:
    pod = injected(namespace).ready()
    current = token_of(namespace, pod=pod)
    plane.kubelet.replace_token(pod, ending_in(current, -5, plane.plane))
    restart_proxy(plane.cluster)
    until(lambda: "UNAUTHENTICATED" in source_error(pod), "the refusal")
    assert resolve(pod)["variant"] == "on", "flags stay"
    plane.kubelet.replace_token(pod, current)
    namespace.feature_flag("flags", flags("off"))
    sees(pod, "off")
    assert restarts(App(namespace, "web").ready()) == 0


def test_a_certificate_and_a_ca_are_replaced_and_agents_go_on(namespace: Namespace, plane: OperatedPlane) -> None:
    cluster, pod = plane.cluster, injected(namespace).ready()
    before = secret_of(cluster)
    write_secret(cluster, **{"tls.crt": ""})
    until(lambda: secret_of(cluster)["tls.crt"] not in ("", before["tls.crt"]), "another certificate")

    policy, then = CertificatePolicy(), datetime.now(UTC) - timedelta(days=500)
    old = new_authority(then, policy)
    served = sign(old, ["flagd-proxy-svc"], datetime.now(UTC), policy)
    trusted = old.certificate + before["ca.crt"]  # agents trust what is served now, until the old CA is everywhere
    write_secret(
        cluster,
        **{"ca.crt": trusted, "ca.key": old.key, "tls.crt": served.certificate, "tls.key": served.key},
        **{"ca-previous.until": (datetime.now(UTC) - timedelta(days=1)).isoformat()},
    )
    until(lambda: "ca-next.published" in secret_of(cluster), "the next CA being published")
    published = cluster.get(namespace.path("v1", "ConfigMap", AUTHORITY))["data"]["ca.crt"]
    assert old.certificate in split(published)
    coming = next(each for each in split(published) if each != old.certificate)
    write_secret(cluster, **{"ca-next.published": (datetime.now(UTC) - timedelta(hours=1)).isoformat()})
    until(lambda: is_signed_by(secret_of(cluster)["tls.crt"], coming), "the next CA signing")

    restart_proxy(cluster)
    client = ProxyClient(cluster, coming)  # who trusts the old CA no longer
    selector, token = f"{GROUP}/{namespace.name}/flags", token_of(namespace)
    until(lambda: '"on"' in client.ask(selector, token).document, "the new certificate being served")
    namespace.feature_flag("flags", flags("off"))
    sees(pod, "off")
    assert restarts(App(namespace, "web").ready()) == 0


def test_without_an_api_server_open_streams_go_on_and_new_ones_wait(namespace: Namespace, plane: OperatedPlane) -> None:
    app = injected(namespace)
    pod, token = app.ready(), token_of(namespace)
    client, selector = ProxyClient.trusting(namespace), f"{GROUP}/{namespace.name}/flags"
    with client.stub() as stub:
        plane.plane.apiserver.kill()
        try:
            metadata = (("authorization", f"Bearer {token}"),)
            with pytest.raises(grpc.RpcError) as caught:
                stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(selector=selector), metadata=metadata, timeout=60)
            assert caught.value.code() is StatusCode.UNAVAILABLE
            assert source_error(pod) == "", "the stream of the agent is open"
            assert resolve(pod)["variant"] == "on"
        finally:
            plane.plane.apiserver.start()
    namespace.feature_flag("flags", flags("off"))
    sees(pod, "off")
    until(lambda: client.ask(selector, token).code is StatusCode.OK, "new streams")
    assert restarts(app.ready()) == 0
