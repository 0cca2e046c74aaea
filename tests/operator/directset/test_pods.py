"""Pods with flags that annotations name beside sources, and pods that carry flags themselves."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.operator.known import (
    Laid,
    admit,
    agent_of,
    in_process_object,
    injected,
    pod,
    refused,
    settings,
    source_object,
)
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.injection.verdict import Allowed
from wigwag.operator.names import (
    ALLOW_FROM,
    CARRIER,
    DIRECT_SET,
    ENABLED,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    INLINE_FLAGS,
    REMARKS,
    STANDING_ORDERS,
)
from wigwag.sources.kubernetes.references import ORDER, ORDERS

KNOWN = Laid(
    sources={"team-a/flags": source_object({"source": "shop", "provider": "kubernetes"})},
    flags={"team-a/shop": {}, "team-a/base": {}, "ops/base": {ALLOW_FROM: "team-a"}},
)
DOCUMENT = json.dumps({"flags": {"x": {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}}})


def sources(changed: dict[str, Any]) -> list[tuple[str, str]]:
    arguments = agent_of(changed)["args"]
    given = msgspec.json.decode(arguments[arguments.index("--sources") + 1])
    return [(each["provider"], each["uri"]) for each in given]


def uris(annotations: dict[str, str], known: Laid = KNOWN) -> list[str]:
    return [uri for _, uri in sources(injected(pod(annotations), known))]


def bare(annotations: dict[str, str], **metadata: Any) -> dict[str, Any]:
    made = pod(annotations)
    del made["metadata"]["ownerReferences"]
    return {**made, "metadata": {**made["metadata"], "name": "web", **metadata}}


def test_a_later_one_wins_and_none_is_served_twice() -> None:
    """Sources, then standing orders of the workload, then of the pod, then the direct set."""
    everything = {
        ENABLED: "true",
        FEATURE_FLAG_SOURCE: "flags",
        STANDING_ORDERS: "ops/base,team-a/shop",
        ORDERS[0]: "base",
        DIRECT_SET: "web-deployment",
    }
    assert uris(everything) == ["ops/base", "team-a/shop", "team-a/base", "team-a/web-deployment"]
    assert uris({**everything, STANDING_ORDERS: "ops/base"})[0] == "team-a/shop"


def test_an_annotation_that_names_flags_is_enough() -> None:
    assert uris({ORDERS[0]: "base"}) == ["team-a/base"]
    assert uris({ORDER: '"base"', f"{ORDER}-namespace": 'ops"'}) == ["ops/base"]
    assert uris({ORDERS[0]: "base", ORDER: "shop"}) == ["team-a/base"], "the first counts, as for an agent"
    assert admit(pod({ORDERS[0]: "base", ENABLED: "false"}), KNOWN) == Allowed("OpenFeature is disabled")


def test_the_flags_of_a_workload_may_come_later_than_its_pods() -> None:
    assert uris({DIRECT_SET: "web-deployment"}, Laid()) == ["team-a/web-deployment"]
    code, message = refused(pod({ORDERS[0]: "missing"}), Laid())
    assert code == 500
    assert "could not retrieve featureflag team-a/missing" in message


@pytest.mark.parametrize(
    ("default", "provider"),
    [("file", "file"), ("flagd-proxy", "grpc"), ("kubernetes", "kubernetes"), ("http", "kubernetes")],
)
def test_the_provider_is_the_default_one_if_it_reads_feature_flags(default: str, provider: str) -> None:
    known = Laid(flags={"team-a/base": {}}, state=ProxyState(1, 0.0))
    changed = injected(pod({ORDERS[0]: "base"}), known, settings({"SIDECAR_SYNC_PROVIDER": default}))
    assert [each for each, _ in sources(changed)] == [provider]


def test_other_namespaces_need_a_grant() -> None:
    code, message = refused(pod({ORDERS[0]: "ops/base"}), Laid(flags={"ops/base": {}}))
    assert code == 403
    assert "does not allow that or does not exist" in message


def test_remarks_say_what_the_agent_was_told_and_replace_what_was_there() -> None:
    annotations = {ENABLED: "true", FEATURE_FLAG_SOURCE: "flags", ORDERS[0]: "ops/base", REMARKS: "mine"}
    said = injected(pod(annotations), KNOWN)["metadata"]["annotations"][REMARKS]
    assert said.startswith("scope=cross-namespace, mode=source+standing-order, refresh=live, config=")
    plain = {ENABLED: "true", FEATURE_FLAG_SOURCE: "flags"}
    assert REMARKS not in injected(pod(plain), KNOWN)["metadata"]["annotations"]
    forged = injected(pod({**plain, REMARKS: "mine"}), KNOWN)["metadata"]["annotations"][REMARKS]
    assert forged.startswith("scope=namespace, mode=source, ")
    files = injected(pod({ORDERS[0]: "base"}), KNOWN, settings({"SIDECAR_SYNC_PROVIDER": "file"}))
    assert "refresh=file" in files["metadata"]["annotations"][REMARKS]
    known = Laid(in_process={"team-a/local": in_process_object()})
    local = {ENABLED: "true", IN_PROCESS_CONFIGURATION: "local", REMARKS: "mine"}
    assert injected(pod(local), known)["metadata"]["annotations"][REMARKS].startswith(
        "scope=namespace, mode=in-process"
    )


@pytest.mark.parametrize(
    "agent",
    [
        {"args": ["start", "--uri", "core.openfeature.dev/"]},
        {"command": ["wigwag", "start", "--uri=core.openfeature.dev/"]},
        {"args": ["--sources", '[{"uri":"core.openfeature.dev/","provider":"kubernetes"}]']},
        {"env": [{"name": "FLAGD_URI", "value": "core.openfeature.dev/"}]},
    ],
)
def test_a_pod_with_an_agent_of_its_own_is_not_served_twice(agent: dict[str, Any]) -> None:
    containers = [{"name": "app"}, {"name": "agent", **agent}]
    verdict = admit(pod({ORDERS[0]: "base"}, containers=containers), KNOWN)
    assert verdict == Allowed("the pod has an agent that reads its annotations")
    assert uris({ORDERS[0]: "base"}) == ["team-a/base"]
    asked = pod({ORDERS[0]: "base", ENABLED: "true"}, containers=containers)
    assert agent_of(injected(asked, KNOWN)), "who enables it gets it"


def test_a_bare_pod_carries_flags_if_bare_pods_get_agents() -> None:
    made = bare({INLINE_FLAGS: DOCUMENT})
    assert refused(made, Laid()) == (403, "static or orphaned pods cannot be mutated")
    allowed = settings(allow_orphan_pods=True)
    changed = injected(made, Laid(), allowed)
    assert sources(changed) == [("kubernetes", "team-a/web-pod")]
    assert changed["metadata"]["labels"] == {CARRIER: "true"}
    assert "mode=direct-set" in changed["metadata"]["annotations"][REMARKS]
    assert "give it a name" in refused(bare({INLINE_FLAGS: DOCUMENT}, name=""), Laid(), allowed)[1]
    assert "not valid JSON" in refused(bare({INLINE_FLAGS: "{"}), Laid(), allowed)[1]
    taken = Laid(flags={"team-a/web-pod": {}})
    assert "exists and is not the operator's" in refused(made, taken, allowed)[1]


def test_a_pod_of_a_controller_cannot_carry_flags() -> None:
    code, message = refused(pod({INLINE_FLAGS: DOCUMENT}), Laid())
    assert code == 403
    assert "the pod is one of ReplicaSet shop-1, and cannot have flags of its own; write them to" in message


def test_a_malformed_order_is_refused() -> None:
    assert refused(pod({ORDERS[0]: "a/b/c"}), Laid())[1].startswith(
        "the annotation openfeature.io/standingorder of the pod"
    )
