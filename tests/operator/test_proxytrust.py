"""`--proxy-auth kubernetes`: what agents, Flagds and the proxy get for it, and that nobody else gets it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.operator.known import NOW, Laid, agent_of, flagd_object, injected, pod, refused, settings, source_object
from tests.operator.test_reconcile_proxy import bodies, container_of
from wigwag.errors import UsageError
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.injection.proxytrust import AUTHORITY, VOLUME
from wigwag.operator.names import ALLOW_FROM, ObjectName
from wigwag.operator.reconcile.flagd import plan_flagd
from wigwag.operator.reconcile.usage import FlagUse, pod_uses
from wigwag.operator.run import Operator
from wigwag.options import declared
from wigwag.proxy.options import ProxyOptions

ON = settings({"POD_NAMESPACE": "ops"}, proxy_auth="kubernetes")
HOST = "flagd-proxy-svc.ops.svc"
ENTRY = {"source": "shop", "provider": "flagd-proxy"}
CONTENT = {
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "audience": HOST, "expirationSeconds": 3600}},
            {"configMap": {"name": "flagd-proxy-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]
    }
}


def known(*entries: dict[str, Any], **more: Any) -> Laid:
    flags = more.pop("flags", {"team-a/shop": {}})
    sources = {"team-a/flags": source_object(*(entries or (ENTRY,)))}
    return Laid(sources=sources, flags=flags, state=ProxyState(1, NOW), **more)


def sources_of(container: dict[str, Any]) -> Any:
    return json.loads(container["args"][container["args"].index("--sources") + 1])


def mounts_of(container: dict[str, Any]) -> dict[str, str]:
    return {each["mountPath"]: each["name"] for each in container.get("volumeMounts") or []}


def test_the_agent_alone_mounts_a_token_for_the_proxy_and_its_ca() -> None:
    changed = injected(pod(), known(), ON)
    agent = agent_of(changed)
    assert sources_of(agent) == [
        {
            "uri": f"{HOST}.cluster.local:8015",
            "provider": "grpc",
            "certPath": "/var/run/secrets/flagd-proxy/ca.crt",
            "tls": True,
            "selector": "core.openfeature.dev/team-a/shop",
            "tokenFile": "/var/run/secrets/flagd-proxy/token",
        }
    ]
    assert changed["spec"]["volumes"] == [{"name": VOLUME, **CONTENT}]
    assert mounts_of(agent) == {"/var/run/secrets/flagd-proxy": VOLUME}
    assert [mounts_of(each) for each in changed["spec"]["containers"]] == [{}]
    assert "flagd-proxy" not in json.dumps([each.get("env") for each in changed["spec"]["containers"]])


def test_without_authentication_and_with_other_providers_nothing_is_mounted() -> None:
    plain = agent_of(injected(pod(), known(), settings({"POD_NAMESPACE": "ops"})))
    selector = "core.openfeature.dev/team-a/shop"
    assert sources_of(plain) == [{"uri": f"{HOST}.cluster.local:8015", "provider": "grpc", "selector": selector}]
    direct = injected(pod(), known({"source": "shop", "provider": "kubernetes"}), ON)
    assert "volumeMounts" not in plain
    assert "volumes" not in direct["spec"]


def test_a_volume_of_the_users_with_that_name_is_not_mounted_in_its_place() -> None:
    theirs = {"name": VOLUME, "emptyDir": {}}
    changed = injected(pod(volumes=[theirs]), known(), ON)
    (name,) = mounts_of(agent_of(changed)).values()
    assert changed["spec"]["volumes"] == [theirs, {"name": name, **CONTENT}]


def test_a_config_map_of_the_users_with_the_name_of_the_ca_refuses_pods_and_says_why() -> None:
    code, message = refused(pod(), known(foreign={f"team-a/{AUTHORITY}"}), ON)
    assert (code, "it is not the operator's" in message) == (403, True)


def test_flags_of_other_namespaces_need_a_grant_before_there_is_a_token() -> None:
    there = {**ENTRY, "source": "team-b/shop"}
    assert refused(pod(), known(there, flags={"team-b/shop": {}}), ON)[0] == 403
    granted = known(there, flags={"team-b/shop": {ALLOW_FROM: "team-a"}})
    (source,) = sources_of(agent_of(injected(pod(), granted, ON)))
    assert source["selector"] == "core.openfeature.dev/team-b/shop"


def test_a_flagd_gets_the_same() -> None:
    deployment = plan_flagd(flagd_object(), known(), ON, NOW).apply[0].body["spec"]["template"]["spec"]
    (container,) = deployment["containers"]
    assert deployment["volumes"] == [{"name": VOLUME, **CONTENT}]
    assert mounts_of(container) == {"/var/run/secrets/flagd-proxy": VOLUME}
    assert sources_of(container)[0]["tls"] is True


def test_a_pod_with_a_token_for_the_proxy_uses_it() -> None:
    changed = injected(pod(serviceAccountName="web"), known(), ON)
    raw = json.dumps({**changed, "metadata": {**changed["metadata"], "namespace": "team-a"}}).encode()
    use = FlagUse(ObjectName("team-a", "web"), "flagd-proxy", ObjectName("team-a", "shop"))
    assert pod_uses(raw) == {use}


def test_the_proxy_serves_tls_and_checks_tokens_by_the_policy_of_the_operator() -> None:
    given = settings({"POD_NAMESPACE": "ops"}, proxy_auth="kubernetes", cross_namespace="deny")
    deployment, *_ = bodies(given)
    container, spec = container_of(deployment), deployment["spec"]["template"]["spec"]
    assert container["args"] == [
        *("proxy", "start", "--management-port", "8016", "--port", "8015"),
        "--auth=kubernetes",
        f"--auth-audience={HOST}",
        "--auth-policy=deny",
        "--server-cert-path=/etc/flagd-proxy/tls/tls.crt",
        "--server-key-path=/etc/flagd-proxy/tls/tls.key",
    ]
    passed = {each.partition("=")[0] for each in container["args"] if each.startswith("--")}
    assert passed <= {each.long for each in declared(ProxyOptions)}
    assert mounts_of(container) == {"/etc/flagd-proxy/tls": VOLUME}
    items = [{"key": name, "path": name} for name in ("tls.crt", "tls.key")]
    assert spec["volumes"] == [{"name": VOLUME, "secret": {"secretName": "flagd-proxy-cert", "items": items}}], (
        "never the key of the CA"
    )


@pytest.mark.parametrize(
    ("variable", "image"),
    [
        ("SIDECAR_IMAGE", "registry.test/open-feature/flagd"),
        ("FLAGD_IMAGE", "flagd"),
        ("FLAGD_PROXY_IMAGE", "registry.test/flagd-proxy"),
    ],
)
def test_images_that_know_no_tokens_are_refused_at_the_start(variable: str, image: str) -> None:
    with pytest.raises(UsageError, match=f"{variable} is {image}, the original's"):
        Operator(settings({variable: image}, proxy_auth="kubernetes"))
