"""The objects of the operator's benchmark: flags, sources of all providers, Flagds and pods, no two of them alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from bench.agent import document
from bench.operator_cluster import BenchCluster
from tests.real import workloads
from wigwag.kube.kinds import FEATURE_FLAG, FEATURE_FLAG_SOURCE, FLAGD, IN_PROCESS_CONFIGURATION, POD
from wigwag.operator.names import ENABLED
from wigwag.operator.names import FEATURE_FLAG_SOURCE as SOURCE
from wigwag.operator.names import IN_PROCESS_CONFIGURATION as CONFIGURATION

TEAMS = 20
OWNER = "owner"
"""The ConfigMap that owns the pods: those without an owner are not injected."""
HTTP = "https://flags.example/flags.json"
PROVIDERS = ("kubernetes", "file", "http")
ANNOTATED_EVERY = 5
"""One pod of so many asks for an agent."""


def team(number: int) -> str:
    """Return the namespace of an object."""
    return f"team-{number % TEAMS:02}"


@cache
def _flags() -> dict[str, Any]:
    flags: dict[str, Any] = json.loads(document(0))["flags"]
    return flags


def feature_flag(name: str, namespace: str, flags: int = 3, revision: int = 0) -> dict[str, Any]:
    """Return a FeatureFlag; each revision has another value in its first flag."""
    chosen = {f"{name}-{number}": body for number, (_, body) in zip(range(flags), _flags().items(), strict=False)}
    first = next(iter(chosen))
    chosen[first] = {**chosen[first], "metadata": {"revision": revision}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"flagSpec": {"flags": chosen}}}


def source(name: str, namespace: str, provider: str, flag: str, **spec: Any) -> dict[str, Any]:
    """Return a FeatureFlagSource of one FeatureFlag, or of one URL."""
    entry = {"source": HTTP if provider == "http" else flag, "provider": provider}
    return placed(workloads.source(name, entry, **spec), namespace)


def placed(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return a manifest in a namespace."""
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


def pod(namespace: str, owner: str, annotations: dict[str, str], name: str = "") -> dict[str, Any]:
    """Return a pod of about 3 KB, as a Deployment makes it; `owner` is the uid of the ConfigMap."""
    variables = [{"name": f"SETTING_{number}", "value": "x" * 40} for number in range(20)]
    container = {"name": "app", "image": "registry.example/app:1", "env": variables, "ports": [{"containerPort": 80}]}
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": owner}
    about = {"annotations": annotations, "ownerReferences": [reference], "labels": {"app": "web", "team": namespace}}
    named = {"name": name} if name else {"generateName": "web-"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 30}
    metadata = {**named, **about, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def asks(name: str) -> dict[str, str]:
    """Return the annotations of a pod that asks for an agent with this source."""
    return {ENABLED: "true", SOURCE: name}


def asks_in_process(name: str) -> dict[str, str]:
    """Return the annotations of a pod that asks for the environment of an in-process provider."""
    return {ENABLED: "true", CONFIGURATION: name}


def owner(bench: BenchCluster, namespace: str) -> str:
    """Make the owner of pods in a namespace; return its uid."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": OWNER, "namespace": namespace}}
    return str(bench.cluster.apply(body)["metadata"]["uid"])


def fill(bench: BenchCluster, flags: int, flagds: int) -> None:
    """Create FeatureFlags, as many FeatureFlagSources, and Flagds, in the namespaces of teams."""
    bench.namespaces([team(number) for number in range(TEAMS)])
    names = [f"flags-{number:04}" for number in range(flags)]
    many = [feature_flag(name, team(at), 1 + at % 20) for at, name in enumerate(names)]
    bench.create_all(FEATURE_FLAG, many)
    sources = [source(name, team(at), PROVIDERS[at % len(PROVIDERS)], name) for at, name in enumerate(names)]
    bench.create_all(FEATURE_FLAG_SOURCE, sources)
    for at in range(TEAMS):
        bench.api.create(IN_PROCESS_CONFIGURATION, placed(workloads.in_process("in-process", port=9000 + at), team(at)))
    bench.create_all(FLAGD, [flagd(f"flagd-{at:03}", at, names[at % flags]) for at in range(flagds)])


def flagd(name: str, number: int, source: str, **spec: Any) -> dict[str, Any]:
    """Return a Flagd; each second one has an Ingress."""
    ingress = {"enabled": number % 2 == 0, "hosts": [f"{name}.example"], "ingressClassName": "nginx"}
    return placed(workloads.flagd(name, source, **{"replicas": 1, "ingress": ingress, **spec}), team(number))


def pods(bench: BenchCluster, count: int, flags: int) -> None:
    """Create pods; one of five asks for an agent."""
    owners = {team(number): owner(bench, team(number)) for number in range(TEAMS)}

    def manifests() -> Iterator[dict[str, Any]]:
        for number in range(count):
            namespace = team(number)
            own = [at for at in range(number % TEAMS, flags, TEAMS) if PROVIDERS[at % len(PROVIDERS)] != "http"]
            name = f"flags-{own[number // TEAMS % len(own)]:04}" if own else ""
            asked = asks(name) if number % ANNOTATED_EVERY == 0 and name else {}
            yield pod(namespace, owners[namespace], asked, f"web-{number:05}")

    bench.create_all(POD, list(manifests()))
