"""Kinds of objects: group, version and plural name, and the paths that follow from them.

Kinds that code refers to are constants here. Kinds that users name, as in `kubectl get`, are found by `discovery`. A
kind that is not installed answers 404, and a watch of it waits until it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from wigwag.errors import UsageError

Query: TypeAlias = tuple[tuple[str, str], ...]
"""Query parameters of a request."""
_PLURAL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_GROUP = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object, by its plural name in paths.

    >>> FEATURE_FLAG.path("team-a", "checkout")
    '/apis/core.openfeature.dev/v1beta1/namespaces/team-a/featureflags/checkout'
    >>> POD.path(), str(POD), str(FEATURE_FLAG)
    ('/api/v1/pods', 'pods', 'featureflags.core.openfeature.dev')
    """

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    namespaced: bool = True
    kind: str = field(default="", compare=False)
    """The `kind` in manifests; not part of the identity, since paths do not need it. Empty: not known."""

    def __post_init__(self) -> None:
        if not (_PLURAL.fullmatch(self.plural) and _PLURAL.fullmatch(self.version)):
            raise UsageError(f"{self.plural!r} in version {self.version!r} is not a kind; write it as in `kubectl get`")
        if self.group and not _GROUP.fullmatch(self.group):
            raise UsageError(f"{self.group!r} is not an API group; write it as in the first part of `apiVersion`")

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api(self) -> str:
        """Group and version, as in the `apiVersion` of an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of an object, of all in a namespace, or of all in the cluster. Checks the names."""
        if namespace and not self.namespaced:
            raise UsageError(f"{self} are cluster-scoped; leave {namespace!r} out")
        scope = f"/namespaces/{check_name(namespace)}" if namespace else ""
        own = f"/{check_name(name)}" if name else ""
        part = f"/{check_name(subresource)}" if subresource else ""
        return f"{'/apis' if self.group else '/api'}/{self.api}{scope}/{self.plural}{own}{part}"


def is_object_name(name: str) -> bool:
    """Tell whether an object can have a name.

    >>> is_object_name("shop.flags"), is_object_name("../flags"), is_object_name("")
    (True, False, False)
    """
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return a name that is safe in a path; `UsageError` if it is not.

    >>> check_name("../secrets")
    Traceback (most recent call last):
    ...
    wigwag.errors.UsageError: '../secrets' is not the name of an object; use letters, digits, dots and dashes
    """
    if not is_object_name(name):
        raise UsageError(f"{name!r} is not the name of an object; use letters, digits, dots and dashes")
    return name


FEATURE_FLAG = Kind("core.openfeature.dev", "v1beta1", "featureflags", kind="FeatureFlag")
FEATURE_FLAG_SOURCE = Kind("core.openfeature.dev", "v1beta1", "featureflagsources", kind="FeatureFlagSource")
CLUSTER_FEATURE_FLAG_SOURCE = Kind(
    "core.openfeature.dev", "v1beta1", "clusterfeatureflagsources", False, "ClusterFeatureFlagSource"
)
IN_PROCESS_CONFIGURATION = Kind(
    "core.openfeature.dev", "v1beta1", "inprocessconfigurations", kind="InProcessConfiguration"
)
FLAGD = Kind("core.openfeature.dev", "v1beta1", "flagds", kind="Flagd")
CONFIG_MAP = Kind("", "v1", "configmaps", kind="ConfigMap")
NAMESPACE = Kind("", "v1", "namespaces", False, "Namespace")
NODE = Kind("", "v1", "nodes", False, "Node")
POD = Kind("", "v1", "pods", kind="Pod")
SECRET = Kind("", "v1", "secrets", kind="Secret")
SERVICE = Kind("", "v1", "services", kind="Service")
SERVICE_ACCOUNT = Kind("", "v1", "serviceaccounts", kind="ServiceAccount")
EVENT = Kind("", "v1", "events", kind="Event")
DEPLOYMENT = Kind("apps", "v1", "deployments", kind="Deployment")
INGRESS = Kind("networking.k8s.io", "v1", "ingresses", kind="Ingress")
HTTP_ROUTE = Kind("gateway.networking.k8s.io", "v1", "httproutes", kind="HTTPRoute")
GRPC_ROUTE = Kind("gateway.networking.k8s.io", "v1", "grpcroutes", kind="GRPCRoute")
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "poddisruptionbudgets", kind="PodDisruptionBudget")
STATEFUL_SET = Kind("apps", "v1", "statefulsets", kind="StatefulSet")
DAEMON_SET = Kind("apps", "v1", "daemonsets", kind="DaemonSet")
JOB = Kind("batch", "v1", "jobs", kind="Job")
CRON_JOB = Kind("batch", "v1", "cronjobs", kind="CronJob")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "roles", kind="Role")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", kind="RoleBinding")
CLUSTER_ROLE_BINDING = Kind(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False, kind="ClusterRoleBinding"
)
LEASE = Kind("coordination.k8s.io", "v1", "leases", kind="Lease")
TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "tokenreviews", False, "TokenReview")
SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False, kind="SubjectAccessReview"
)
