"""What a pod knows about itself without asking anybody: the downward API, as files and as variables.

    /etc/podinfo/labels         app="shop"         POD_NAME, POD_NAMESPACE, POD_UID, POD_IMAGE
                annotations     owner="team \"a\"" NODE_NAME, NODE_ZONE
                name, namespace …

A dot separates names in a rule, so a dot in the name of a label is written as an underscore: `app.kubernetes.io/name`
is `pod.labels.app_kubernetes_io/name`. Files go before variables: they may change while the pod runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = ("name", "namespace", "uid", "image", "node", "zone")
MAPS = ("labels", "annotations")
VARIABLES = {
    "POD_NAME": "name",
    "POD_NAMESPACE": "namespace",
    "POD_UID": "uid",
    "POD_IMAGE": "image",
    "NODE_NAME": "node",
    "NODE_ZONE": "zone",
}
ZONE = "topology.kubernetes.io/zone"
LONGEST_VALUE = 1024
"""Characters of an attribute; longer ones are left out. Annotations may hold whole manifests."""
_LINE = re.compile(r'([^="\s]+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))")
_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def pod_facts(files: Mapping[str, bytes], environment: Mapping[str, str]) -> dict[str, Any]:
    r"""Return what is known about the pod.

    >>> pod_facts({"labels": b'app.kubernetes.io/name="shop"\ntier="a\\"b"\n', "name": b"shop-1"}, {"NODE_NAME": "n1"})
    {'node': 'n1', 'name': 'shop-1', 'labels': {'app_kubernetes_io/name': 'shop', 'tier': 'a"b'}}
    """
    values: dict[str, Any] = {name: environment[key] for key, name in VARIABLES.items() if environment.get(key)}
    texts = {name: content.decode("utf-8", "replace") for name, content in files.items()}
    values |= {name: texts[name].strip() for name in FILES if texts.get(name, "").strip()}
    maps = {name: read_map(texts[name]) for name in MAPS if name in texts}
    zone = maps.get("labels", {}).get(ZONE)
    if zone:
        values.setdefault("zone", zone)
    attributes = {name: {attribute(key): value for key, value in _short(pairs).items()} for name, pairs in maps.items()}
    return _short(values) | attributes


def _short(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if len(value) <= LONGEST_VALUE}


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
