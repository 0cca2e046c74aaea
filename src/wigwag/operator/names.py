"""Annotations that pods and objects carry, the grammar of what they name, and the names of generated objects.

The names are those of open-feature-operator. A ConfigMap or volume is named after its FeatureFlag where that is a valid
name which no other flag can have; otherwise a hash of the flag's namespace and name makes it one: a flag of another
namespace, a name with dots or more than 63 characters, a volume of the pod that has the name already.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from wigwag.kube.grants import ALLOW_FROM as ALLOW_FROM  # noqa: PLC0414 - one of the names of the operator, too
from wigwag.kube.grants import is_granted as is_granted  # noqa: PLC0414
from wigwag.sources.kubernetes.references import ORDERS

if TYPE_CHECKING:
    from collections.abc import Mapping

ENABLED = "openfeature.dev/enabled"
FEATURE_FLAG_SOURCE = "openfeature.dev/featureflagsource"
CLUSTER_FEATURE_FLAG_SOURCE = "openfeature.dev/clusterfeatureflagsource"
IN_PROCESS_CONFIGURATION = "openfeature.dev/inprocessconfiguration"
ALLOW_KUBERNETES_SYNC = "openfeature.dev/allowkubernetessync"
"""On pods whose service account has to read FeatureFlags; written by the operator."""
FEATURE_FLAG = "openfeature.dev/featureflag"
"""On generated ConfigMaps: the flag that they hold."""
SERVICE_ACCOUNT = "openfeature.dev/service-account"
"""On generated Roles and RoleBindings: whose they are."""
SOURCE_DIGESTS = "openfeature.dev/source-digests"
"""On the pod template of a workload that was rolled: the digest of each source, as `NAMESPACE/NAME=DIGEST,…`."""
PODS_RETRIED = "openfeature.dev/pods-retried"
"""On a Deployment: since when its pods were refused, when the operator had it create them again at once."""
SIDECAR_UPGRADE = "openfeature.dev/sidecar-upgrade"
"""On a pod or a namespace: `off` leaves its agents as they are when the operator's image of agents changes."""
AGENT_UPGRADE = "openfeature.dev/agent-upgrade"
"""On a pod whose agent was upgraded in place: the new image, and what ran before."""
AGENT_IMAGE = "openfeature.dev/agent-image"
"""On the pod template of a workload that was rolled for another image of its agents: that image."""
REVISION = "openfeature.dev/revision"
"""A label of namespaces, and of pods where the namespace has none: which of several operators they belong to."""
INLINE_FLAGS = "openfeature.dev/flags"
"""On a workload or a bare pod: its flags, as a JSON document (direct set)."""
DIRECT_SET, STANDING_ORDERS = "openfeature.dev/direct-set", "openfeature.dev/standing-orders"
"""On pod templates: the FeatureFlags that the annotations of the workload mean; written by the operator."""
CARRIER = "openfeature.dev/carrier"
"""On a generated FeatureFlag: whose annotation it holds, as `KIND/NAME`. As a label: on jobs and bare pods."""
REMARKS = "openfeature.io/operator-remarks"
"""On workloads and pods: what the operator makes of their annotations; nobody else writes it."""
FLAGS_CHANGED = "openfeature.dev/flags-changed"
"""On a pod that mounts flags: their digest after the last critical change, so that the kubelet looks at once."""
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
MIRROR = "kubernetes.io/config.mirror"
MANAGED_BY = "app.kubernetes.io/managed-by"
COMPONENT = "app.kubernetes.io/component"
OPERATOR = "open-feature-operator"
POD_WEBHOOK = "mutate.openfeature.dev"
OPERATOR_ACCOUNT = "open-feature-operator-controller-manager"
LEASE = "131bf64c.openfeature.dev"
"""Of the replica that runs the controllers; the original's, so that both never do at once."""
SYNC_BINDING = "open-feature-operator-flagd-kubernetes-sync"
"""The ClusterRole of the original that lets agents read all FeatureFlags, and its ClusterRoleBinding."""
PROXY = "flagd-proxy"
PROXY_SERVICE = "flagd-proxy-svc"
PROXY_BUDGET = "flagd-proxy-pdb"
PROXY_ACCOUNT = "open-feature-operator-flagd-proxy"
"""The proxy's service account, which comes with the installation."""
OPERATOR_DEPLOYMENT = "open-feature-operator-controller-manager"
AGENT = "flagd"
"""The agent's container."""
SOCKET_VOLUME = "flagd-socket"
MOUNTS = "/etc/flagd"
"""Where `file` sources are mounted in the agent's container."""
CREDENTIALS = f"{MOUNTS}/credentials"
"""Where Secrets are mounted in the agent's container, each in a directory of its name."""
FLAG_ANNOTATIONS = (INLINE_FLAGS, *ORDERS, DIRECT_SET, STANDING_ORDERS)
"""Of pods: each asks for an agent with these flags. `ORDERS` are standing orders."""
Mode: TypeAlias = Literal["disabled", "sidecar", "in-process", "unnamed"]
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_LABEL, _LONGEST_NAME = 63, 253
_DIGITS = 8


