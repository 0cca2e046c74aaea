"""Sources of an agent, and what a pod needs for them.

| group | test |
|---|---|
| U01, U22 | `test_u01_u22_every_provider_is_known` |
| U16, U48 | `test_u16_u48_a_flag_that_is_missing_refuses_the_pod` |
| U25 | `test_u25_a_source_without_a_provider_has_the_default_one` |
| U34 | `test_u34_kubernetes_marks_the_pod` |
| U35 | `test_u35_file_mounts_the_config_map` |
| U37 | `test_u37_http_has_a_token_and_an_interval` |
| U38, U39, U40 | `test_u38_u39_u40_blobs_have_an_interval` |
| U41 | `test_u41_grpc_has_certificates_and_a_selector` |
| U42, U43 | `test_u42_u43_a_pod_waits_for_the_proxy` |
| U44 | `test_u44_a_ready_proxy_is_asked_for_the_flag` |
| U46 | `test_u46_an_unknown_provider_is_an_error` |

No ConfigMap and no binding is written while a pod is admitted: U36 is in test_flags.py, U50 to U54 in test_access.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.operator.known import NOW, Laid, agent_of, environment_of, injected, pod, refused, settings, source_object
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.injection.sources import Needs, SourceResolver
from wigwag.operator.injection.verdict import Denied
from wigwag.operator.names import ALLOW_FROM, ALLOW_KUBERNETES_SYNC
from wigwag.operator.resources.featureflagsource import PROVIDERS

PROXY_HOST = "flagd-proxy-svc.open-feature-operator-system.svc.cluster.local"


def laid(*sources: dict[str, Any], **members: Any) -> Laid:
    spec = {key: value for key, value in members.items() if key not in ("flags", "state", "foreign")}
    rest = {key: members[key] for key in ("state", "foreign") if key in members}
    flags = members.get("flags", {"team-a/shop": {}})
    return Laid(sources={"team-a/flags": source_object(*sources, **spec)}, flags=flags, **rest)


def sources_of(changed: dict[str, Any]) -> Any:
    arguments = agent_of(changed)["args"]
    return json.loads(arguments[arguments.index("--sources") + 1])


def test_u01_u22_every_provider_is_known() -> None:
    known = Laid(flags={"team-a/shop": {}}, state=ProxyState(1, NOW))
    resolver = SourceResolver(namespace="team-a", known=known, settings=settings(), now=NOW)
    for provider in PROVIDERS:
        (need,) = resolver.resolve(source_object({"source": "shop", "provider": provider}).spec)  # type: ignore[misc]
        assert isinstance(need, Needs)
        assert need.reads_api is (provider == "kubernetes")
        assert (need.mount is not None) is (provider == "file")


@pytest.mark.parametrize("provider", ["kubernetes", "file"])
def test_u16_u48_a_flag_that_is_missing_refuses_the_pod(provider: str) -> None:
    code, message = refused(pod(), laid({"source": "shop", "provider": provider}, flags={}))
    assert code == 500
    assert message.startswith(
        'could not retrieve featureflag team-a/shop: featureflags.core.openfeature.dev "shop" not'
    )


def test_u25_a_source_without_a_provider_has_the_default_one() -> None:
    known = laid({"source": "shop"})
    assert sources_of(injected(pod(), known)) == [{"uri": "team-a/shop", "provider": "kubernetes"}]
    http = settings({"SIDECAR_SYNC_PROVIDER": "http"})
    assert sources_of(injected(pod(), known, http)) == [{"uri": "shop", "provider": "http"}]
    known = laid({"source": "shop"}, defaultSyncProvider="grpc")
    assert sources_of(injected(pod(), known, http)) == [{"uri": "shop", "provider": "grpc"}]


def test_u34_kubernetes_marks_the_pod() -> None:
    changed = injected(pod(), laid({"source": "team-a/shop", "provider": "kubernetes"}))
    assert sources_of(changed) == [{"uri": "team-a/shop", "provider": "kubernetes"}]
    assert changed["metadata"]["annotations"][ALLOW_KUBERNETES_SYNC] == "true"
    assert "volumes" not in changed["spec"]


def test_u35_file_mounts_the_config_map() -> None:
    changed = injected(pod(), laid({"source": "shop", "provider": "file"}))
    uri = "/etc/flagd/team-a_shop/team-a_shop.flagd.json"
    assert sources_of(changed) == [{"uri": uri, "provider": "file"}]
    assert changed["spec"]["volumes"] == [{"name": "shop", "configMap": {"name": "shop"}}]
    assert agent_of(changed)["volumeMounts"] == [{"name": "shop", "mountPath": "/etc/flagd/team-a_shop"}]
    assert ALLOW_KUBERNETES_SYNC not in changed["metadata"]["annotations"]


def test_flags_of_the_same_name_in_two_namespaces_are_two_volumes() -> None:
    known = laid(
        {"source": "shop", "provider": "file"},
        {"source": "ops/shop", "provider": "file"},
        flags={"team-a/shop": {}, "ops/shop": {ALLOW_FROM: "team-a"}},
    )
    changed = injected(pod(), known)
    volumes = changed["spec"]["volumes"]
    assert len({each["name"] for each in volumes}) == len({each["configMap"]["name"] for each in volumes}) == 2
    assert [each["mountPath"] for each in agent_of(changed)["volumeMounts"]] == [
        "/etc/flagd/team-a_shop",
        "/etc/flagd/ops_shop",
    ]


def test_a_volume_of_the_users_with_the_name_of_the_flag_stays() -> None:
    theirs = {"name": "shop", "emptyDir": {}}
    changed = injected(pod(volumes=[theirs]), laid({"source": "shop", "provider": "file"}))
    first, second = changed["spec"]["volumes"]
    assert first == theirs
    assert second["configMap"] == {"name": "shop"}
    assert agent_of(changed)["volumeMounts"][0]["name"] == second["name"] != "shop"


@pytest.mark.parametrize("name", ["shop.flags", "s" * 200])
def test_a_flag_may_have_any_name_that_an_object_can_have(name: str) -> None:
    changed = injected(pod(), laid({"source": name, "provider": "file"}, flags={f"team-a/{name}": {}}))
    (volume,) = changed["spec"]["volumes"]
    assert len(volume["name"]) <= 63
    assert "." not in volume["name"]
    assert volume["configMap"]["name"] == name


def test_a_config_map_of_the_users_is_left_alone() -> None:
    known = laid({"source": "shop", "provider": "file"}, foreign={"team-a/shop"})
    code, message = refused(pod(), known)
    assert code == 403
    assert "ConfigMap team-a/shop" in message
    assert "is not the operator's" in message


@pytest.mark.parametrize("provider", ["kubernetes", "file", "flagd-proxy"])
def test_a_flag_of_another_namespace_needs_a_grant(provider: str) -> None:
    known = laid({"source": "ops/shop", "provider": provider}, flags={"ops/shop": {}}, state=ProxyState(1, NOW))
    code, message = refused(pod(), known)
    assert (code, "openfeature.dev/allow-from: team-a" in message) == (403, True)
    assert injected(pod(), known, settings(cross_namespace="allow"))
    known.flags["ops/shop"] = {ALLOW_FROM: "team-a"}
    assert injected(pod(), known)
    assert refused(pod(), known, settings(cross_namespace="deny"))[0] == 403


def test_u37_http_has_a_token_and_an_interval() -> None:
    entry = {"source": "http://flags.test", "provider": "http", "httpSyncBearerToken": "abc", "interval": 8}
    arguments = agent_of(injected(pod(), laid(entry)))["args"]
    assert arguments[arguments.index("--sources") + 1] == (
        '[{"uri":"http://flags.test","provider":"http","bearerToken":"abc","authHeader":"Bearer abc","interval":8}]'
    )


def test_a_token_from_a_secret_is_mounted_and_only_in_the_agent() -> None:
    secret = {"name": "tokens", "key": "http"}
    entry = {"source": "http://flags.test", "provider": "http", "httpSyncBearerTokenSecret": secret, "interval": 7}
    changed = injected(pod(), laid(entry))
    folder = "/etc/flagd/credentials/tokens"
    uri = {"uri": "http://flags.test", "provider": "http", "interval": 7}
    assert sources_of(changed) == [{**uri, "tokenFile": f"{folder}/http"}]
    (volume,) = changed["spec"]["volumes"]
    assert volume["secret"] == {"secretName": "tokens", "optional": True}
    assert agent_of(changed)["volumeMounts"] == [{"name": volume["name"], "mountPath": folder}]
    assert "volumeMounts" not in changed["spec"]["containers"][0]


def test_for_the_originals_image_a_token_from_a_secret_is_only_a_reference() -> None:
    secret = {"name": "tokens", "key": "http"}
    entry = {"source": "http://flags.test", "provider": "http", "httpSyncBearerTokenSecret": secret}
    changed = injected(pod(), laid(entry), settings({"SIDECAR_IMAGE": "registry.test/open-feature/flagd"}))
    assert sources_of(changed)[0]["authHeader"] == "Bearer $(FLAGD_SOURCE_0_TOKEN)"
    assert environment_of(agent_of(changed))["FLAGD_SOURCE_0_TOKEN"] == {"secretKeyRef": secret}
    assert "FLAGD_SOURCE_0_TOKEN" not in environment_of(changed["spec"]["containers"][0])


@pytest.mark.parametrize("provider", ["azblob", "gcs", "s3"])
def test_u38_u39_u40_blobs_have_an_interval(provider: str) -> None:
    entry = {"source": "bucket/flags.json", "provider": provider, "interval": 10, "tls": True, "selector": "no"}
    assert sources_of(injected(pod(), laid(entry))) == [
        {"uri": "bucket/flags.json", "provider": provider, "interval": 10}
    ]


def test_u41_grpc_has_certificates_and_a_selector() -> None:
    entry = {"source": "g:9", "provider": "grpc", "tls": True, "certPath": "c", "providerID": "p", "selector": "s"}
    arguments = agent_of(injected(pod(), laid(entry)))["args"]
    assert arguments[arguments.index("--sources") + 1] == (
        '[{"uri":"g:9","provider":"grpc","certPath":"c","tls":true,"providerID":"p","selector":"s"}]'
    )


@pytest.mark.parametrize("state", [None, ProxyState(0, NOW - 179)])
def test_u42_u43_a_pod_waits_for_the_proxy(state: ProxyState | None) -> None:
    known = laid({"source": "shop", "provider": "flagd-proxy"}, state=state)
    assert refused(pod(), known) == (403, "flagd-proxy is not ready, deferring pod admission")


def test_u43_after_three_minutes_the_message_says_so() -> None:
    known = laid({"source": "shop", "provider": "flagd-proxy"}, state=ProxyState(0, NOW - 181))
    code, message = refused(pod(), known)
    assert code == 403
    assert message.startswith("flagd-proxy not ready after 3 minutes, was created at 20")
    assert message.endswith("flagd-proxy is not ready, deferring pod admission")


def test_u44_a_ready_proxy_is_asked_for_the_flag() -> None:
    known = laid({"source": "shop", "provider": "flagd-proxy"}, state=ProxyState(1, NOW), flags={})
    selector = "core.openfeature.dev/team-a/shop"
    assert sources_of(injected(pod(), known)) == [
        {"uri": f"{PROXY_HOST}:8015", "provider": "grpc", "selector": selector}
    ]
    environment = {"FLAGD_PROXY_PORT": "9015", "POD_NAMESPACE": "ops", "FLAGD_CLUSTER_DOMAIN": "test"}
    (source,) = sources_of(injected(pod(), known, settings(environment)))
    assert source["uri"] == "flagd-proxy-svc.ops.svc.test:9015"


def test_u46_an_unknown_provider_is_an_error() -> None:
    known = laid({"source": "shop", "provider": "ftp"})
    code, message = refused(pod(), known)
    assert (code, message.partition(";")[0]) == (500, "could not add provider ftp: unrecognized sync provider")
    resolver = SourceResolver(namespace="team-a", known=known, settings=settings())
    assert isinstance(resolver.resolve(known.sources["team-a/flags"].spec), Denied)
