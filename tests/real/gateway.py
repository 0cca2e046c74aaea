"""Routes of the Gateway API, as far as ours are concerned: a server with these definitions is strict about them.

The real definitions are larger and allow more. In a cluster that has them, they stay.
"""

from __future__ import annotations

from typing import Any

from tests.real.cluster import Cluster

GROUP = "gateway.networking.k8s.io"
TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
PORT = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}
GROUP_NAME = {"type": "string", "maxLength": 253}


def record(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def array(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most}


def definition(kind: str, match: dict[str, Any]) -> dict[str, Any]:
    parent = record(
        ["name"],
        group={**GROUP_NAME, "default": GROUP},
        kind={**TEXT, "default": "Gateway"},
        namespace=TEXT,
        name=TEXT,
        sectionName=TEXT,
        port=PORT,
    )
    backend = record(
        ["name"],
        group={**GROUP_NAME, "default": ""},
        kind={**TEXT, "default": "Service"},
        name=TEXT,
        namespace=TEXT,
        port=PORT,
        weight={"type": "integer", "format": "int32", "default": 1},
    )
    rule = record([], matches=array(match, 64), backendRefs=array(backend, 16))
    spec = record([], parentRefs=array(parent, 32), hostnames=array(TEXT, 16), rules=array(rule, 16))
    schema = {"openAPIV3Schema": record(["spec"], spec=spec)}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": schema,
    }
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def choice(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": [*values], "default": values[0]}


ROUTES = [
    definition(
        "HTTPRoute",
        record([], path=record([], type=choice("PathPrefix", "Exact", "RegularExpression"), value=TEXT)),
    ),
    definition(
        "GRPCRoute",
        record([], method=record([], type=choice("Exact", "RegularExpression"), service=TEXT, method=TEXT)),
    ),
]


def install_routes(cluster: Cluster) -> None:
    """Install the definitions that are missing, and wait until they are served."""
    cluster.define([each for each in ROUTES if not cluster.exists(cluster.path_of(each))])
