"""Decisions about pods.

| group | test |
|---|---|
| U45 | `test_u45_an_agent_that_is_there_already_is_replaced_in_place` |
| U91 | `test_u91_a_pod_without_the_annotation_is_left_alone` |
| U92 | `test_u92_a_pod_without_an_owner_is_refused` |
| U93 | `test_u93_a_pod_is_admitted_whether_or_not_its_rights_are_there` |
| U94 | `tests/operator/test_sources.py::test_u42_u43_a_pod_waits_for_the_proxy` |
| U95 | `test_u95_a_source_that_is_missing_is_not_found` |
| U96 | `test_u96_a_pod_gets_the_agent` |
| U97 | `test_u97_in_process_only_the_environment_changes` |
| U98 | `test_u98_enabled_but_without_a_name_is_refused` |
| U99 | `test_u99_what_is_no_pod_is_a_bad_request` |
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.known import (
    Laid,
    admit,
    agent_of,
    environment_of,
    in_process_object,
    injected,
    pod,
    refused,
    settings,
    source_object,
)
from wigwag.operator.injection.verdict import Allowed
from wigwag.operator.names import (
    ALLOW_FROM,
    ALLOW_KUBERNETES_SYNC,
    ENABLED,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    MIRROR,
)
from wigwag.operator.resources.unreadable import UnreadableSource, decode_source
from wigwag.version import __version__

HTTP = {"source": "http://flags.test", "provider": "http"}
ONE = Laid(sources={"team-a/flags": source_object(HTTP)})
STANDARD = ["FLAGD_MANAGEMENT_PORT", "FLAGD_PORT", "FLAGD_EVALUATOR", "FLAGD_LOG_FORMAT", "FLAGD_RESOLVER"]


@pytest.mark.parametrize(
    "annotations", [{}, {ENABLED: "false", FEATURE_FLAG_SOURCE: "flags"}, {FEATURE_FLAG_SOURCE: "x"}]
)
def test_u91_a_pod_without_the_annotation_is_left_alone(annotations: dict[str, str]) -> None:
    assert admit(pod(annotations), Laid()) == Allowed("OpenFeature is disabled")


def test_u92_a_pod_without_an_owner_is_refused() -> None:
    orphan = pod()
    del orphan["metadata"]["ownerReferences"]
    assert refused(orphan, ONE) == (403, "static or orphaned pods cannot be mutated")
    assert agent_of(injected(orphan, ONE, settings(allow_orphan_pods=True)))


@pytest.mark.parametrize("cluster_role_binding", [False, True])
def test_u93_a_pod_is_admitted_whether_or_not_its_rights_are_there(cluster_role_binding: bool) -> None:
    """The original refuses the pod if it cannot change its binding. A controller gives rights, and tries again."""
    known = Laid(sources={"team-a/flags": source_object({"source": "shop"})}, flags={"team-a/shop": {}})
    changed = injected(pod(), known, settings(cluster_role_binding=cluster_role_binding))
    assert changed["metadata"]["annotations"][ALLOW_KUBERNETES_SYNC] == "true"


def test_u95_a_source_that_is_missing_is_not_found() -> None:
    code, message = refused(pod({ENABLED: "true", FEATURE_FLAG_SOURCE: "flags, other"}), ONE)
    assert code == 404
    assert message == (
        'featureflagsources.core.openfeature.dev "other" not found in namespace team-a; the pod waits for it: '
        "create it, or correct the annotation"
    )
    code, message = refused(pod({ENABLED: "true", IN_PROCESS_CONFIGURATION: "x"}), ONE)
    assert (code, message[:26]) == (404, "inprocessconfigurations.co")


def test_a_source_that_does_not_fit_its_schema_is_refused_with_the_place() -> None:
    raw = {"metadata": {"name": "flags"}, "spec": {"sources": [{"source": "x", "interval": -1}]}}
    source = decode_source(msgspec.Raw(msgspec.json.encode(raw)))
    assert isinstance(source, UnreadableSource)
    code, message = refused(pod(), Laid(unreadable={"team-a/flags": source}))
    assert (code, message[:54]) == (500, "FeatureFlagSource team-a/flags does not fit its schema")
    assert "$.spec.sources[0].interval" in message


def test_u96_a_pod_gets_the_agent() -> None:
    changed = injected(pod(initContainers=[{"name": "migrate"}]), ONE)
    assert [each["name"] for each in changed["spec"]["initContainers"]] == ["migrate", "flagd"]
    agent = agent_of(changed)
    assert agent["restartPolicy"] == "Always"
    assert agent["image"] == f"wigwag:{__version__}"
    assert list(environment_of(agent)) == STANDARD
    assert changed["spec"]["containers"] == [{"name": "shop", "env": agent["env"]}]


def test_the_patch_of_a_pod_only_adds() -> None:
    verdict = admit(pod(), ONE)
    assert isinstance(verdict, Allowed)
    assert [(each["op"], each["path"]) for each in verdict.patch] == [
        ("add", "/spec/containers/0/env"),
        ("add", "/spec/initContainers"),
    ]


def test_u97_in_process_only_the_environment_changes() -> None:
    known = Laid(
        in_process={
            "team-a/one": in_process_object(
                envVars=[{"name": "name1", "value": "v1"}], envVarPrefix="ONE", cacheMaxSize=11
            ),
            "team-a/two": in_process_object(
                envVars=[{"name": "name2", "value": "v2"}],
                envVarPrefix="TWO",
                host="flags",
                tls=True,
                offlineFlagSourcePath="/f",
            ),
        }
    )
    containers = [{"name": "a"}, {"name": "b", "env": [{"name": "X", "value": "1"}]}]
    wanted = pod({ENABLED: "true", IN_PROCESS_CONFIGURATION: "one,two"}, containers=containers)
    first, second = injected(wanted, known)["spec"]["containers"]
    assert list(environment_of(first).items()) == [
        ("TWO_name2", "v2"),
        ("TWO_name1", "v1"),
        ("TWO_HOST", "flags"),
        ("TWO_PORT", "8015"),
        ("TWO_TLS", "true"),
        ("TWO_CACHE", "lru"),
        ("TWO_MAX_CACHE_SIZE", "11"),
        ("TWO_RESOLVER", "in-process"),
        ("TWO_OFFLINE_FLAG_SOURCE_PATH", "/f"),
    ]
    assert second["env"] == [{"name": "X", "value": "1"}, *first["env"]]
    assert "initContainers" not in injected(wanted, known)["spec"]


def test_a_pod_names_a_limited_number_of_objects() -> None:
    for annotation in (FEATURE_FLAG_SOURCE, IN_PROCESS_CONFIGURATION):
        code, message = refused(pod({ENABLED: "true", annotation: "flags," * 51}), ONE)
        assert (code, message.endswith("; name at most 50")) == (403, True)
    assert agent_of(injected(pod({ENABLED: "true", FEATURE_FLAG_SOURCE: "flags," * 50}), ONE))


def test_u98_enabled_but_without_a_name_is_refused() -> None:
    code, message = refused(pod({ENABLED: "true"}), ONE)
    assert code == 403
    assert FEATURE_FLAG_SOURCE in message
    assert IN_PROCESS_CONFIGURATION in message


@pytest.mark.parametrize(
    "broken", [None, [], {}, {"metadata": {}, "spec": {}}, {"metadata": 1, "spec": {"containers": []}}]
)
def test_u99_what_is_no_pod_is_a_bad_request(broken: Any) -> None:
    code, message = refused(broken, ONE)
    assert code == 400
    assert message.startswith("the object is not a Pod: ")


def test_u45_an_agent_that_is_there_already_is_replaced_in_place() -> None:
    theirs = [{"name": "flagd", "image": "old", "stdin": True}, {"name": "migrate"}]
    changed = injected(pod(initContainers=theirs), ONE)
    assert [each["name"] for each in changed["spec"]["initContainers"]] == ["flagd", "migrate"]
    assert agent_of(changed) == agent_of(injected(pod(), ONE))


def test_what_the_api_server_adds_to_an_injected_pod_stays() -> None:
    """When a webhook is called again, quantities are written another way, defaults are set and tokens are mounted."""
    changed = injected(pod(), ONE)
    agent = agent_of(changed)
    token = {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    agent |= {"terminationMessagePath": "/dev/termination-log", "volumeMounts": [token]}
    agent["resources"] = {"requests": {"cpu": "200m", "memory": "32M"}, "limits": {"cpu": "500m", "memory": "64M"}}
    agent["readinessProbe"] = {**agent["readinessProbe"], "periodSeconds": 10}
    assert admit(changed, ONE) == Allowed()


def test_an_update_and_a_mirror_pod_are_left_alone() -> None:
    assert admit(pod(), ONE, operation="UPDATE") == Allowed(
        "only new pods are changed, and not those that mirror static ones"
    )
    mirror = pod({ENABLED: "true", FEATURE_FLAG_SOURCE: "flags", MIRROR: "abc"})
    verdict = admit(mirror, ONE)
    assert isinstance(verdict, Allowed)
    assert verdict.patch == ()


def test_an_empty_list_of_sources_gives_an_agent_without_sources() -> None:
    agent = agent_of(
        injected(pod({ENABLED: "true", FEATURE_FLAG_SOURCE: " ,"}), Laid(), settings({"SIDECAR_PORT": "9013"}))
    )
    assert agent["args"] == ["start", "--management-port", "8014", "--port", "9013"]


def test_a_source_of_another_namespace_needs_a_grant_and_does_not_show_whether_it_exists() -> None:
    annotations = {ENABLED: "true", FEATURE_FLAG_SOURCE: "ops/flags"}
    known = Laid(sources={"ops/flags": source_object(HTTP)})
    assert refused(pod(annotations), known) == refused(pod(annotations), Laid())
    assert refused(pod(annotations), known)[0] == 403
    assert refused(pod(annotations), Laid(), settings(cross_namespace="allow"))[0] == 404
    granted = Laid(sources={"ops/flags": source_object(HTTP, annotations={ALLOW_FROM: "team-b,team-a"})})
    assert agent_of(injected(pod(annotations), granted))


def test_credentials_are_in_the_agents_container_only() -> None:
    secret = {"secretKeyRef": {"name": "cloud", "key": "id"}}
    variables = [{"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": secret}, {"name": "REGION", "value": "eu"}]
    known = Laid(sources={"team-a/flags": source_object(HTTP, envVars=variables)})
    changed = injected(pod(), known)
    assert list(environment_of(agent_of(changed))) == ["FLAGD_REGION", "AWS_SECRET_ACCESS_KEY", *STANDARD]
    assert list(environment_of(changed["spec"]["containers"][0])) == ["FLAGD_REGION", *STANDARD]
    shared = injected(pod(), known, settings(share_credentials=True))
    assert "AWS_SECRET_ACCESS_KEY" in environment_of(shared["spec"]["containers"][0])


def test_a_socket_is_in_a_volume_that_all_containers_share() -> None:
    known = Laid(sources={"team-a/flags": source_object(HTTP, socketPath="/run/flagd/flagd.sock")})
    taken = {"name": "b", "volumeMounts": [{"name": "mine", "mountPath": "/run/flagd"}]}
    changed = injected(pod(containers=[{"name": "a"}, taken]), known)
    mount = {"name": "flagd-socket", "mountPath": "/run/flagd"}
    first, second = changed["spec"]["containers"]
    assert changed["spec"]["volumes"] == [{"name": "flagd-socket", "emptyDir": {}}]
    assert agent_of(changed)["volumeMounts"] == [mount] == first["volumeMounts"]
    assert second["volumeMounts"] == taken["volumeMounts"]
    assert environment_of(first)["FLAGD_SOCKET_PATH"] == "/run/flagd/flagd.sock"
    assert environment_of(agent_of(changed))["FLAGD_SOCKET_MODE"] == "0666"


def test_our_variables_go_before_those_of_the_container_in_their_place() -> None:
    mine = [{"name": "FLAGD_PORT", "value": "1"}, {"name": "Z", "value": "2"}]
    (container,) = injected(pod(containers=[{"name": "a", "env": mine}]), ONE)["spec"]["containers"]
    assert [each["name"] for each in container["env"]][:2] == ["FLAGD_PORT", "Z"]
    assert container["env"][0]["value"] == "8013"


@pytest.mark.parametrize(
    ("spec", "source", "warning"),
    [
        ({}, {**HTTP, "httpSyncBearerToken": "abc"}, "readable in the pod; use httpSyncBearerTokenSecret"),
        ({"syncProviderArgs": ["a=b"]}, HTTP, "syncProviderArgs are ignored"),
        ({"socketPath": "flagd.sock"}, HTTP, "socketPath flagd.sock is not shared"),
        ({}, {"source": "shop", "provider": "kubernetes"}, "automountServiceAccountToken is off"),
    ],
)
def test_what_will_not_work_well_is_a_warning(spec: dict[str, Any], source: dict[str, Any], warning: str) -> None:
    known = Laid(sources={"team-a/flags": source_object(source, **spec)}, flags={"team-a/shop": {}})
    verdict = admit(pod(automountServiceAccountToken=False), known)
    assert isinstance(verdict, Allowed)
    (given,) = verdict.warnings
    assert warning in given
    assert "abc" not in given


def test_a_pod_on_the_hosts_network_shares_its_ports() -> None:
    verdict = admit(pod(hostNetwork=True), ONE)
    assert isinstance(verdict, Allowed)
    (warning,) = verdict.warnings
    assert "the agent's ports 8014 and 8013 have to be free" in warning


NAMES = st.sampled_from(["shop", "flagd", "FLAGD_PORT", "flagd-socket", "a"])
VARIABLES = st.fixed_dictionaries({"name": NAMES, "value": st.sampled_from(["8013", "x"])})
MOUNTS = st.fixed_dictionaries({"name": NAMES, "mountPath": st.just("/run/flagd")})
LISTS = {"env": st.lists(VARIABLES, max_size=3), "volumeMounts": st.lists(MOUNTS, max_size=1)}
CONTAINERS = st.lists(st.fixed_dictionaries({"name": NAMES}, optional=LISTS), max_size=3)
EMPTY = st.fixed_dictionaries({"name": NAMES, "emptyDir": st.just({})})
VOLUMES = st.lists(EMPTY, max_size=3, unique_by=lambda volume: str(volume["name"]))
PROVIDERS = st.sampled_from(["file", "kubernetes", "http"])
ENTRIES = st.lists(st.fixed_dictionaries({"source": NAMES, "provider": PROVIDERS}), min_size=1, max_size=3)


@given(CONTAINERS, CONTAINERS, VOLUMES, ENTRIES, st.sampled_from(["", "/run/flagd/s"]))
def test_injecting_twice_is_injecting_once(
    containers: list[Any], before: list[Any], volumes: list[Any], entries: list[Any], socket: str
) -> None:
    """`injected` compares."""
    flags: dict[str, dict[str, str]] = {f"team-a/{each['source']}": {} for each in entries}
    known = Laid(sources={"team-a/flags": source_object(*entries, socketPath=socket)}, flags=flags)
    before = [each for each in before if each["name"] != "flagd"]
    changed = injected(pod(containers=containers, initContainers=before, volumes=volumes), known)
    mounted = {each["name"] for each in agent_of(changed).get("volumeMounts", [])}
    assert mounted <= {each["name"] for each in changed["spec"]["volumes"]}