class ObjectName(NamedTuple):
    """An object by its name; the namespace of one that belongs to the whole cluster is empty.

    >>> str(ObjectName("team-a", "flags")), ObjectName("team-a", "flags").file
    ('team-a/flags', 'team-a_flags.flagd.json')
    >>> str(ObjectName("", "shared"))
    'shared'
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def directory(self) -> str:
        """Where the flags of a `file` source are mounted."""
        return f"{MOUNTS}/{self.namespace}_{self.name}"

    @property
    def file(self) -> str:
        """The key of a ConfigMap that holds the flags."""
        return f"{self.namespace}_{self.name}.flagd.json"


def parse_name(text: str, namespace: str) -> ObjectName:
    """Read NAME or NAMESPACE/NAME; anything else is a name as it stands, which no object has.

    >>> parse_name("flags", "team-a"), parse_name("ops/flags", "team-a")[0], parse_name("a/b/c", "team-a")[1]
    (ObjectName(namespace='team-a', name='flags'), 'ops', 'a/b/c')
    """
    parts = text.split("/")
    return ObjectName(parts[0], parts[1]) if len(parts) == 2 else ObjectName(namespace, text)


def parse_names(value: str, namespace: str) -> list[ObjectName]:
    """Read a list of names from an annotation.

    >>> parse_names("flags, ops/flags,", "team-a")
    [ObjectName(namespace='team-a', name='flags'), ObjectName(namespace='ops', name='flags')]
    """
    return [parse_name(item, namespace) for item in map(str.strip, value.split(",")) if item]


def source_names(annotations: Mapping[str, str], namespace: str) -> list[ObjectName]:
    """Read which sources a pod names, in the order in which they are merged: shared ones first, so that its own win.

    >>> source_names({FEATURE_FLAG_SOURCE: "flags", CLUSTER_FEATURE_FLAG_SOURCE: "shared"}, "team-a")
    [ObjectName(namespace='', name='shared'), ObjectName(namespace='team-a', name='flags')]
    """
    shared = filter(None, map(str.strip, annotations.get(CLUSTER_FEATURE_FLAG_SOURCE, "").split(",")))
    own = parse_names(annotations.get(FEATURE_FLAG_SOURCE, ""), namespace)
    return [*(ObjectName("", name) for name in shared), *own]


def mode_of(annotations: Mapping[str, str]) -> Mode:
    """Return what a pod asks for. That an annotation is there counts, even if it is empty; a sidecar goes first.

    Annotations that name flags need no other that enables them.

    >>> mode_of({ENABLED: "true", FEATURE_FLAG_SOURCE: "a"}), mode_of({ENABLED: "True"}), mode_of({ENABLED: "true"})
    ('sidecar', 'disabled', 'unnamed')
    >>> mode_of({ORDERS[0]: "a"}), mode_of({ORDERS[0]: "a", ENABLED: "false"})
    ('sidecar', 'disabled')
    """
    names_flags = any(each in annotations for each in FLAG_ANNOTATIONS)
    if annotations.get(ENABLED, "true" if names_flags else "") != "true":
        return "disabled"
    if FEATURE_FLAG_SOURCE in annotations or CLUSTER_FEATURE_FLAG_SOURCE in annotations or names_flags:
        return "sidecar"
    return "in-process" if IN_PROCESS_CONFIGURATION in annotations else "unnamed"


def config_map_name(flag: ObjectName, namespace: str) -> str:
    """Return the name of the ConfigMap, in the namespace of the pods that mount it, with the flags of a FeatureFlag.

    >>> config_map_name(ObjectName("a", "flags"), "a"), config_map_name(ObjectName("a", "flags"), "b")
    ('flags', 'flags-885f1716')
    """
    return flag.name if flag.namespace == namespace else _hashed(flag, _LONGEST_NAME, flag.name)


def generated_name(kind: str, name: str) -> str:
    """Return the name of the FeatureFlag with the flags that a workload or pod carries.

    >>> generated_name("Deployment", "checkout"), len(generated_name("Pod", "x" * 253))
    ('checkout-deployment', 253)
    """
    whole = f"{name}-{kind.lower()}"
    return whole if len(whole) <= _LONGEST_NAME else _hashed(ObjectName(kind, name), _LONGEST_NAME, name)


def access_name(account: ObjectName) -> str:
    """Return the name of the Role and RoleBinding, in the namespace of flags, for a service account that reads them.

    >>> access_name(ObjectName("a", "default"))
    'flagd-default-0fd8bbfc'
    """
    return _hashed(account, _LONGEST_NAME, f"flagd-{account.name}")


def volume_name(flag: ObjectName, namespace: str) -> str:
    """Return the name of the volume for a FeatureFlag.

    >>> volume_name(ObjectName("a", "flags"), "a"), volume_name(ObjectName("a", "shop.flags"), "a")
    ('flags', 'shop-flags-48dd8e79')
    """
    return flag.name if flag.namespace == namespace and is_label(flag.name) else unique_volume_name(flag)


def is_label(name: str) -> bool:
    """Tell whether a name is short and plain enough for a Service, a volume or the value of a label.

    >>> is_label("flags"), is_label("shop.flags"), is_label("a" * 64)
    (True, False, False)
    """
    return _LABEL.fullmatch(name) is not None


def unique_volume_name(flag: ObjectName) -> str:
    """Return a name for the volume that no volume of the user's has."""
    return _hashed(flag, _LONGEST_LABEL, flag.name.replace(".", "-"))


def credentials_volume_name(secret: str) -> str:
    """Return the name of the volume for a Secret with credentials of the agent.

    >>> credentials_volume_name("team-a.remote")
    'flagd-credentials-a63644e8'
    """
    return f"flagd-credentials-{sha256(secret.encode()).hexdigest()[:_DIGITS]}"


def _hashed(flag: ObjectName, longest: int, name: str) -> str:
    digits = sha256(str(flag).encode()).hexdigest()[:_DIGITS]
    return f"{name[: longest - _DIGITS - 1].rstrip('-.')}-{digits}"
