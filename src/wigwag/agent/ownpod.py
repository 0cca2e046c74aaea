"""The agent's own pod: who it is, what its labels and annotations say, and where it runs.

Without asking anybody, a pod knows what the downward API says, as files and as variables. Files go before variables:
they may change while the pod runs.

    /etc/podinfo/labels         app="shop"         POD_NAME, POD_NAMESPACE, POD_UID, POD_IMAGE
                annotations     owner="team \"a\"" NODE_NAME, NODE_ZONE
                name, namespace …

The API server knows the rest:

    POD_NAMESPACE, POD_NAME     set by the downward API; without them, the service account's, and HOSTNAME
    metadata                    labels and annotations
    spec                        its node and the images of its containers

One watch serves all who want to know. It selects by a field and not by `resourceNames`: the name of a pod is not known
before it runs, so a Role has to allow the pods of the namespace.

A dot separates names in a rule, so a dot in the name of a label is written as an underscore: `app.kubernetes.io/name`
is `pod.labels.app_kubernetes_io/name`.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from wigwag.errors import UsageError, WigwagError
from wigwag.kube.config.cluster import find_cluster, in_a_pod
from wigwag.kube.kinds import NODE, POD
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from wigwag.kube.hub import Hub

ADVICE = "set POD_NAME and POD_NAMESPACE by the downward API"
RULE = '{apiGroups: [""], resources: [nodes], verbs: [get]}'
VARIABLES = {
    "POD_NAME": "name",
    "POD_NAMESPACE": "namespace",
    "POD_UID": "uid",
    "POD_IMAGE": "image",
    "NODE_NAME": "node",
    "NODE_ZONE": "zone",
}
"""The variables, and the names of the files that say the same."""
ZONE = "topology.kubernetes.io/zone"
LONGEST_VALUE = 1024
"""Characters of an attribute; longer ones are left out. Annotations may hold whole manifests."""
_LINE = re.compile(r'([^="\s]+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))")
_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
log = logging.getLogger("wigwag.agent")


class PodIdentity(NamedTuple):
    """Which pod we are."""

    namespace: str
    name: str

    def watch(self) -> KubeWatch:
        """Return what has to be watched."""
        return KubeWatch(POD, self.namespace, fields=f"metadata.name={self.name}")


class Container(Struct, frozen=True):
    """A container of a pod."""

    name: str = ""
    image: str = ""


class _Metadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[Container, ...] = ()


class Pod(Struct, frozen=True):
    """What is of interest about a pod. Its status is not: it changes all the time."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


decode_pod = msgspec.json.Decoder(Pod).decode


def namespace_of(environment: Mapping[str, str]) -> str:
    """Return our namespace; `UsageError` if it is not known."""
    namespace = environment.get("POD_NAMESPACE") or find_cluster(environment).namespace
    if not namespace:
        raise UsageError(f"cannot determine the namespace of this pod; {ADVICE}")
    return namespace


def identify(environment: Mapping[str, str]) -> PodIdentity:
    """Return which pod we are; `UsageError` if that is not known, or no API server is configured."""
    find_cluster(environment)
    name = environment.get("POD_NAME") or (environment.get("HOSTNAME", "") if in_a_pod(environment) else "")
    if not name:
        raise UsageError(f"cannot determine the name of this pod; {ADVICE}")
    return PodIdentity(namespace_of(environment), name)


async def watch_pod(hub: Hub, who: PodIdentity) -> AsyncIterator[Pod | Unavailable | Unchanged]:
    """Yield the pod when it changes, `UNCHANGED`, or `Unavailable`."""
    missing: Unavailable | None = None
    async with closing(hub.watch(who.watch(), decode_pod)) as items:
        async for item in items:
            if isinstance(item, Unavailable):
                yield item
            elif isinstance(item, Unchanged):
                yield missing or item
            else:
                pods = tuple(item.values())
                missing = None if pods else Unavailable(f"there is no pod {who.namespace}/{who.name}; {ADVICE}")
                yield missing or pods[0]


async def watch_facts_of(hub: Hub, who: PodIdentity) -> AsyncIterator[dict[str, Any] | Unavailable | Unchanged]:
    """Yield what is known about the pod, with the zone of its node as soon as that is known."""
    pod: Pod | None = None
    zones = Zones(hub)
    async with closing(watch_pod(hub, who)) as items:
        async for item in items:
            if isinstance(item, Pod):
                pod = item
            elif isinstance(item, Unavailable) or zones.known or pod is None:
                yield item
                continue
            yield described(pod, zone_of(pod) or await zones.of(pod.spec.node_name))


