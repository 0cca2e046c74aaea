"""Objects that injection asks for, as a test lays them out, and a JSON patch applied."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from wigwag.operator.injection.decide import PodRequest, admit_pod
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.injection.verdict import Allowed, Denied, Verdict
from wigwag.operator.names import ENABLED, FEATURE_FLAG_SOURCE, ObjectName
from wigwag.operator.resources.featureflagsource import FeatureFlagSource
from wigwag.operator.resources.flagd import Flagd
from wigwag.operator.resources.inprocessconfiguration import InProcessConfiguration
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.operator.resources.remoteflagprovider import RemoteFlagProvider
from wigwag.operator.resources.unreadable import UnreadableConfiguration, UnreadableSource
from wigwag.operator.settings import OperatorOptions, OperatorSettings, read_settings

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-1", "uid": "1", "controller": True}
NOW = 1_800_000_000.0
SERVER_DEFAULTS = {
    "managementPort": 8014,
    "port": 8013,
    "ofrepPort": 8016,
    "evaluator": "json",
    "envVarPrefix": "FLAGD",
}
SERVER_DEFAULTS |= {"logFormat": "json", "rolloutOnChange": False, "probesEnabled": True, "debugLogging": False}


@dataclass
class Laid:
    """Implements `KnownObjects`."""

    sources: dict[str, FeatureFlagSource] = field(default_factory=dict)
    in_process: dict[str, InProcessConfiguration] = field(default_factory=dict)
    unreadable: dict[str, UnreadableSource] = field(default_factory=dict)
    flags: dict[str, dict[str, str]] = field(default_factory=dict)
    """The annotations of FeatureFlags."""
    remotes: dict[str, RemoteFlagProvider] = field(default_factory=dict)
    """The remotes of FeatureFlags."""
    foreign: set[str] = field(default_factory=set)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    """The labels of namespaces."""
    state: ProxyState | None = None

    def feature_flag_source(self, name: ObjectName) -> FeatureFlagSource | None:
        return self.sources.get(str(name))

    def in_process_configuration(self, name: ObjectName) -> InProcessConfiguration | None:
        return self.in_process.get(str(name))

    def unreadable_source(self, name: ObjectName) -> UnreadableSource | None:
        return self.unreadable.get(str(name))

    def unreadable_configuration(self, name: ObjectName) -> UnreadableConfiguration | None:
        return None

    def namespace_labels(self, name: str) -> dict[str, str] | None:
        return self.namespaces.get(name)

    def feature_flag(self, name: ObjectName) -> ObjectMeta | None:
        annotations = self.flags.get(str(name))
        return None if annotations is None else ObjectMeta(name=name.name, annotations=annotations)

    def remote_provider(self, name: ObjectName) -> RemoteFlagProvider | None:
        return self.remotes.get(str(name))

    def is_foreign_config_map(self, name: ObjectName) -> bool:
        return str(name) in self.foreign

    def is_foreign_authority(self, name: ObjectName) -> bool:
        return str(name) in self.foreign

    def proxy(self) -> ProxyState | None:
        return self.state


def source_object(
    *sources: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any
) -> FeatureFlagSource:
    """A FeatureFlagSource as it comes from the API server."""
    given = {
        "metadata": {"annotations": annotations},
        "spec": {**SERVER_DEFAULTS, "sources": list(sources) or [{"source": "x"}], **spec},
    }
    return msgspec.convert(given, FeatureFlagSource)


def flagd_object(name: str = "flagd-sample", *, metadata: dict[str, Any] | None = None, **spec: Any) -> Flagd:
    """A Flagd as it comes from the API server."""
    about = {"name": name, "namespace": "team-a", "uid": "7", "generation": 3, **(metadata or {})}
    defaults = {"replicas": 1, "serviceType": "ClusterIP", "featureFlagSource": "flags"}
    return msgspec.convert({"metadata": about, "spec": {**defaults, **spec}}, Flagd)


def in_process_object(**spec: Any) -> InProcessConfiguration:
    return msgspec.convert({"spec": spec}, InProcessConfiguration)


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod of a ReplicaSet that names the source `flags`, unless annotations say otherwise."""
    wanted = {ENABLED: "true", FEATURE_FLAG_SOURCE: "flags"} if annotations is None else annotations
    metadata = {"generateName": "shop-1-", "annotations": wanted, "ownerReferences": [OWNER]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "shop"}], **spec}}


def settings(environment: dict[str, str] | None = None, **options: Any) -> OperatorSettings:
    return read_settings(environment or {}, OperatorOptions(**options))


def admit(manifest: Any, known: Laid, given: OperatorSettings | None = None, operation: str = "CREATE") -> Verdict:
    request = PodRequest(object=manifest, namespace="team-a", operation=operation, now=NOW)
    return admit_pod(request, known, given or settings())


def injected(manifest: dict[str, Any], known: Laid, given: OperatorSettings | None = None) -> dict[str, Any]:
    """The pod after it was admitted. The patch adds and replaces only, and injecting again changes nothing."""
    before = deepcopy(manifest)
    verdict = admit(manifest, known, given)
    assert isinstance(verdict, Allowed), verdict
    assert manifest == before
    changed: dict[str, Any] = patched(manifest, verdict.patch)
    assert admit(changed, known, given) == Allowed(warnings=verdict.warnings)
    return changed


def refused(manifest: Any, known: Laid, given: OperatorSettings | None = None) -> tuple[int, str]:
    verdict = admit(manifest, known, given)
    assert isinstance(verdict, Denied), verdict
    return verdict.code, verdict.message


def agent_of(changed: dict[str, Any]) -> dict[str, Any]:
    """The injected container."""
    (agent,) = (each for each in changed["spec"]["initContainers"] if each["name"] == "flagd")
    assert isinstance(agent, dict)
    return agent


def environment_of(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env", [])}


def patched(document: Any, patch: Any) -> Any:
    """Apply a JSON patch, as RFC 6902 says."""
    document = deepcopy(document)
    for operation in patch:
        assert operation["op"] in ("add", "replace")
        *steps, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])
        place = document
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if isinstance(place, dict):
            assert (last in place) == (operation["op"] == "replace")
            place[last] = operation["value"]
        elif last == "-":
            place.append(operation["value"])
        else:
            place[int(last)] = operation["value"]
    return document
