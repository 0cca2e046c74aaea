"""Discovery documents, written by hand after those of a real server, and a server that answers with them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.kube.api import refusal
from tests.sources.faulty import Asked, Server, serving, whole

VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
Resource = tuple[str, str, str, tuple[str, ...], bool, tuple[str, ...]]
Groups = dict[str, dict[str, list[Resource]]]
"""By group and version, the preferred version first."""


def resource(
    plural: str,
    kind: str,
    *short: str,
    singular: str | None = None,
    namespaced: bool = True,
    verbs: tuple[str, ...] = VERBS,
) -> Resource:
    return plural, kind, kind.lower() if singular is None else singular, short, namespaced, verbs


CORE: Groups = {
    "": {
        "v1": [
            resource("services", "Service", "svc"),
            resource("nodes", "Node", "no", namespaced=False),
            resource("events", "Event", "ev"),
            resource("componentstatuses", "ComponentStatus", "cs", namespaced=False, verbs=("get", "list")),
        ]
    }
}
OTHERS: Groups = {
    "events.k8s.io": {"v1": [resource("events", "Event", "ev")]},
    "networking.k8s.io": {"v1": [resource("ingresses", "Ingress", "ing")]},
    "extensions": {"v1beta1": [resource("ingresses", "Ingress", "ing")]},
    "getambassador.io": {
        "v3alpha1": [resource("mappings", "Mapping"), resource("hosts", "Host", singular="")],
        "v2": [resource("mappings", "Mapping"), resource("tlscontexts", "TLSContext")],
    },
    "short.example.com": {"v1": [resource("things", "Thing", "mapping", "svc", "tng")]},
}


def aggregated(groups: Groups, stale: tuple[str, ...] = ()) -> dict[str, Any]:
    """`stale`: groups whose API server is down."""

    def listed(each: Resource, group: str, version: str) -> dict[str, Any]:
        plural, kind, singular, short, namespaced, verbs = each
        about: dict[str, Any] = {"resource": plural, "verbs": verbs, "singularResource": singular}
        about["responseKind"] = {"group": group, "version": version, "kind": kind}
        about["scope"] = "Namespaced" if namespaced else "Cluster"
        about["subresources"] = [{"subresource": "status", "responseKind": about["responseKind"], "verbs": ["get"]}]
        return about | ({"shortNames": short} if short else {})

    def one(group: str, versions: dict[str, list[Resource]]) -> dict[str, Any]:
        down = group in stale
        made = [
            {"version": version, "freshness": "Stale" if down else "Current"}
            | ({} if down else {"resources": [listed(each, group, version) for each in resources]})
            for version, resources in versions.items()
        ]
        return {"metadata": {"name": group} if group else {}, "versions": made}

    items = [one(*item) for item in groups.items()]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def resource_list(resources: list[Resource]) -> dict[str, Any]:
    names = ("name", "kind", "singularName", "shortNames", "namespaced", "verbs")
    listed = [dict(zip(names, each, strict=True)) for each in resources]
    status = [{**each, "name": f"{each['name']}/status", "singularName": "", "shortNames": None} for each in listed]
    return {"kind": "APIResourceList", "resources": [*listed, *status]}


def legacy(path: str, groups: Groups) -> dict[str, Any] | None:
    """What a server without aggregated discovery answers."""
    if path == "/api":
        return {"kind": "APIVersions", "versions": [*groups.get("", {})]}
    if path == "/apis":
        made = [
            # the versions are in another order than that of preference
            {
                "name": name,
                "versions": [{"groupVersion": f"{name}/{version}", "version": version} for version in sorted(versions)],
                "preferredVersion": {"groupVersion": f"{name}/{next(iter(versions))}", "version": next(iter(versions))},
            }
            for name, versions in groups.items()
            if name
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": made}
    group, _, version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")
    resources = groups.get(group, {}).get(version)
    return None if resources is None else resource_list(resources)


@dataclass
class DiscoverableApi:
    """An API server that has the kinds that the test says."""

    groups: Groups = field(default_factory=lambda: CORE | OTHERS)
    stale: tuple[str, ...] = ()
    legacy: bool = False
    etags: bool = True
    faults: dict[str, bytes] = field(default_factory=dict)
    """Answers to paths that fail."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    """Paths, and with what they were answered."""
    url: str = ""

    async def behave(self, asked: Asked, server: Server) -> bytes:
        path = asked.target
        answer = self.faults.get(path) or self._discovered(path, asked.headers)
        self.asked.append((path, int(answer.split(b" ", 2)[1])))
        return answer

    def _discovered(self, path: str, headers: dict[str, str]) -> bytes:
        if self.legacy:
            found = legacy(path, self.groups)
            return refusal(404, "NotFound") if found is None else whole(json.dumps(found).encode())
        assert "as=APIGroupDiscoveryList" in headers["accept"]
        groups = {name: each for name, each in self.groups.items() if (path == "/api") == (name == "")}
        body = json.dumps(aggregated(groups, self.stale)).encode()
        etag = f'"{hash(body)}"'
        if self.etags and headers.get("if-none-match") == etag:
            return b"HTTP/1.1 304 Not Modified\r\nETag: " + etag.encode() + b"\r\n\r\n"
        return whole(body, **({"ETag": etag} if self.etags else {}))


@asynccontextmanager
async def discoverable(**given: Any) -> AsyncIterator[DiscoverableApi]:
    api = DiscoverableApi(**given)
    async with serving(api.behave) as server:
        api.url = f"http://127.0.0.1:{server.port}"
        yield api
