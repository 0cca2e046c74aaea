"""The proxy on a real API server: each state of a FeatureFlag reaches subscribers; only who may read it gets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.agent.process import TIMEOUT
from tests.proxy.process import ProxyProcess, subscribed
from tests.real.cluster import OPENFEATURE, Cluster, Namespace

GROUP = "core.openfeature.dev"
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
ON = {**FLAG, "defaultVariant": "on"}


def flags(**found: Any) -> dict[str, Any]:
    return {"flags": found}


@pytest.fixture
def config(namespace: Namespace, tmp_path: Path) -> str:
    """The access of a proxy that may read the FeatureFlags of its namespace, and ask who may."""
    access = namespace.account("proxy")
    namespace.allow("proxy", "featureflags", ["get", "list", "watch"], group=GROUP)
    delegate(namespace, "proxy")
    return str(access.kubeconfig(tmp_path / "kubeconfig"))


def delegate(namespace: Namespace, account: str) -> None:
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace.name}
    name = {"name": f"{namespace.name}-{account}"}
    namespace.cluster.apply({**about, "metadata": name, "roleRef": role, "subjects": [subject]})


@pytest.fixture
def proxy(config: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProxyProcess]:
    monkeypatch.setenv("KUBECONFIG", config)
    with ProxyProcess() as found:
        yield found


def test_every_state_of_a_flag_reaches_all_subscribers(proxy: ProxyProcess, namespace: Namespace) -> None:
    """Not there yet, made, changed, deleted, and made again."""
    selector = f"{GROUP}/{namespace.name}/shop"
    with subscribed(proxy, selector) as one, subscribed(proxy, selector) as two:
        proxy.wait_for_log(lambda line: f"{namespace.name}/shop" in line["msg"] and line["level"] == "warning")
        namespace.feature_flag("shop", flags(x=FLAG))
        assert one.document() == two.document() == flags(x=FLAG)
        namespace.feature_flag("shop", flags(x=ON))
        assert one.document() == two.document() == flags(x=ON)
        seen = len(proxy.lines)
        namespace.cluster.delete(namespace.path(OPENFEATURE, "FeatureFlag", "shop"))
        proxy.wait_for_log(lambda line: f"{namespace.name}/shop" in line["msg"] and line["level"] == "warning", seen)
        with subscribed(proxy, selector) as late:
            assert late.document() == flags(x=ON)
        namespace.feature_flag("shop", flags(x=FLAG))
        assert one.document() == two.document() == flags(x=FLAG)
        (told,) = proxy.targets()["targets"]
        assert (told["provider"], told["state"], told["subscribers"]) == ("kubernetes", "live", 2)


def test_a_proxy_that_may_not_read_a_flag_waits_until_it_may(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = namespace.account("poor")
    monkeypatch.setenv("KUBECONFIG", str(access.kubeconfig(tmp_path / "kubeconfig")))
    namespace.feature_flag("shop", flags(x=FLAG))
    with ProxyProcess() as proxy, subscribed(proxy, f"{GROUP}/{namespace.name}/shop") as one:
        told = proxy.wait_for_log(lambda line: line["level"] == "warning")
        assert "may not" in told["msg"], told
        namespace.allow("poor", "featureflags", ["get", "list", "watch"], names=["shop"], group=GROUP)
        assert one.document() == flags(x=FLAG)


def test_only_who_may_get_a_flag_may_subscribe_to_it(
    namespace: Namespace, cluster: Cluster, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", config)
    namespace.feature_flag("shop", flags(x=FLAG))
    friend, stranger = namespace.account("friend").token, namespace.account("stranger").token
    namespace.allow("friend", "featureflags", ["get"], names=["shop"], group=GROUP)
    with ProxyProcess("--auth=kubernetes") as proxy, grpc.insecure_channel(proxy.address("sync")) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)

        def asked(token: str, name: str = "shop") -> Any:
            request = sync_pb2.SyncFlagsRequest(selector=f"{GROUP}/{namespace.name}/{name}")
            metadata = (("authorization", f"Bearer {token}"),) if token else ()
            return stub.SyncFlags(request, metadata=metadata, timeout=TIMEOUT)

        assert '"x"' in next(asked(friend)).flag_configuration
        for token, name, code in (
            ("", "shop", StatusCode.UNAUTHENTICATED),
            ("made-up", "shop", StatusCode.UNAUTHENTICATED),
            (stranger, "shop", StatusCode.PERMISSION_DENIED),
            (friend, "other", StatusCode.PERMISSION_DENIED),
        ):
            stream = asked(token, name)
            with pytest.raises(grpc.RpcError):
                next(stream)
            assert stream.code() is code
        assert friend not in str(proxy.lines)
        assert proxy.metric('wigwag_proxy_refusals_total{reason="authorization"}') == 4
