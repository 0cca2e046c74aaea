"""One tenant tries to read, change or turn off the flags of another, by every path that it can reach.

Each attack is a row: what it is, and what is done. After each table, and for every row of it, the same holds: what is
Alice's is as it was, nothing of it is in Mallory's hands, and Alice's agent has the next change of her flags.
`tenants` has who they are. To add an attack, add a row; to add a kind of objects, add it to `tenants.GUARDED` as well.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import grpc
import pytest
from grpc import StatusCode
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from tests.agent.process import fetch
from tests.operator.admission.reviews import review
from tests.real import programs
from tests.real.cluster import OPENFEATURE, Manifest, Namespace
from tests.real.conftest import loudly
from tests.real.operated import SYSTEM, OperatedPlane
from tests.real.processes import until
from tests.real.rest import Rest
from tests.real.subscribers import GROUP, PATIENCE, ProxyClient, Told, token_of
from tests.real.tenants import MARK, RBAC, WAYS, Alice, Mallory, flag_document
from tests.real.test_proxy_auth import ending_in
from tests.real.workloads import App, deployment, flagd, in_process, source
from tools.manifests import ROOT
from wigwag.operator.admission.registration import FLAG_PATH, MUTATING, POD_PATH, VALIDATING
from wigwag.operator.configmaps import LABELS as FLAG_LABELS
from wigwag.operator.injection.proxytrust import AGENT_DIRECTORY, AUTHORITY, AUTHORITY_LABELS
from wigwag.operator.names import (
    AGENT_IMAGE,
    ALLOW_FROM,
    ALLOW_KUBERNETES_SYNC,
    CARRIER,
    CLUSTER_FEATURE_FLAG_SOURCE,
    ENABLED,
    FEATURE_FLAG,
    FEATURE_FLAG_SOURCE,
    FLAGS_CHANGED,
    IN_PROCESS_CONFIGURATION,
    INLINE_FLAGS,
    MANAGED_BY,
    OPERATOR,
    PODS_RETRIED,
    REMARKS,
    SERVICE_ACCOUNT,
    SOURCE_DIGESTS,
    ObjectName,
    access_name,
    config_map_name,
)
from wigwag.operator.reconcile.access import LABELS as ACCESS_LABELS
from wigwag.sources.kubernetes.references import ORDERS

STANDING_ORDER = ORDERS[0]


@dataclass(frozen=True)
class Scene:
    """Where it happens."""

    plane: OperatedPlane
    alice: Alice
    mallory: Mallory

    def is_safe(self, before: dict[str, Any]) -> None:
        """Check that nothing of Alice's has changed or leaked, and that her flags are still served."""
        assert self.alice.possessions() == before
        assert MARK not in self.mallory.sees()
        value = f"{MARK} {uuid4().hex[:8]}"
        for name in WAYS:
            self.alice.set(name, value)
        self.alice.serves(value)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with loudly("KUBERNETES"):
        programs.kubernetes()
    private = ["--private-webhooks"]
    with OperatedPlane(tmp_path_factory.mktemp("tenants"), proxy_auth=True, options=private) as plane:
        made = Scene(plane, Alice.settle(plane.cluster), Mallory.settle(plane.cluster))
        shared = source("alices", {"source": "http://127.0.0.1:1/", "provider": "http"})
        shared["spec"]["allowedNamespaces"] = {"names": [made.alice.name]}
        plane.cluster.apply({**shared, "kind": "ClusterFeatureFlagSource"})
        yield made


def named(value: str, key: str = FEATURE_FLAG_SOURCE) -> dict[str, str]:
    return {ENABLED: "true", key: value}


