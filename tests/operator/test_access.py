"""Which flags agents use, and the rights that they get for it.

| group | test |
|---|---|
| U14 | `test_u14_a_workload_counts_by_the_annotations_of_its_template` |
| U19 | `test_u19_only_marked_pods_read_the_api` |
| U34, U50 | `test_u34_u50_a_pod_without_an_account_uses_default` |
| U51 | `test_u51_a_role_names_the_flags_of_an_account_and_no_others` |
| U52 | `test_u52_a_binding_that_is_right_is_not_written` |
| U53 | `test_u53_a_missing_binding_is_a_problem` |
| U54 | `test_u54_an_account_has_rights_before_it_exists` |
| U90 | `test_u90_after_a_restart_rights_come_from_the_pods_that_run`, `test_u90_subjects_are_added_and_pruned` |
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from tests.operator.known import Laid, injected, pod, settings, source_object
from wigwag.kube.kinds import DEPLOYMENT
from wigwag.operator.names import (
    ALLOW_FROM,
    ALLOW_KUBERNETES_SYNC,
    ENABLED,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    SYNC_BINDING,
    ObjectName,
)
from wigwag.operator.reconcile.access import LABELS, AccessObjects, access_objects, reconcile_binding
from wigwag.operator.reconcile.usage import FlagUse, permitted, pod_uses, workload_uses
from wigwag.operator.reconcile.workloads import Workload, read_workload

OPERATOR_NAMESPACE = "open-feature-operator-system"
DEFAULT = ObjectName("team-a", "default")
SHOP = ObjectName("team-a", "shop")
COMPATIBLE = settings(cluster_role_binding=True)


def workload_object(annotations: dict[str, str], *, account: str = "", namespace: str = "team-a") -> dict[str, Any]:
    spec = {"serviceAccountName": account} if account else {}
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    return {"metadata": {"name": "web", "namespace": namespace, "uid": "1"}, "spec": {"template": template}}


def workload(listed: str = "flags", **given: Any) -> Workload:
    read = read_workload(DEPLOYMENT, encode(workload_object({ENABLED: "true", FEATURE_FLAG_SOURCE: listed}, **given)))
    assert read is not None
    return read


def running_pod(known: Laid, namespace: str = "team-a", **spec: Any) -> dict[str, Any]:
    made = injected(pod(**spec), known)
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


def reads(flag: str, account: str = "team-a/default") -> FlagUse:
    return FlagUse(ObjectName(*account.split("/")), "kubernetes", ObjectName(*flag.split("/")))


@pytest.mark.parametrize(
    ("annotations", "mode"),
    [
        ({}, None),
        ({FEATURE_FLAG_SOURCE: "flags"}, None),
        ({ENABLED: "true"}, None),
        ({ENABLED: "true", FEATURE_FLAG_SOURCE: "flags"}, "sidecar"),
        ({ENABLED: "true", IN_PROCESS_CONFIGURATION: "flags"}, "in-process"),
    ],
)
def test_u14_a_workload_counts_by_the_annotations_of_its_template(annotations: dict[str, str], mode: str) -> None:
    read = read_workload(DEPLOYMENT, encode(workload_object(annotations)))
    assert (read and read.mode) == mode
    assert read_workload(DEPLOYMENT, encode({"metadata": {"annotations": annotations}})) is None
    assert read_workload(DEPLOYMENT, encode("nonsense")) is None


def test_a_workload_names_sources_with_and_without_spaces_and_namespaces() -> None:
    assert list(map(str, workload("a, ops/b ,a,").named)) == ["team-a/a", "ops/b"]
    assert workload(account="web").account == ("team-a", "web")


def test_u34_u50_a_pod_without_an_account_uses_default() -> None:
    known = Laid(sources={"team-a/flags": source_object({"source": "shop"})}, flags={"team-a/shop": {}})
    assert pod_uses(encode(running_pod(known))) == {reads("team-a/shop")}
    assert pod_uses(encode(running_pod(known, serviceAccountName="web"))) == {reads("team-a/shop", "team-a/web")}
    assert workload_uses(workload(), known, settings()) == {reads("team-a/shop")}


def test_u19_only_marked_pods_read_the_api() -> None:
    known = Laid(sources={"team-a/flags": source_object({"source": "shop"})}, flags={"team-a/shop": {}})
    marked = running_pod(known)
    for value in ("false", None):
        annotations = {**marked["metadata"]["annotations"], ALLOW_KUBERNETES_SYNC: value}
        annotations = {name: text for name, text in annotations.items() if text}
        assert not pod_uses(encode({**marked, "metadata": {**marked["metadata"], "annotations": annotations}}))
    assert not pod_uses(encode({**marked, "status": {"phase": "Succeeded"}}))
    assert pod_uses(encode({**marked, "status": {"phase": "Pending"}}))
    assert not pod_uses(encode("nonsense"))
    assert not pod_uses(encode(pod()))


@pytest.mark.parametrize("arguments", [["--sources"], ["--sources", "{"], ["--sources", '[{"uri":1}]'], []])
def test_arguments_that_the_operator_did_not_write_use_nothing(arguments: list[str]) -> None:
    agent = {"name": "flagd", "args": arguments}
    written = pod({ALLOW_KUBERNETES_SYNC: "true"}, initContainers=[agent])
    assert not pod_uses(encode(written))


def test_a_file_source_is_a_use_of_its_flag() -> None:
    known = Laid(
        sources={"team-a/flags": source_object({"source": "ops/shop.flags", "provider": "file"})},
        flags={"ops/shop.flags": {ALLOW_FROM: "*"}},
    )
    use = FlagUse(DEFAULT, "file", ObjectName("ops", "shop.flags"))
    assert pod_uses(encode(running_pod(known))) == workload_uses(workload(), known, settings()) == {use}
    assert not access_objects([use], known, settings())


def test_u90_after_a_restart_rights_come_from_the_pods_that_run() -> None:
    """The source was changed, then deleted: the pod still runs with what it was given."""
    known = Laid(sources={"team-a/flags": source_object({"source": "shop"})}, flags={"team-a/shop": {}})
    running = running_pod(known)
    known.sources.clear()
    assert not workload_uses(workload(), known, settings())
    assert len(access_objects(pod_uses(encode(running)), known, settings())) == 1


def test_u51_a_role_names_the_flags_of_an_account_and_no_others() -> None:
    uses = [reads("team-a/shop", "team-a/web"), reads("team-a/cart", "team-a/web"), reads("team-a/x", "team-a/other")]
    made = access_objects(uses, Laid(), settings())
    assert len(made) == 2
    role, binding = next(each for each in made.values() if "web" in each.role["metadata"]["name"])
    (rule,) = role["rules"]
    assert rule == {
        "apiGroups": ["core.openfeature.dev"],
        "resources": ["featureflags"],
        "resourceNames": ["cart", "shop"],
        "verbs": ["get", "list", "watch"],
    }
    name = role["metadata"]["name"]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "web", "namespace": "team-a"}]
    assert role["metadata"]["labels"] == binding["metadata"]["labels"] == LABELS


def test_u54_an_account_has_rights_before_it_exists() -> None:
    """The original reads the account, and refuses the pod if there is none; nobody is asked about it here."""
    known = Laid(sources={"team-a/flags": source_object({"source": "shop"})}, flags={"team-a/shop": {}})
    uses = workload_uses(workload(account="not-yet"), known, settings())
    [(_, binding)] = access_objects(uses, known, settings()).values()
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "not-yet", "namespace": "team-a"}]


def test_a_flag_of_another_namespace_is_read_there_if_it_grants_that() -> None:
    use = reads("ops/shop")
    known = Laid(flags={"ops/shop": {}})
    assert not access_objects([use], known, settings())
    known.flags["ops/shop"] = {ALLOW_FROM: "team-a"}
    ((name, made),) = access_objects([use], known, settings()).items()
    assert name.namespace == made.role["metadata"]["namespace"] == made.binding["metadata"]["namespace"] == "ops"
    assert made.binding["subjects"][0]["namespace"] == "team-a"
    assert not access_objects([use], known, settings(cross_namespace="deny"))
    assert access_objects([use], Laid(), settings(cross_namespace="allow"))


def test_the_flags_own_their_role() -> None:
    class WithUid(Laid):
        def feature_flag(self, name: ObjectName) -> Any:
            about = super().feature_flag(name)
            return about and type(about)(name=name.name, uid="7")

    known = WithUid(flags={"team-a/shop": {}})
    (made,) = access_objects([reads("team-a/shop"), reads("team-a/gone")], known, settings()).values()
    owner = {"apiVersion": "core.openfeature.dev/v1beta1", "kind": "FeatureFlag", "name": "shop", "uid": "7"}
    assert made.role["metadata"]["ownerReferences"] == made.binding["metadata"]["ownerReferences"] == [owner]
    assert made.role["rules"][0]["resourceNames"] == ["gone", "shop"]


def binding_object(*subjects: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": SYNC_BINDING, "resourceVersion": "5"}, "subjects": list(subjects)}


def subject(namespace: str, name: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


OURS = tuple(
    subject(OPERATOR_NAMESPACE, f"open-feature-operator-{name}") for name in ("controller-manager", "flagd-proxy")
)


def test_u90_subjects_are_added_and_pruned() -> None:
    group = {"kind": "Group", "name": "auditors"}
    live = binding_object(*OURS, subject("gone", "default"), group, subject("team-a", "web"))
    uses = [reads("team-a/shop", "team-a/web"), reads("team-b/shop", "team-b/default")]
    body, problem = reconcile_binding(live, uses, COMPATIBLE)
    assert not problem
    assert body == {
        **live,
        "subjects": [*OURS, group, subject("team-a", "web"), subject("team-b", "default")],
    }
    assert not access_objects(uses, Laid(), COMPATIBLE)


def test_u52_a_binding_that_is_right_is_not_written() -> None:
    live = binding_object(*OURS, subject("team-a", "default"))
    assert reconcile_binding(live, [reads("team-a/shop")], COMPATIBLE) == (None, "")
    assert reconcile_binding(binding_object(), [reads("team-a/shop")], settings()) == (None, "")


def test_subjects_that_were_wiped_come_back() -> None:
    live = {"metadata": {"name": SYNC_BINDING}, "subjects": None}
    body, _ = reconcile_binding(live, [reads("team-a/shop")], COMPATIBLE)
    assert body
    assert body["subjects"] == [*OURS, subject("team-a", "default")]


def test_u53_a_missing_binding_is_a_problem() -> None:
    body, problem = reconcile_binding(None, [], COMPATIBLE)
    assert body is None
    assert SYNC_BINDING in problem
    assert "apply" in problem


NAMESPACES = st.sampled_from(["team-a", "team-b", "ops"])
OBJECTS = st.builds(ObjectName, NAMESPACES, st.sampled_from(["a", "b", "c"]))
USES = st.frozensets(st.builds(FlagUse, OBJECTS, st.sampled_from(["kubernetes", "file"]), OBJECTS), max_size=12)
GRANTS = st.dictionaries(OBJECTS.map(str), st.sampled_from(["", "team-a", "*"]).map(lambda value: {ALLOW_FROM: value}))


def rights(made: dict[ObjectName, AccessObjects]) -> set[tuple[str, str, str, str]]:
    """Who may read what, as the API server would see it."""
    return {
        (each["namespace"], each["name"], name.namespace, flag)
        for name, (role, binding) in made.items()
        for each in binding["subjects"]
        for flag in role["rules"][0]["resourceNames"]
    }


@given(USES, GRANTS)
def test_rights_are_exactly_the_permitted_uses(uses: frozenset[FlagUse], flags: dict[str, dict[str, str]]) -> None:
    known = Laid(flags=flags)
    wanted = {(*use.account, *use.flag) for use in permitted(uses, known, settings()) if use.provider == "kubernetes"}
    made = access_objects(uses, known, settings())
    assert rights(made) == wanted
    assert made == access_objects(sorted(uses, reverse=True), known, settings())


@given(USES, USES)
def test_what_is_pruned_is_exactly_what_is_unused(before: frozenset[FlagUse], after: frozenset[FlagUse]) -> None:
    old, new = (access_objects(uses, Laid(), settings(cross_namespace="allow")) for uses in (before, after))
    pruned = old.keys() - new.keys()
    used = {(use.flag.namespace, use.account) for use in after if use.provider == "kubernetes"}
    for name, made in old.items():
        account = ObjectName(made.binding["subjects"][0]["namespace"], made.binding["subjects"][0]["name"])
        assert (name in pruned) is ((name.namespace, account) not in used)


@given(USES, USES)
def test_the_binding_converges_in_one_step(before: frozenset[FlagUse], after: frozenset[FlagUse]) -> None:
    live = reconcile_binding(binding_object(), before, COMPATIBLE).body
    assert live
    body = reconcile_binding(live, after, COMPATIBLE).body or live
    assert reconcile_binding(body, after, COMPATIBLE).body is None
    accounts = {(each["namespace"], each["name"]) for each in body["subjects"]}
    ours = {(each["namespace"], each["name"]) for each in OURS}
    assert accounts == ours | {use.account for use in after if use.provider == "kubernetes"}
