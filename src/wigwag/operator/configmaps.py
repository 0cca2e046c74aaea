"""ConfigMaps that hold the flags of a FeatureFlag, for the provider `file`; and whether one of that name is ours.

A ConfigMap is in the namespace of the pods that mount it. Its owner is the FeatureFlag, but only in the same namespace:
Kubernetes takes an owner of another namespace for one that is gone, and would delete the ConfigMap.

The hard case is size: a FeatureFlag may be larger than a ConfigMap. Then the file is compressed, which our agent reads
and flagd does not (decision 92). It is one file in one ConfigMap still, because pods that run have mounted that.
"""

from __future__ import annotations

import gzip
import zlib
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from wigwag.kube.control.apply import owner_reference
from wigwag.kube.kinds import FEATURE_FLAG as FLAGS
from wigwag.operator.names import COMPONENT, FEATURE_FLAG, MANAGED_BY, OPERATOR, config_map_name

if TYPE_CHECKING:
    from wigwag.operator.names import ObjectName
    from wigwag.operator.resources.kubernetes import ObjectMeta

Json: TypeAlias = Any
Packing: TypeAlias = Literal["plain", "gzip", "too large"]
NO_FLAGS = '{"flags":null}'
"""The document of a FeatureFlag that has none."""
LABELS = {MANAGED_BY: OPERATOR, COMPONENT: "flags"}
"""Those that have them, and that no pod mounts, are to be pruned."""
MOST_BYTES = 1 << 20
"""What a ConfigMap may hold; the API server counts binary data before base64."""


LARGEST = 16 << 20
"""Bytes of a document that are unpacked at most; an object of the API server is smaller."""
_GZIP = 16
"""Tells zlib to expect a header of gzip."""


class PackedFlags(NamedTuple):
    """The file with the flags."""

    packing: Packing
    content: bytes


def pack(document: str) -> PackedFlags:
    """Return the file for a document: the `flagSpec` of a FeatureFlag. Equal documents have equal files."""
    plain = (document or NO_FLAGS).encode()
    if len(plain) <= MOST_BYTES:
        return PackedFlags("plain", plain)
    compressed = gzip.compress(plain, mtime=0)
    return PackedFlags("gzip", compressed) if len(compressed) <= MOST_BYTES else PackedFlags("too large", b"")


def unpack(content: bytes) -> bytes:
    """Return the document of a compressed file; empty if it is none, or larger than a document can be."""
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | _GZIP)
    try:
        document = decompressor.decompress(content, LARGEST)
    except zlib.error:
        return b""
    return document if decompressor.eof else b""


def flag_config_map(flag: ObjectName, uid: str, packed: PackedFlags, namespace: str) -> dict[str, Json]:
    """Return the ConfigMap, in a namespace, with the flags of a FeatureFlag, which are not too large."""
    metadata: dict[str, Json] = {
        "name": config_map_name(flag, namespace),
        "namespace": namespace,
        "labels": LABELS,
        "annotations": {FEATURE_FLAG: _annotation(flag, namespace)},
    }
    if flag.namespace == namespace:
        metadata["ownerReferences"] = [owner_reference(FLAGS, {"metadata": {"name": flag.name, "uid": uid}})]
    binary = packed.packing == "gzip"
    member, text = ("binaryData", b64encode(packed.content)) if binary else ("data", packed.content)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, member: {flag.file: text.decode()}}


def holds_flags(about: ObjectMeta, flag: ObjectName) -> bool:
    """Tell whether a ConfigMap is one for this FeatureFlag: the operator's, or one that the original has left."""
    return (about.annotations or {}).get(FEATURE_FLAG) == _annotation(flag, about.namespace)


def _annotation(flag: ObjectName, namespace: str) -> str:
    return flag.name if flag.namespace == namespace else str(flag)
