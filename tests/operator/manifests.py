"""Manifests of the four kinds: those of the original's examples and end-to-end tests, and some that are refused."""

from __future__ import annotations

from typing import Any

API = "core.openfeature.dev/v1beta1"
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}


def manifest(kind: str, spec: Any, name: str = "example") -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, **({"spec": spec} if spec is not None else {})}


def flags(**members: Any) -> dict[str, Any]:
    return manifest("FeatureFlag", {"flagSpec": {"flags": {"new-ui": {**FLAG, **members}}}})


def source(*sources: dict[str, Any], **members: Any) -> dict[str, Any]:
    return manifest("FeatureFlagSource", {"sources": list(sources), **members})


SECRET = {"secretKeyRef": {"name": "cloud", "key": "id"}}
ROUTES = {"enabled": True, "parentRefs": [{"name": "eg"}], "hosts": ["flagd.test"]}
GOOD: dict[str, dict[str, Any]] = {
    "flags with rules, evaluators and metadata": manifest(
        "FeatureFlag",
        {
            "flagSpec": {
                "flags": {
                    "new-ui": {**FLAG, "targeting": {"if": [{"$ref": "staff"}, "on"]}, "metadata": {"team": "a"}}
                },
                "$evaluators": {"staff": {"ends_with": [{"var": "email"}, "@example.com"]}},
                "metadata": {"flagSetId": "shop"},
            }
        },
    ),
    "no flags": manifest("FeatureFlag", {"flagSpec": {"flags": {}}}),
    "a FeatureFlag without a spec": manifest("FeatureFlag", None),
    "a default variant that is null": flags(defaultVariant=None),
    "two sources of the kubernetes provider": source(
        {"source": "open-feature-demo/end-to-end", "provider": "kubernetes"},
        {"source": "open-feature-demo/end-to-end-2", "provider": "kubernetes"},
    ),
    "a source without a provider": source({"source": "end-to-end"}, defaultSyncProvider="flagd-proxy"),
    "everything that a source may say": source(
        {"source": "https://flags.test/f.json", "provider": "http", "httpSyncBearerToken": "abc", "interval": 5},
        {
            "source": "flags.test:9090",
            "provider": "grpc",
            "tls": True,
            "certPath": "/tmp/ca",
            "providerID": "a",
            "selector": "b",
        },
        managementPort=8080,
        port=8888,
        ofrepPort=8017,
        socketPath="/run/flagd/flagd.sock",
        evaluator="json",
        envVars=[{"name": "AWS_ID", "valueFrom": SECRET}, {"name": "A", "value": "1"}],
        envVarPrefix="APP",
        syncProviderArgs=["key=value"],
        logFormat="console",
        rolloutOnChange=True,
        probesEnabled=False,
        debugLogging=True,
        otelCollectorUri="otel:4317",
        resources={"requests": {"cpu": 1, "memory": "64Mi"}, "limits": {"cpu": "500m"}},
        contextValues={"region": "eu"},
        headerToContextMappings={"X-User": "user"},
        cors=["*"],
    ),
    "an in-process configuration": manifest(
        "InProcessConfiguration",
        {"host": "flagd", "tls": True, "cacheMaxSize": 11, "envVars": [{"name": "name2", "value": "v"}]},
    ),
    "an in-process configuration of defaults": manifest("InProcessConfiguration", {}),
    "a Flagd with an ingress": manifest(
        "Flagd",
        {
            "replicas": 2,
            "serviceType": "ClusterIP",
            "serviceAccountName": "default",
            "featureFlagSource": "end-to-end",
            "ingress": {
                "enabled": True,
                "annotations": {"nginx.ingress.kubernetes.io/use-regex": "true"},
                "hosts": ["localhost", ""],
                "ingressClassName": "nginx",
                "pathType": "ImplementationSpecific",
                "flagdPath": "/flagd(/|$)(.*)",
                "tls": [{"hosts": ["localhost"], "secretName": "tls"}],
            },
        },
    ),
    "a Flagd with routes": manifest("Flagd", {"featureFlagSource": "end-to-end", "gatewayApiRoutes": ROUTES}),
    "a Flagd with what the original lacks": manifest(
        "Flagd",
        {
            "featureFlagSource": "end-to-end",
            "gatewayApiRoutes": {**ROUTES, "grpc": {"enabled": True, "hosts": ["grpc.test"]}},
            "labels": {"team": "a"},
            "nodeSelector": {"disk": "ssd"},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
            "imagePullPolicy": "IfNotPresent",
            "securityContext": {"runAsNonRoot": True},
        },
    ),
}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown provider": (source({"source": "x", "provider": "kubernets"}), "unknown provider; use one of"),
    "an unknown default provider": (source({"source": "x"}, defaultSyncProvider="ftp"), "unknown provider"),
    "two tokens": (
        source({"source": "x", "httpSyncBearerToken": "a", "httpSyncBearerTokenSecret": {"name": "a", "key": "b"}}),
        "leave one of them out",
    ),
    "no sources": (source(), "should have at least 1 items"),
    "a source without its name": (source({"provider": "file"}), "source: Required value"),
    "a negative interval": (source({"source": "x", "interval": -1}), "greater than or equal to 0"),
    "a port that is text": (source({"source": "x"}, port="8013"), "must be of type integer"),
    "a resource that is no quantity": (source({"source": "x"}, resources={"limits": {"cpu": "much"}}), "should match"),
    "an unknown state": (flags(state="ON"), "Unsupported value"),
    "a default variant that is no text": (flags(defaultVariant=1), "must be of type string"),
    "a flag spec without flags": (manifest("FeatureFlag", {"flagSpec": {}}), "flags: Required value"),
    "an unknown cache": (manifest("InProcessConfiguration", {"cache": "big"}), "should match"),
    "a Flagd without a source": (manifest("Flagd", {}), "it names no source; set featureFlagSource"),
    "an ingress without hosts": (
        manifest("Flagd", {"featureFlagSource": "x", "ingress": {"enabled": True}}),
        "hosts: Required value",
    ),
    "routes without a gateway": (
        manifest("Flagd", {"featureFlagSource": "x", "gatewayApiRoutes": {"enabled": True}}),
        "parentRefs: Required value",
    ),
    "an unknown type of service": (
        manifest("Flagd", {"featureFlagSource": "x", "serviceType": "Headless"}),
        "Unsupported value",
    ),
}