# Pods that name what is Alice's. {a} is her namespace, {n} the name of her object, or of one that does not exist.
NAMES = {
    "by its full name": "{a}/{n}",
    "behind one of her own": "own,{a}/{n}",
    "with blanks": "  {a}/{n}  ,",
    "with a path through her own namespace": "{m}/../{a}/{n}",
    "with two slashes": "{a}//{n}",
    "with an encoded slash": "{a}%2f{n}",
    "with capitals": "{A}/{n}",
    "with a letter of another alphabet": "\u0430lice/{n}",
    "with a wildcard": "*/{n}",
    "in no namespace": "/{n}",
    "with JSON": '{a}/{n}","namespace":"{a}',
}
SOURCES: dict[str, dict[str, Any]] = {
    "of a FeatureFlag by the API server": {"source": "{a}/{n}", "provider": "kubernetes"},
    "of a FeatureFlag by a ConfigMap": {"source": "{a}/{n}", "provider": "file"},
    "of a FeatureFlag by the proxy": {"source": "{a}/{n}", "provider": "flagd-proxy"},
    "of a FeatureFlag by a path": {"source": "../{a}_{n}/{a}_{n}.flagd.json", "provider": "file"},
    "of a FeatureFlag by a path of the proxy": {"source": "../{a}/{n}", "provider": "flagd-proxy"},
}


@dataclass(frozen=True)
class PodAttack:
    """A pod of Mallory's that would get something of Alice's."""

    what: str
    annotation: str
    name: str
    """The object of Alice's."""
    entry: Manifest | None = None
    """The source of Mallory's that leads there, instead of the annotation."""

    def run(self, scene: Scene, name: str) -> tuple[int, str]:
        """Return status and messages for an object of Alice's, whose name is left out of them."""
        names = {"{a}": scene.alice.name, "{A}": scene.alice.name.upper(), "{m}": scene.mallory.name, "{n}": name}

        def filled(text: str) -> str:
            for mark, value in names.items():
                text = text.replace(mark, value)
            return text

        status = ""
        if self.entry is not None:
            given = {key: filled(value) for key, value in self.entry.items()}
            status = self._observed(scene, source(f"thief-{uuid4().hex[:8]}", given))
        asked = status.partition(" ")[0] if status else filled(self.name)
        answer = scene.mallory.pod(named(asked, self.annotation))
        return answer.status, (answer.json.get("message", "") + status).replace(name, "NAME").replace(asked, "SOURCE")

    def _observed(self, scene: Scene, manifest: dict[str, Any]) -> str:
        """Make a source; return its name and what the operator says about it, when it has read it."""
        name, mallory = manifest["metadata"]["name"], scene.mallory.namespace
        path = mallory.cluster.path_of(mallory.apply(manifest))

        def said() -> str:
            conditions = mallory.cluster.get(path).get("status", {}).get("conditions") or []
            return " ".join(each.get("message", "") for each in conditions if each["type"] == "Resolved")

        return f"{name} {until(said, 'the status of the source')}"


POD_ATTACKS = [
    *(PodAttack(f"a FeatureFlagSource {how}", FEATURE_FLAG_SOURCE, name) for how, name in NAMES.items()),
    *(PodAttack(f"an InProcessConfiguration {how}", IN_PROCESS_CONFIGURATION, name) for how, name in NAMES.items()),
    *(PodAttack(f"a source {how}", FEATURE_FLAG_SOURCE, "", entry) for how, entry in SOURCES.items()),
    *(PodAttack(f"a standing order {how}", STANDING_ORDER, name) for how, name in NAMES.items() if "JSON" not in how),
    PodAttack("a shared source that is for Alice only", CLUSTER_FEATURE_FLAG_SOURCE, "{n}"),
]


@pytest.mark.parametrize("attack", POD_ATTACKS, ids=lambda attack: attack.what)
def test_a_pod_gets_nothing_of_another_tenant_and_does_not_learn_what_there_is(attack: PodAttack, scene: Scene) -> None:
    scene.mallory.namespace.apply(source("own", {"source": "http://127.0.0.1:1/", "provider": "http"}))
    hers = {
        FEATURE_FLAG_SOURCE: "direct" if attack.entry else "hers",
        IN_PROCESS_CONFIGURATION: "local",
        STANDING_ORDER: "direct",
        CLUSTER_FEATURE_FLAG_SOURCE: "alices",
    }
    status, message = attack.run(scene, hers[attack.annotation])
    assert status in (403, 404, 500), message
    assert MARK not in message
    assert (status, message) == attack.run(scene, "nothing"), "what exists is refused in the words of what does not"


def config_map(name: str, **about: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **about}, "data": {"x": "y"}}