def zone_of(pod: Pod) -> str:
    """Return the zone, if the pod itself is labelled with it, as newer servers do."""
    return (pod.metadata.labels or {}).get(ZONE, "")


class Zones:
    """The zone of a node, which does not move. Who may not ask, or cannot, is not kept from the rest."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._zones = hub, {"": ""}
        self.known, self._logged = True, ""

    async def of(self, node: str) -> str:
        """Return the zone of a node, as far as it is known."""
        self.known = True
        if node not in self._zones:
            try:
                node_object = await self._hub.kube.get(NODE, node)
                self._zones[node] = str(node_object["metadata"].get("labels", {}).get(ZONE, ""))
            except (WigwagError, KeyError, AttributeError) as error:
                self.known = False
                why = f"cannot read the zone of node {node}: {error}; reading it needs a ClusterRole with {RULE}"
                if why != self._logged:
                    self._logged = why
                    log.info("%s", why)
        return self._zones.get(node, "")


def described(pod: Pod, zone: str) -> dict[str, Any]:
    """Return what is known about a pod, as attributes; what is empty is left out.

    >>> described(decode_pod(b'{"metadata": {"name": "a", "labels": {"x.y": "1"}}, "spec": {"nodeName": "n"}}'), "z")
    {'name': 'a', 'node': 'n', 'zone': 'z', 'labels': {'x_y': '1'}, 'annotations': {}, 'images': {}}
    """
    about, containers = pod.metadata, pod.spec.containers
    values = {
        "name": about.name,
        "namespace": about.namespace,
        "uid": about.uid,
        "node": pod.spec.node_name,
        "zone": zone,
        "image": containers[0].image if containers else "",
    }
    maps = {
        "labels": about.labels or {},
        "annotations": about.annotations or {},
        "images": {each.name: each.image for each in containers},
    }
    return _given(values) | {name: _given(pairs) for name, pairs in maps.items()}


def _given(values: Mapping[str, str]) -> dict[str, Any]:
    return _attributes({name: text for name, text in values.items() if text})


def pod_facts(files: Mapping[str, bytes], environment: Mapping[str, str]) -> dict[str, Any]:
    r"""Return what is known about the pod.

    >>> pod_facts({"labels": b'app.kubernetes.io/name="shop"\ntier="a\\"b"\n', "name": b"shop-1"}, {"NODE_NAME": "n1"})
    {'node': 'n1', 'name': 'shop-1', 'labels': {'app_kubernetes_io/name': 'shop', 'tier': 'a"b'}}
    """
    values: dict[str, Any] = {name: environment[key] for key, name in VARIABLES.items() if environment.get(key)}
    texts = {name: content.decode("utf-8", "replace") for name, content in files.items()}
    values |= {name: texts[name].strip() for name in VARIABLES.values() if texts.get(name, "").strip()}
    maps = {name: read_map(texts[name]) for name in ("labels", "annotations") if name in texts}
    zone = maps.get("labels", {}).get(ZONE)
    if zone:
        values.setdefault("zone", zone)
    return _attributes(values) | {name: _attributes(pairs) for name, pairs in maps.items()}


def read_map(text: str) -> dict[str, str]:
    r"""Read lines of the form name="value", with the escapes of Go; other lines are ignored.

    >>> read_map('a="1"\nb="x\\ny \\u00e9 \\\\"\nnonsense\n')
    {'a': '1', 'b': 'x\ny é \\'}
    """
    lines = (match for line in text.split("\n") if (match := _LINE.fullmatch(line)))
    return {match[1]: _ESCAPE.sub(_unescaped, match[2]) for match in lines}


def attribute(name: str) -> str:
    """Return a name as one that rules can ask for."""
    return name.replace(".", "_")


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if not code:
        return _CHARACTERS.get(match[4], match[4])
    number = int(code, 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"


def _attributes(values: Mapping[str, str]) -> dict[str, Any]:
    """Return values by names that rules can ask for; what is longer than a rule can use is left out."""
    return {attribute(name): value for name, value in values.items() if len(value) <= LONGEST_VALUE}
