"""ConfigMaps of FeatureFlags.

| group | test |
|---|---|
| U07 | `test_u07_a_config_map_has_the_document_the_owner_and_the_annotation` |
"""

from __future__ import annotations

import gzip
from base64 import b64decode
from random import Random

import msgspec

from wigwag.operator.configmaps import MOST_BYTES, flag_config_map, holds_flags, pack
from wigwag.operator.names import ObjectName
from wigwag.operator.resources.kubernetes import ObjectMeta

FLAG = ObjectName("team-a", "shop")


def about(config_map: dict[str, object]) -> ObjectMeta:
    return msgspec.convert(config_map["metadata"], ObjectMeta)


def test_u07_a_config_map_has_the_document_the_owner_and_the_annotation() -> None:
    made = flag_config_map(FLAG, "1", pack('{"flags":{}}'), "team-a")
    assert made["data"] == {"team-a_shop.flagd.json": '{"flags":{}}'}
    owner = {"apiVersion": "core.openfeature.dev/v1beta1", "kind": "FeatureFlag", "name": "shop"}
    assert made["metadata"] == {
        "name": "shop",
        "namespace": "team-a",
        "labels": {
            "app.kubernetes.io/managed-by": "open-feature-operator",
            "app.kubernetes.io/component": "flags",
        },
        "annotations": {"openfeature.dev/featureflag": "shop"},
        "ownerReferences": [{**owner, "uid": "1", "controller": True}],
    }
    assert flag_config_map(FLAG, "1", pack(""), "team-a")["data"] == {"team-a_shop.flagd.json": '{"flags":null}'}


def test_in_another_namespace_it_has_no_owner_and_another_name() -> None:
    made = flag_config_map(FLAG, "1", pack("{}"), "team-b")
    assert "ownerReferences" not in made["metadata"]
    assert made["metadata"]["name"] != "shop"
    assert made["metadata"]["annotations"] == {"openfeature.dev/featureflag": "team-a/shop"}
    assert made["data"] == {"team-a_shop.flagd.json": "{}"}


def test_a_document_that_a_config_map_cannot_hold_is_compressed() -> None:
    document = '{"flags":{}}'.ljust(MOST_BYTES)
    assert pack(document)[0] == "plain"
    made = flag_config_map(FLAG, "1", pack(document + " "), "team-a")
    assert "data" not in made
    (content,) = made["binaryData"].values()
    assert gzip.decompress(b64decode(content)) == f"{document} ".encode()
    assert made == flag_config_map(FLAG, "1", pack(document + " "), "team-a")
    assert pack(Random(1).randbytes(2 * MOST_BYTES).hex()) == ("too large", b"")


def test_one_of_the_users_is_not_ours() -> None:
    assert holds_flags(about(flag_config_map(FLAG, "1", pack(""), "team-a")), FLAG)
    assert holds_flags(about(flag_config_map(FLAG, "1", pack(""), "team-b")), FLAG)
    assert not holds_flags(about(flag_config_map(FLAG, "1", pack(""), "team-a")), ObjectName("team-a", "other"))
    assert not holds_flags(ObjectMeta(name="shop", namespace="team-a"), FLAG)