def owned_by(api: str, kind: str, name: str, uid: str) -> list[dict[str, Any]]:
    return [{"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}]


def role(kind: str, name: str, account: str, **more: Any) -> dict[str, Any]:
    about = {"name": name, "labels": ACCESS_LABELS, "annotations": {SERVICE_ACCOUNT: account}}
    return {"apiVersion": RBAC, "kind": kind, "metadata": about, **more}


def running_agent(name: str, *sources: dict[str, Any], **about: Any) -> dict[str, Any]:
    """Return a pod that looks injected, but was not."""
    annotations = {ALLOW_KUBERNETES_SYNC: "true"}
    args = ["start", "--management-port=8014", "--sources", json.dumps(sources)]
    spec = {"containers": [{"name": "flagd", "image": "x", "args": args}], "serviceAccountName": "mallory"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations, **about},
        "spec": {**spec, "nodeName": "nowhere"},
    }


def carrying(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    """Return a Deployment with annotations of its own."""
    made = deployment(name, replicas=0)
    return {**made, "metadata": {**made["metadata"], "annotations": annotations}}


Forged = Callable[[Scene, dict[str, Any]], list[dict[str, Any]]]
"""Given what is Alice's, by kind and name: the objects that Mallory makes in her own namespace."""
FORGERIES: dict[str, Forged] = {
    "a workload that follows her flags": lambda scene, _: [
        carrying("thief-f", {STANDING_ORDER: f"{scene.alice.name}/direct"}),
        carrying("thief-g", {ORDERS[1]: "direct", f"{ORDERS[1]}-namespace": scene.alice.name}),
    ],
    "a workload that carries flags in her name": lambda scene, _: [
        carrying("web", {INLINE_FLAGS: json.dumps(flag_document("direct", "mallory's")), REMARKS: "scope=cluster"}),
        carrying("direct", {INLINE_FLAGS: "{"}),
    ],
    "a FeatureFlag that says a workload of hers carries it": lambda scene, hers: [
        {
            "apiVersion": OPENFEATURE,
            "kind": "FeatureFlag",
            "metadata": {
                "name": "web-deployment",
                "annotations": {CARRIER: "Deployment/web"},
                "ownerReferences": owned_by("apps/v1", "Deployment", "web", hers["Deployment web"]["uid"]),
            },
            "spec": {"flagSpec": flag_document("direct", "mallory's")},
        }
    ],
    "a remote that would be sent her Secret": lambda scene, _: [
        {
            "apiVersion": OPENFEATURE,
            "kind": "FeatureFlag",
            "metadata": {"name": f"remote-{at}", "annotations": {ALLOW_FROM: "*"}},
            "spec": {"remoteFlagProvider": {"type": "http", "uri": "http://127.0.0.1:1/", **given}},
        }
        for at, given in enumerate[dict[str, Any]](
            (
                {"credentials": {"secret": f"{scene.alice.name}/s"}},
                {"credentials": {"secret": "../s"}},
                {"uri": "file:///var/run/secrets/kubernetes.io/serviceaccount/token", "type": "file"},
                {"uri": f"{scene.alice.name}/direct", "type": "kubernetes"},
            )
        )
    ],
    "a shared source of all namespaces": lambda *_: [
        {**source("everybodys", {"source": "http://127.0.0.1:1/"}), "kind": "ClusterFeatureFlagSource"}
    ],
    "an upgrade of her agents, and a revision of her own": lambda *_: [
        {**config_map("open-feature-operator-sidecars", labels={MANAGED_BY: OPERATOR}), "data": {"paused": "true"}},
        deployment("thief-h", replicas=0, annotations={AGENT_IMAGE: "mallory", FLAGS_CHANGED: "x"}),
    ],
    "ConfigMaps that say they hold her flags": lambda scene, _: [
        config_map(f"held-{at}", labels=FLAG_LABELS, annotations={FEATURE_FLAG: f"{scene.alice.name}/mounted"})
        for at in range(30)
    ],
    "a ConfigMap with the name of a copy of her flags": lambda scene, _: [
        config_map(config_map_name(ObjectName(scene.alice.name, "mounted"), scene.mallory.name))
    ],
    "a ConfigMap owned by her FeatureFlag": lambda _, hers: [
        config_map(
            "child", ownerReferences=owned_by(OPENFEATURE, "FeatureFlag", "direct", hers["FeatureFlag direct"]["uid"])
        )
    ],
    "the CA of the proxy, her own and not to be changed": lambda *_: [
        {**config_map(AUTHORITY, labels=AUTHORITY_LABELS), "immutable": True}
    ],
    "ConfigMaps that say they are the CA of the proxy": lambda *_: [
        config_map(f"authority-{at}", labels=AUTHORITY_LABELS) for at in range(5)
    ],
    "Roles that say they are her agent's": lambda scene, _: [
        made
        for at in range(30)
        for account in (f"{scene.alice.name}/default",)
        for made in (
            role("Role", f"forged-{at}", account, rules=[]),
            role("RoleBinding", f"forged-{at}", account, roleRef={"apiGroup": RBAC[:-3], "kind": "Role", "name": "x"}),
        )
    ],
    "a Role with the name of her agent's": lambda scene, _: [
        role("Role", access_name(ObjectName(scene.alice.name, "default")), f"{scene.alice.name}/default", rules=[])
    ],
    "a Deployment that a Flagd of hers would own": lambda scene, hers: [
        {
            **deployment("web", replicas=0),
            "metadata": {
                "name": "web",
                "labels": {MANAGED_BY: OPERATOR},
                "ownerReferences": owned_by(OPENFEATURE, "Flagd", "web", hers["Deployment web"]["uid"]),
            },
        }
    ],
    "a Flagd of her source": lambda scene, _: [flagd("thief-a", f"{scene.alice.name}/hers")],
    "a Flagd of her flags": lambda scene, _: [
        source("flagd-thief", *({"source": f"{scene.alice.name}/{name}", "provider": p} for name, p in WAYS.items())),
        flagd("thief-b", "flagd-thief"),
    ],
    "a Flagd with her account": lambda scene, _: [
        source("own-http", {"source": "http://127.0.0.1:1/", "provider": "http"}),
        flagd("thief-c", "own-http", serviceAccountName=f"system:serviceaccount:{scene.alice.name}:default"),
    ],
    "a workload that names her source, with annotations that only the operator writes": lambda scene, _: [
        deployment(
            "thief-d",
            f"{scene.alice.name}/hers",
            replicas=0,
            annotations={
                ALLOW_KUBERNETES_SYNC: "true",
                SOURCE_DIGESTS: f"{scene.alice.name}/hers=0000000000000000",
                PODS_RETRIED: "2020-01-01T00:00:00Z",
            },
        )
    ],
    "a workload that names her configuration": lambda scene, _: [
        deployment("thief-e", replicas=0, annotations=named(f"{scene.alice.name}/local", IN_PROCESS_CONFIGURATION))
    ],
    "pods that look injected": lambda scene, _: [
        running_agent("api", {"uri": f"{scene.alice.name}/direct", "provider": "kubernetes"}),
        running_agent(
            "file",
            {"uri": f"/etc/flagd/{scene.alice.name}_mounted/{scene.alice.name}_mounted.flagd.json", "provider": "file"},
        ),
        running_agent(
            "proxy",
            {
                "uri": "x:1",
                "provider": "grpc",
                "selector": f"{GROUP}/{scene.alice.name}/proxied",
                "tokenFile": f"{AGENT_DIRECTORY}/token",
            },
        ),
    ],
    "grants of objects of her own": lambda scene, _: [
        {
            **made,
            "metadata": {
                **made["metadata"],
                "annotations": {ALLOW_FROM: f"{scene.alice.name},*, ,{scene.mallory.name}"},
            },
        }
        for made in (
            source("source", {"source": f"{scene.alice.name}/direct", "provider": "kubernetes"}),
            in_process("local", host="mallory"),
            *(
                {
                    "apiVersion": OPENFEATURE,
                    "kind": "FeatureFlag",
                    "metadata": {"name": name},
                    "spec": {"flagSpec": flag_document(name, "mallory's")},
                }
                for name in WAYS
            ),
        )
    ],
    "environment variables from her Secrets": lambda scene, _: [
        in_process(
            "secrets",
            envVars=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": f"{scene.alice.name}/s", "key": "k"}}}],
        )
    ],
}


def test_forged_objects_change_nothing_of_another_tenant(scene: Scene) -> None:
    """All at once, as Mallory would; a row that does harm shows in what is hers, by name."""
    before = scene.alice.possessions()
    for forge in FORGERIES.values():
        for manifest in forge(scene, before):
            scene.mallory.tries(manifest)
    scene.mallory.waits()
    scene.is_safe(before={**before})
    seen = scene.mallory.sees()
    assert "flagd-proxy-svc" not in seen or '"tls": true' in seen
    granted = [name for name in scene.alice.possessions() if name.startswith("Role") and scene.mallory.name in name]
    assert granted == []


def test_an_agent_of_her_own_reads_nothing_of_another_tenant(scene: Scene) -> None:
    """A pod that was written by hand runs an agent, with the token of Mallory's account."""
    pod = running_agent("thief", {"uri": f"{scene.alice.name}/direct", "provider": "kubernetes"})
    del pod["spec"]["nodeName"]
    scene.mallory.namespace.apply(pod)
    path = scene.mallory.namespace.path("v1", "Pod", "thief")

    def address() -> str:
        return str(scene.mallory.namespace.cluster.get(path).get("status", {}).get("podIP") or "")

    def error() -> str:
        try:
            return str(json.loads(fetch(f"{address()}:8014", "/debug/sources")[1])[0]["error"] or "")
        except OSError:
            return ""

    until(address, "the address of the pod")
    until(lambda: "may not watch featureflags" in error(), "the refusal of the API server")
    answer = fetch(f"{address()}:8016", "/ofrep/v1/evaluate/flags", {}, content_type="application/json")[1]
    assert MARK.encode() not in answer
    scene.mallory.namespace.cluster.delete(path)


Token = Callable[[Scene], str]


def of_mallory(scene: Scene) -> str:
    return token_of(scene.mallory.admin, "mallory")


def forged(scene: Scene) -> str:
    """Return Mallory's own token with Alice's claims."""
    head, _, signature = of_mallory(scene).split(".")
    return ".".join((head, token_of(scene.alice.namespace).split(".")[1], signature))


def unsigned(scene: Scene) -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    return f"{head}.{token_of(scene.alice.namespace).split('.')[1]}."


TOKENS: dict[str, Token] = {
    "no token": lambda _: "",
    "any text": lambda _: "alice",
    "a forged token": forged,
    "an unsigned token": unsigned,
    "Alice's token that has ended": lambda scene: ending_in(token_of(scene.alice.namespace), -5, scene.plane.plane),
    "Alice's token for the API server": lambda scene: token_of(scene.alice.namespace, audience=""),
    "Alice's token for another proxy": lambda scene: token_of(scene.alice.namespace, audience="flagd-proxy"),
    "her own token for the API server": lambda scene: token_of(scene.mallory.admin, "mallory", audience=""),
}


@pytest.fixture(scope="module")
def proxy(scene: Scene) -> ProxyClient:
    return ProxyClient.trusting(scene.alice.namespace)


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_the_proxy_knows_nobody_by_a_token_that_is_not_theirs(token: Token, scene: Scene, proxy: ProxyClient) -> None:
    told = proxy.ask(f"{GROUP}/{scene.alice.name}/proxied", token(scene))
    assert (told.document, told.code) == ("", StatusCode.UNAUTHENTICATED)
    assert MARK not in told.message


SELECTORS = {
    "her flag": f"{GROUP}/{{a}}/{{n}}",
    "without the prefix": "{a}/{n}",
    "by labels": f"{GROUP}/{{a}}?labels=",
    "with capitals": "CORE.openfeature.dev/{a}/{n}",
    "through her own namespace": f"{GROUP}/{{m}}/../{{a}}/{{n}}",
    "with an encoded slash": f"{GROUP}/{{m}}%2f..%2f{{a}}/{{n}}",
    "with an encoded name": f"{GROUP}/{{m}}/..%2f{{a}}%2f{{n}}",
    "with a field selector": f"{GROUP}/{{m}}/x,metadata.namespace={{a}}",
    "labels that lead elsewhere": f"{GROUP}/{{m}}?labels=&fieldSelector=metadata.namespace={{a}}",
    "in no namespace": f"{GROUP}//{{n}}",
    "in all namespaces": f"{GROUP}/*/{{n}}",
    "two at once": f"{GROUP}/{{m}}/own,{GROUP}/{{a}}/{{n}}",
    "with a blank": f" {GROUP}/{{a}}/{{n}}",
    "as a source": f"source={GROUP}/{{a}}/{{n}}",
    "her ConfigMap": "configmap/{a}/mounted",
    "the key of the proxy": "file:/etc/flagd-proxy/tls/tls.key",
    "the token of the proxy": "file:///var/run/secrets/kubernetes.io/serviceaccount/token",
    "another server": "http://127.0.0.1:8016/metrics",
    "another proxy": "grpc://127.0.0.1:8015",
    "nothing": "",
    "everything": "*",
}


def shown(told: Told, scene: Scene, name: str) -> tuple[StatusCode, str]:
    return told.code, told.message.replace(name, "NAME")


@pytest.mark.parametrize("selector", SELECTORS.values(), ids=SELECTORS)
def test_the_proxy_gives_a_tenant_nothing_of_another(selector: str, scene: Scene, proxy: ProxyClient) -> None:
    token = of_mallory(scene)

    def ask(name: str) -> Told:
        return proxy.ask(selector.format(a=scene.alice.name, m=scene.mallory.name, n=name), token)

    told = ask("proxied")
    assert told.document == ""
    assert told.code in (StatusCode.PERMISSION_DENIED, StatusCode.INVALID_ARGUMENT)
    assert shown(told, scene, "proxied") == shown(ask("nothing"), scene, "nothing")


def test_the_proxy_reads_one_selector_and_serves_no_plaintext(scene: Scene, proxy: ProxyClient) -> None:
    scene.mallory.namespace.feature_flag("own", flag_document("x", "mallory's"))
    own, hers = (f"{GROUP}/{name}" for name in (f"{scene.mallory.name}/own", f"{scene.alice.name}/proxied"))
    token = of_mallory(scene)
    metadata = (("authorization", f"Bearer {token}"), ("flagd-selector", hers))
    assert "mallory's" in proxy.gets(own, token)
    with proxy.stub() as stub:
        stream = stub.SyncFlags(sync_pb2.SyncFlagsRequest(selector=own), metadata=metadata, timeout=PATIENCE)
        assert "mallory's" in next(stream).flag_configuration
        stream.cancel()
        with pytest.raises(grpc.RpcError) as caught:
            stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(), metadata=metadata, timeout=PATIENCE)
    assert caught.value.code() is StatusCode.PERMISSION_DENIED
    assert proxy.ask(hers, token, plaintext=True).code is StatusCode.UNAVAILABLE


def test_a_grant_opens_one_flag_to_one_namespace_and_no_more(scene: Scene, proxy: ProxyClient) -> None:
    """What the refusals above are worth: with a grant, the same requests succeed."""
    name, token = f"shared-{uuid4().hex[:8]}", of_mallory(scene)
    about = {"apiVersion": OPENFEATURE, "kind": "FeatureFlag"}
    for suffix, allowed in (("a", scene.mallory.name), ("b", f"{scene.mallory.name}x, x{scene.mallory.name}")):
        metadata = {"name": f"{name}-{suffix}", "annotations": {ALLOW_FROM: allowed}}
        scene.alice.namespace.apply({**about, "metadata": metadata, "spec": {"flagSpec": flag_document("x", "shared")}})
    assert "shared" in proxy.gets(f"{GROUP}/{scene.alice.name}/{name}-a", token)
    assert proxy.ask(f"{GROUP}/{scene.alice.name}/{name}-b", token).code is StatusCode.PERMISSION_DENIED
    scene.mallory.namespace.apply(
        source("granted", {"source": f"{scene.alice.name}/{name}-a", "provider": "kubernetes"})
    )
    until(lambda: scene.mallory.pod(named("granted")).status == 201, "a pod with the granted flag")


PAGES = {
    "metrics of the operator": ("metrics", "/metrics"),
    "probes of the operator": ("probes", "/readyz"),
    "a debug page of the operator": ("probes", "/debug"),
}


@pytest.mark.parametrize(("port", "path"), PAGES.values(), ids=PAGES)
def test_the_ports_of_the_operator_tell_nothing_of_tenants(port: str, path: str, scene: Scene) -> None:
    _, body = scene.plane.operator.fetch(port, path)
    assert scene.alice.name.encode() not in body
    assert MARK.encode() not in body


def test_the_management_port_of_the_proxy_names_no_targets(scene: Scene, proxy: ProxyClient) -> None:
    assert proxy.gets(f"{GROUP}/{scene.alice.name}/proxied", token_of(scene.alice.namespace))
    pod = App(Namespace(scene.plane.cluster, SYSTEM), "flagd-proxy").ready()
    _, body = fetch(f"{pod['status']['podIP']}:8016", "/metrics")
    assert b"wigwag_proxy_targets" in body
    assert scene.alice.name.encode() not in body


REVIEWS: dict[str, tuple[str, Callable[[Scene], dict[str, Any]]]] = {
    "a pod of hers": (POD_PATH, lambda scene: named("hers")),
    "a pod of hers with a configuration": (POD_PATH, lambda scene: named("local", IN_PROCESS_CONFIGURATION)),
    "a pod that names what is hers": (POD_PATH, lambda scene: named(f"{scene.alice.name}/hers")),
    "a path beside it": (f"{POD_PATH}/", lambda scene: named("hers")),
    "a path with a guess": (f"{POD_PATH}/0123456789abcdef", lambda scene: named("hers")),
    "a FeatureFlag of hers": (FLAG_PATH, lambda scene: named("hers")),
}


@pytest.mark.parametrize("name", REVIEWS)
def test_who_calls_the_webhooks_in_place_of_the_api_server_learns_nothing(name: str, scene: Scene) -> None:
    path, annotations = REVIEWS[name]
    pod = {
        "metadata": {"name": "x", "annotations": annotations(scene), "ownerReferences": [{"kind": "x"}]},
        "spec": {"containers": [{"name": "app"}]},
    }
    secret = scene.plane.cluster.get(scene.plane.cluster.path("v1", "Secret", SYSTEM, "webhook-server-cert"))
    authority = base64.b64decode(secret["data"]["ca.crt"]).decode()
    answer = Rest(scene.plane.operator.url, authority).ask("POST", path, review(namespace=scene.alice.name, object=pod))
    assert answer.status == 404
    assert MARK.encode() not in answer.body


def test_the_webhooks_are_registered_where_the_api_server_alone_finds_them(scene: Scene) -> None:
    """Mallory may not read webhook configurations, and what is there is not what she can guess."""
    for kind, base in ((MUTATING, POD_PATH), (VALIDATING, FLAG_PATH)):
        assert scene.mallory.namespace.cluster.rest.ask("GET", kind.path()).status == 403
        for each in scene.plane.cluster.get(kind.path())["items"]:
            assert f"{base}/" in each["webhooks"][0]["clientConfig"]["url"]


def test_an_injected_agent_has_no_more_privileges_than_the_namespace_allows(scene: Scene) -> None:
    """Pod security is checked after injection, so a source cannot ask for what the namespace forbids."""
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    path = scene.plane.cluster.path("v1", "Namespace", name=scene.mallory.name)
    scene.plane.cluster.patch(path, {"metadata": {"labels": enforce}})
    context = {"privileged": True, "allowPrivilegeEscalation": True, "runAsUser": 0}
    own = {"source": "http://127.0.0.1:1/", "provider": "http"}
    scene.mallory.namespace.apply(source("privileged", own, securityContext=context))
    until(lambda: scene.mallory.pod(named("privileged")).status == 403, "the refusal")
    message = until(lambda: _violation(scene), "a refusal by pod security")
    assert "privileged" in str(message)
    scene.plane.cluster.patch(path, {"metadata": {"labels": dict.fromkeys(enforce)}})


def _violation(scene: Scene) -> str:
    answer = scene.mallory.pod(named("privileged"))
    message = str(answer.json.get("message", ""))
    return message if answer.status == 403 and "violates PodSecurity" in message else ""


def test_the_page_about_tenants_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "tenants-threats.md").read_text()
    names = set(re.findall(r"`(test_\w+)`", page))
    ours = {name for name, value in globals().items() if name.startswith("test_") and callable(value)}
    assert names <= ours
    assert ours - names == {"test_the_page_about_tenants_names_tests_that_exist"}
    assert all((ROOT / path).exists() for path in re.findall(r"`(tests/[\w/.]+)`", page))
