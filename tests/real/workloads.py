"""Workloads with agents in their pods: the manifests, what becomes of their pods, and what a client of one sees."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.agent.process import fetch
from tests.real.cluster import OPENFEATURE, Namespace
from tests.real.processes import until
from tests.real.services import is_ready
from wigwag.operator.names import ENABLED, FEATURE_FLAG_SOURCE

RESOLVE = "/schema.v1.Service/Resolve"
"""How legacy paths begin; the original's own tests ask them."""


def deployment(name: str, sources: str | None = None, *, replicas: int = 1, **given: Any) -> dict[str, Any]:
    """Return a Deployment whose pods name FeatureFlagSources; `given` is as for `template`."""
    return _workload("Deployment", name, {"replicas": replicas}, template(name, sources, **given))


def stateful_set(name: str, sources: str, **given: Any) -> dict[str, Any]:
    return _workload("StatefulSet", name, {"replicas": 1, "serviceName": name}, template(name, sources, **given))


def daemon_set(name: str, sources: str, **given: Any) -> dict[str, Any]:
    return _workload("DaemonSet", name, {}, template(name, sources, **given))


def job(name: str, sources: str | None) -> dict[str, Any]:
    about = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    return {**about, "spec": {"template": template(name, sources, restartPolicy="Never")}}


def template(
    name: str, sources: str | None = None, annotations: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a pod template. `sources` is the annotation that asks for an agent; `spec` is more of the pod's spec."""
    asked = {} if sources is None else {ENABLED: "true", FEATURE_FLAG_SOURCE: sources}
    metadata = {"labels": {"app": name}, "annotations": {**asked, **(annotations or {})}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "app", "image": "app"}], **spec}}


def _workload(kind: str, name: str, spec: Mapping[str, Any], pods: Mapping[str, Any]) -> dict[str, Any]:
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**spec, "selector": selector, "template": pods},
    }


def source(name: str, *sources: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a FeatureFlagSource."""
    return _custom("FeatureFlagSource", name, {"sources": [*sources], **spec})


def flagd(name: str, featureFlagSource: str, **spec: Any) -> dict[str, Any]:  # noqa: N803 - as in the manifest
    """Return a Flagd."""
    return _custom("Flagd", name, {"featureFlagSource": featureFlagSource, **spec})


def in_process(name: str, **spec: Any) -> dict[str, Any]:
    """Return an InProcessConfiguration."""
    return _custom("InProcessConfiguration", name, spec)


def _custom(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": OPENFEATURE, "kind": kind, "metadata": {"name": name}, "spec": {**spec}}


@dataclass(frozen=True)
class App:
    """The pods of a workload, by its label `app`."""

    namespace: Namespace
    name: str

    def pods(self) -> list[dict[str, Any]]:
        """Return those that are not being deleted."""
        path = self.namespace.path("v1", "Pod")
        found = self.namespace.cluster.rest.call("GET", path, query={"labelSelector": f"app={self.name}"}).json
        return [each for each in found["items"] if "deletionTimestamp" not in each["metadata"]]

    def ready(self, without: Sequence[str] = ()) -> dict[str, Any]:
        """Wait for a pod that is ready, and whose UID is none of these; return it."""

        def found() -> dict[str, Any] | None:
            pods = (each for each in self.pods() if each["metadata"]["uid"] not in without)
            return next(filter(is_ready, pods), None)

        pod = until(found, f"a ready pod of {self.name}")
        assert pod is not None
        return pod

    def refused(self, *words: str) -> str:
        """Wait until a pod was refused with a message that has these words, and return it."""
        path = self.namespace.path("v1", "Event")

        def message() -> str | None:
            events = self.namespace.cluster.get(path)["items"]
            texts = (each["message"] for each in events if each["involvedObject"]["name"].startswith(self.name))
            return next((text for text in texts if all(word in text for word in words)), None)

        return until(message, f"a refusal with {words}") or ""


def resolve(pod: Mapping[str, Any], key: str = "x", kind: str = "Boolean") -> dict[str, Any]:
    """Return what the agent of a pod says about a flag."""
    body = fetch(
        f"{pod['status']['podIP']}:8013", f"{RESOLVE}{kind}", {"flagKey": key}, content_type="application/json"
    )[1]
    answer: dict[str, Any] = json.loads(body)
    return answer


def sees(pod: Mapping[str, Any], variant: str) -> None:
    """Wait until clients of a pod's agent get a variant."""
    until(lambda: resolve(pod).get("variant") == variant, f"the variant {variant}")


def agent_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the injected container."""
    (found,) = (each for each in pod["spec"].get("initContainers") or [] if each["name"] == "flagd")
    return dict(found)


def sources_of(container: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the `--sources` of an agent."""
    arguments = container["args"]
    found: list[dict[str, Any]] = json.loads(arguments[arguments.index("--sources") + 1])
    return found


def matches(expected: Any, actual: Any) -> bool:
    """Tell whether an object is as expected: members that are not mentioned may be anything, as in Chainsaw.

    >>> matches({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}], "d": 3}), matches([1], [1, 2])
    (True, False)
    """
    if isinstance(expected, Mapping):
        given = isinstance(actual, Mapping)
        return given and all(key in actual and matches(value, actual[key]) for key, value in expected.items())
    if isinstance(expected, list):
        same = isinstance(actual, list) and len(expected) == len(actual)
        return same and all(matches(*pair) for pair in zip(expected, actual, strict=True))
    return bool(expected == actual)
