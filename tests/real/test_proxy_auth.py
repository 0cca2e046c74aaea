"""`--auth=kubernetes` on a real API server: streams end with their right, tokens are replaced, manifests suffice."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from grpc import StatusCode
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from bench.process import replace
from tests.agent.process import AgentProcess
from tests.proxy.process import ProxyProcess
from tests.real.access import Access
from tests.real.agents import Client, flags
from tests.real.authority import Authority
from tests.real.cluster import Cluster, Namespace
from tests.real.controlplane import ControlPlane
from tests.real.subscribers import token_of
from tests.real.test_proxy import GROUP, PATIENCE, delegate
from tests.test_documents import ROOT, blocks

LEEWAY = 60
"""The seconds for which the API server accepts a token after its end."""
RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture
def config(namespace: Namespace, kubeconfig: Callable[[Access], Path]) -> Path:
    """Have a proxy ask as somebody who may read the FeatureFlags of the namespace, and review."""
    return kubeconfig(reader(namespace))


def reader(namespace: Namespace) -> Access:
    namespace.allow("proxy", "featureflags", ["list", "watch"], group=GROUP)
    delegate(namespace, "proxy")
    return namespace.account("proxy")


def friend(namespace: Namespace, name: str) -> str:
    """Return the token of somebody who may get the FeatureFlag `shop`."""
    namespace.allow(name, "featureflags", ["get"], names=["shop"], group=GROUP)
    return namespace.account(name).token


@contextmanager
def streaming(proxy: ProxyProcess, namespace: Namespace) -> Iterator[Callable[[str], Any]]:
    with grpc.insecure_channel(proxy.address("sync")) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        request = sync_pb2.SyncFlagsRequest(selector=f"{GROUP}/{namespace.name}/shop")
        yield lambda token: stub.SyncFlags(request, metadata=(("authorization", f"Bearer {token}"),), timeout=PATIENCE)


def document(stream: Any) -> Any:
    return json.loads(next(stream).flag_configuration)


def ends_with(stream: Any) -> StatusCode:
    with pytest.raises(grpc.RpcError):
        next(stream)
    code: StatusCode = stream.code()
    return code


@pytest.mark.usefixtures("config")
def test_a_right_that_is_withdrawn_ends_its_streams_and_no_others(namespace: Namespace) -> None:
    namespace.feature_flag("shop", flags("on"))
    one, two = friend(namespace, "one"), friend(namespace, "two")
    with ProxyProcess("--auth=kubernetes", "--auth-review=1") as proxy, streaming(proxy, namespace) as asked:
        streams = [asked(one), asked(one), asked(two)]
        assert [document(stream) for stream in streams] == [flags("on")] * 3
        namespace.cluster.delete(namespace.path(RBAC, "RoleBinding", "one"))
        assert [ends_with(stream) for stream in streams[:2]] == [StatusCode.PERMISSION_DENIED] * 2
        assert ends_with(asked(one)) is StatusCode.PERMISSION_DENIED
        namespace.feature_flag("shop", flags("off"))
        assert document(streams[2]) == flags("off")
        assert proxy.metric('wigwag_proxy_refusals_total{reason="revoked"}') == 2
        assert proxy.metric("sync_active_streams") == 1
        assert not any(token in str(proxy.lines) for token in (one, two))


@pytest.mark.usefixtures("config")
def test_a_service_account_that_is_deleted_loses_its_streams(namespace: Namespace) -> None:
    namespace.feature_flag("shop", flags("on"))
    one = friend(namespace, "one")
    with ProxyProcess("--auth=kubernetes", "--auth-review=1") as proxy, streaming(proxy, namespace) as asked:
        stream = asked(one)
        assert document(stream) == flags("on")
        namespace.cluster.delete(namespace.path("v1", "ServiceAccount", "one"))
        assert ends_with(stream) is StatusCode.UNAUTHENTICATED


def ending_in(token: str, seconds: int, plane: ControlPlane) -> str:
    """Return the same token with another end, signed with the key of the control plane: it issues none for seconds."""
    key = load_pem_private_key((plane.folder / "service-accounts.key").read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    head, body, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    now = int(time.time())
    claims |= {"exp": now - LEEWAY + seconds, "iat": now - 600, "nbf": now - 600}
    signed = f"{head}.{_encoded(json.dumps(claims).encode())}"
    numbers = decode_dss_signature(key.sign(signed.encode(), ECDSA(SHA256())))
    return f"{signed}.{_encoded(b''.join(number.to_bytes(32, 'big') for number in numbers))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_a_token_that_expires_ends_its_streams_and_an_agent_goes_on_with_the_next_one(
    private_plane: Callable[..., ControlPlane], kubeconfig: Callable[[Access], Path], tmp_path: Path
) -> None:
    plane = private_plane()
    namespace = plane.cluster.add_namespace()
    kubeconfig(reader(namespace))
    namespace.feature_flag("shop", flags("on"))
    lasting, stranger = friend(namespace, "one"), friend(namespace, "two")
    token = tmp_path / "token"
    with ProxyProcess("--auth=kubernetes", "--auth-review=1") as proxy, streaming(proxy, namespace) as asked:
        other = asked(stranger)
        assert document(other) == flags("on")
        short = ending_in(lasting, 12, plane)  # time enough for an agent to start
        stream = asked(short)
        assert document(stream) == flags("on")
        replace(token, short + "\n")
        source = {
            "uri": proxy.address("sync"),
            "provider": "grpc",
            "selector": f"{GROUP}/{namespace.name}/shop",
            "tokenFile": str(token),
        }
        with AgentProcess("--sources", json.dumps([source])) as agent, Client(agent) as client:
            assert client.value() is True
            replace(token, lasting)
            assert ends_with(stream) is StatusCode.UNAUTHENTICATED
            agent.wait_for_log(lambda line: "the token was refused and has been replaced" in line["msg"])
            namespace.feature_flag("shop", flags("off"))
            client.sees(False)
            assert client.source()["state"] == "live"
            assert not any(secret in str(agent.lines + proxy.lines) for secret in (short, lasting, stranger))
        assert document(other) == flags("off")


def manifests(namespace: Namespace, team: Namespace) -> list[Any]:
    """Return the manifests of the page, for namespaces of the test; cluster-wide objects are named after them."""
    text = "---\n".join(blocks((ROOT / "docs/guides/proxy.md").read_text().partition("## In a cluster")[2], "yaml"))
    text = re.sub(r"namespace: flags\b", f"namespace: {namespace.name}", text)
    text = re.sub(r"namespace: shop\b", f"namespace: {team.name}", text)
    text = re.sub(r"flags-proxy-review(er)", f"{namespace.name}-review\\1", text)
    text = re.sub(r"flags-proxy-reader", f"{namespace.name}-reader", text)
    return list(yaml.safe_load_all(text.replace(f"{GROUP}/shop/", f"{GROUP}/{team.name}/")))


def container(made: list[Any], name: str) -> tuple[Any, Any]:
    """Return the pod of a Deployment, and the container that is ours."""
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in made
        if each["kind"] == "Deployment" and each["metadata"]["name"] == name
    )
    return pod, (pod.get("initContainers") or pod["containers"])[0]


def test_the_manifests_of_the_page_are_accepted_and_give_proxy_and_agent_all_they_need(
    namespace: Namespace, cluster: Cluster, kubeconfig: Callable[[Access], Path], tmp_path: Path
) -> None:
    team = cluster.add_namespace()
    made = [cluster.apply(manifest) for manifest in manifests(namespace, team)]
    kinds = {each["kind"] for each in made}
    assert kinds >= {"Deployment", "Service", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "RoleBinding"}
    pair, (_, proxied), (pod, sidecar) = (
        Authority(tmp_path).server(),
        container(made, "flags-proxy"),
        container(made, "checkout"),
    )
    for each in (proxied, sidecar):
        allowed = each["securityContext"]
        assert (allowed["readOnlyRootFilesystem"], allowed["allowPrivilegeEscalation"]) == (True, False)
    places = {"/etc/tls/tls.crt": str(pair.certificate), "/etc/tls/tls.key": str(pair.key), "/var/empty": str(tmp_path)}
    kubeconfig(cluster.access.with_token(token_of(namespace, "flags-proxy", "")))
    (volume,) = (each["projected"] for each in pod["volumes"] if "projected" in each)
    asked = volume["sources"][0]["serviceAccountToken"]
    token = tmp_path / asked["path"]
    token.write_text(token_of(team, "checkout", asked["audience"]))
    with ProxyProcess(*[_replaced(each, places) for each in proxied["args"][2:]]) as proxy:
        places = {
            "flags-proxy.flags.svc:8015": proxy.address("sync").replace("127.0.0.1", "localhost"),
            "/etc/proxy/ca.crt": str(tmp_path / "ca.crt"),
            "/var/run/secrets/flags/token": str(token),
        }
        with AgentProcess(*[_replaced(each, places) for each in sidecar["args"][1:]]) as agent, Client(agent) as client:
            assert client.value("new-checkout") is True
            assert client.source()["state"] == "live"
            replace(token, token_of(team, "checkout", ""))
        with AgentProcess(*[_replaced(each, places) for each in sidecar["args"][1:]], ready=False) as agent:
            Client(agent).is_told("UNAUTHENTICATED")
    for kind in ("clusterroles", "clusterrolebindings"):
        for name in ("reviewer", "reader"):
            path = f"/apis/{RBAC}/{kind}/{namespace.name}-{name}"
            if cluster.exists(path):
                cluster.delete(path)
    team.remove()


def _replaced(text: str, places: dict[str, str]) -> str:
    for written, found in places.items():
        text = text.replace(written, found)
    return text
