"""The proxy on real servers: each state of a FeatureFlag or key reaches subscribers; only who may read it gets it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.agent.process import TIMEOUT
from tests.proxy.process import ProxyProcess, subscribed
from tests.real.access import Access
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.consul import Consul, ConsulServer
from tests.real.processes import until
from tests.real.tap import Tap

GROUP = "core.openfeature.dev"
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
ON = {**FLAG, "defaultVariant": "on"}
PATIENCE = 100.0


def flags(**found: Any) -> dict[str, Any]:
    return {"flags": found}


@pytest.fixture
def access(namespace: Namespace) -> Access:
    """Of a proxy that may read the FeatureFlags of its namespace, and ask who may."""
    found = namespace.account("proxy")
    namespace.allow("proxy", "featureflags", ["get", "list", "watch"], group=GROUP)
    delegate(namespace, "proxy")
    return found


@pytest.fixture
def config(access: Access, tmp_path: Path) -> str:
    return str(access.kubeconfig(tmp_path / "kubeconfig"))


def delegate(namespace: Namespace, account: str) -> None:
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace.name}
    name = {"name": f"{namespace.name}-{account}"}
    namespace.cluster.apply({**about, "metadata": name, "roleRef": role, "subjects": [subject]})
    review = {"group": "authentication.k8s.io", "resource": "tokenreviews"}
    namespace.cluster.await_right(f"{namespace.name}:{account}", "create", **review)


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


def test_all_have_one_watch_and_an_outage_ends_no_stream(
    namespace: Namespace, access: Access, kubeconfig: Callable[[Access], Path], tapped: Callable[[Access], Tap]
) -> None:
    tap = tapped(access)
    kubeconfig(tap.access)
    namespace.feature_flag("shop", flags(x=FLAG))
    selector = f"{GROUP}/{namespace.name}/shop"
    with ProxyProcess() as proxy, ExitStack() as stack:
        ones = [stack.enter_context(subscribed(proxy, selector, PATIENCE)) for _ in range(20)]
        assert all(one.document() == flags(x=FLAG) for one in ones)
        assert [each.status for each in tap.exchanges] == [200], "one watch for all"
        tap.refuse()
        namespace.feature_flag("shop", flags(x=ON))
        proxy.wait_for_trouble(f"{namespace.name}/shop")
        late = stack.enter_context(subscribed(proxy, selector, PATIENCE))
        assert late.document() == flags(x=FLAG)
        tap.listen()
        assert all(one.document() == flags(x=ON) for one in (*ones, late))
        asked = [(each.watch, each.whole, each.status) for each in tap.exchanges]
        assert asked == [(True, True, 200), (True, False, 200)], "it went on from where it was"


def test_what_kubernetes_said_of_a_subscriber_is_remembered_and_an_open_stream_outlives_the_answer(
    namespace: Namespace, access: Access, kubeconfig: Callable[[Access], Path], tapped: Callable[[Access], Tap]
) -> None:
    tap = tapped(access)
    kubeconfig(tap.access)
    namespace.feature_flag("shop", flags(x=FLAG))
    friend, other = namespace.account("friend").token, namespace.account("other").token
    namespace.allow("friend", "featureflags", ["get"], names=["shop"], group=GROUP)
    request = sync_pb2.SyncFlagsRequest(selector=f"{GROUP}/{namespace.name}/shop")
    with ProxyProcess("--auth=kubernetes") as proxy, grpc.insecure_channel(proxy.address("sync")) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)

        def asked(token: str) -> Any:
            return stub.SyncFlags(request, metadata=(("authorization", f"Bearer {token}"),), timeout=PATIENCE)

        def refused(token: str) -> StatusCode:
            stream = asked(token)
            with pytest.raises(grpc.RpcError):
                next(stream)
            code: StatusCode = stream.code()
            return code

        def reviews() -> tuple[int, int]:
            return len(tap.since(0, "tokenreviews")), len(tap.since(0, "subjectaccessreviews"))

        streams = [asked(friend) for _ in range(5)]
        assert all('"x"' in next(stream).flag_configuration for stream in streams)
        first = reviews()
        assert first == (1, 1), "equal questions at one time are one"
        streams += [asked(friend) for _ in range(20)]
        assert all('"x"' in next(stream).flag_configuration for stream in streams[5:])
        assert reviews() == first, "nobody was asked again"

        assert refused(other) is StatusCode.PERMISSION_DENIED
        namespace.allow("other", "featureflags", ["get"], names=["shop"], group=GROUP)
        until(lambda: '"x"' in _first(asked(other)), "a refusal being forgotten soon")

        namespace.cluster.delete(namespace.path("rbac.authorization.k8s.io/v1", "RoleBinding", "friend"))
        tap.refuse()
        assert refused(namespace.account("third").token) is StatusCode.UNAVAILABLE
        tap.listen()
        namespace.feature_flag("shop", flags(x=ON))
        for stream in streams:
            assert json.loads(next(stream).flag_configuration) == flags(x=ON)


def _first(stream: Any) -> str:
    """Return the first document, or nothing if it is refused."""
    try:
        return str(next(stream).flag_configuration)
    except grpc.RpcError:
        return ""


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


def test_a_key_of_consul_appears_changes_and_outlives_consul(private_consul: Callable[..., ConsulServer]) -> None:
    server = private_consul()
    there = server.consul.address.removeprefix("http://")
    key, selector = "flags/shop.json", f"consul://{there}/flags/shop.json"
    with (
        ProxyProcess("--allow=consul") as proxy,
        subscribed(proxy, selector, PATIENCE) as one,
        subscribed(proxy, selector, PATIENCE) as two,
    ):
        proxy.wait_for_trouble(there)
        for said in (flags(x=FLAG), flags(x=ON)):
            server.consul.put(key, json.dumps(said))
            assert one.document() == two.document() == said
        seen = len(proxy.lines)
        server.server.kill()
        proxy.wait_for_trouble(there, seen)
        with subscribed(proxy, selector, PATIENCE) as late:
            assert late.document() == flags(x=ON)
            server.server.start()
            until(lambda: "no such key" in str(proxy.targets()), "Consul being there, and empty")
            server.consul.put(key, json.dumps(flags(x=FLAG)))
            assert one.document() == two.document() == late.document() == flags(x=FLAG), "and nothing in between"
        (told,) = proxy.targets()["targets"]
        assert (told["provider"], told["state"]) == ("consul", "live")


def test_all_keys_below_a_prefix_of_consul_are_one_document(consul: Consul, prefix: str) -> None:
    consul.put(f"{prefix}/a.json", json.dumps(flags(x=FLAG)))
    selector = f"consul://{consul.address.removeprefix('http://')}/{prefix}/"
    with ProxyProcess("--allow=consul") as proxy, subscribed(proxy, selector) as one:
        assert set(one.document()["flags"]) == {"x"}
        consul.put(f"{prefix}/b.json", json.dumps(flags(y=ON)))
        assert set(one.document()["flags"]) == {"x", "y"}


def test_consul_is_no_target_unless_it_is_allowed(consul: Consul) -> None:
    with ProxyProcess() as proxy, grpc.insecure_channel(proxy.address("sync")) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        selector = f"consul://{consul.address.removeprefix('http://')}/flags"
        with pytest.raises(grpc.RpcError) as caught:
            stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(selector=selector), timeout=TIMEOUT)
        error: Any = caught.value
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert "this proxy has no consul targets" in error.details()
