"""Rights of agents that read FeatureFlags from the API server: exactly those that their sources name.

    FlagUse(account, "kubernetes", flag) … ──▶ a Role and a RoleBinding for each account,
                                               in each namespace that has flags which it uses

A Role may name objects (`resourceNames`) for `list` and `watch` too, if the request selects one object by its name: our
agent does. flagd lists the whole namespace, so its image needs the ClusterRoleBinding of the original, which is a
switch. That binding has a list of subjects, which is replaced as a whole: with the resource version that was read, so
that a concurrent change is a conflict, and the next reconcile starts from what there is.

Owners are the FeatureFlags, so Kubernetes removes a Role with the last of them. A right to a flag that does not exist
(any more) stays while pods name it: its agent notices when the flag is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from wigwag.kube.kinds import CLUSTER_ROLE_BINDING, FEATURE_FLAG, ROLE, ROLE_BINDING
from wigwag.operator.names import (
    COMPONENT,
    MANAGED_BY,
    OPERATOR,
    OPERATOR_ACCOUNT,
    PROXY_ACCOUNT,
    SERVICE_ACCOUNT,
    SYNC_BINDING,
    ObjectName,
    access_name,
)
from wigwag.operator.reconcile.usage import permitted
from wigwag.operator.resources.featureflagsource import KUBERNETES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.reconcile.usage import FlagUse
    from wigwag.operator.settings import OperatorSettings

Json: TypeAlias = Any
LABELS = {MANAGED_BY: OPERATOR, COMPONENT: "flag-access"}
"""Of the Roles and RoleBindings: those that have them, and are not wanted any more, are to be pruned."""


class AccessObjects(NamedTuple):
    """What one account needs in one namespace."""

    role: dict[str, Json]
    binding: dict[str, Json]


def access_objects(
    uses: Iterable[FlagUse], known: KnownObjects, settings: OperatorSettings
) -> dict[ObjectName, AccessObjects]:
    """Return the Roles and RoleBindings that should exist, by their common name; all others are to be pruned."""
    if settings.options.cluster_role_binding:
        return {}
    flags: dict[tuple[str, ObjectName], set[str]] = {}
    for use in permitted(uses, known, settings):
        if use.provider == KUBERNETES:
            flags.setdefault((use.flag.namespace, use.account), set()).add(use.flag.name)
    return {
        ObjectName(namespace, access_name(account)): _access(namespace, account, sorted(names), known)
        for (namespace, account), names in sorted(flags.items())
    }


def _access(namespace: str, account: ObjectName, flags: list[str], known: KnownObjects) -> AccessObjects:
    name = access_name(account)
    annotations = {SERVICE_ACCOUNT: str(account)}
    metadata: dict[str, Json] = {
        "name": name,
        "namespace": namespace,
        "labels": LABELS,
        "annotations": annotations,
    }
    present = ((flag, known.feature_flag(ObjectName(namespace, flag))) for flag in flags)
    of_flag = {"apiVersion": FEATURE_FLAG.api, "kind": FEATURE_FLAG.kind}
    owners = [{**of_flag, "name": flag, "uid": about.uid} for flag, about in present if about and about.uid]
    if owners:
        metadata["ownerReferences"] = owners
    rule = {"apiGroups": [FEATURE_FLAG.group], "resources": [FEATURE_FLAG.plural], "resourceNames": flags}
    role = {
        "apiVersion": ROLE.api,
        "kind": ROLE.kind,
        "metadata": metadata,
        "rules": [{**rule, "verbs": ["get", "list", "watch"]}],
    }
    binding = {
        "apiVersion": ROLE_BINDING.api,
        "kind": ROLE_BINDING.kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": name},
        "subjects": [_subject(account)],
    }
    return AccessObjects(role, binding)


class BindingChange(NamedTuple):
    """What is to be done about the ClusterRoleBinding."""

    body: dict[str, Json] | None = None
    """The object to write in its place; None if it is as it should be."""
    problem: str = ""
    """Why it cannot be made as it should be."""


def reconcile_binding(
    live: Mapping[str, Json] | None, uses: Iterable[FlagUse], settings: OperatorSettings
) -> BindingChange:
    """Return the change of the original's ClusterRoleBinding; none at all if the switch is off.

    Subjects that stay: the operator's namespace, and whoever is not a service account. They keep their order.
    """
    if not settings.options.cluster_role_binding:
        return BindingChange()
    if live is None:
        remedy = "apply the operator's manifests again; until then agents of new accounts cannot read FeatureFlags"
        return BindingChange(problem=f"{CLUSTER_ROLE_BINDING.kind} {SYNC_BINDING} does not exist; {remedy}")
    namespace = settings.pod.namespace
    wanted = {ObjectName(namespace, OPERATOR_ACCOUNT), ObjectName(namespace, PROXY_ACCOUNT)}
    wanted |= {use.account for use in uses if use.provider == KUBERNETES}
    present = list(live.get("subjects") or [])
    kept = [each for each in present if _stays(each, wanted, namespace)]
    missing = wanted - {_account(each) for each in kept}
    subjects = [*kept, *map(_subject, sorted(missing))]
    return BindingChange() if subjects == present else BindingChange({**live, "subjects": subjects})


def _stays(subject: Mapping[str, Json], wanted: Collection[ObjectName], namespace: str) -> bool:
    account = _account(subject)
    return account is None or account in wanted or account.namespace == namespace


def _account(subject: Mapping[str, Json]) -> ObjectName | None:
    """Return the service account that a subject is; None if it is a user or a group."""
    if subject.get("kind") != "ServiceAccount":
        return None
    return ObjectName(subject.get("namespace", ""), subject.get("name", ""))


def _subject(account: ObjectName) -> dict[str, Json]:
    return {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
