"""FeatureFlags: their ConfigMaps, and their status.

| group | test |
|---|---|
| U36 | `test_u36_one_that_the_original_has_made_is_adopted` |
| U48 | `test_u48_a_config_map_is_made_where_pods_mount_the_flag` |

Of §6.4: an edit reaches the ConfigMap; flags across namespaces; a ConfigMap of the user's.
"""

from __future__ import annotations

import gzip
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.operator.known import Laid, settings
from wigwag.operator.configmaps import LABELS, MOST_BYTES
from wigwag.operator.names import ALLOW_FROM, ObjectName
from wigwag.operator.reconcile.flags import (
    FlagConfigMaps,
    ObservedFlag,
    count_flags,
    decode_held,
    flag_config_maps,
    flag_status,
    kept_config_maps,
    mounting_namespaces,
)
from wigwag.operator.reconcile.usage import FlagUse
from wigwag.operator.resources.featureflag import FeatureFlagStatus
from wigwag.operator.resources.kubernetes import Condition, ObjectMeta

SHOP = ObjectName("team-a", "shop")
T1, T2 = 1_800_000_000.0, 1_800_003_600.0
GOOD = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
RULE = {"if": [{"==": [{"var": "email"}, "a"]}, "on", "off"]}


def observed(document: Any = None, status: FeatureFlagStatus | None = None, generation: int = 1) -> ObservedFlag:
    text = document if isinstance(document, bytes) else msgspec.json.encode(document) if document else b""
    about = ObjectMeta(name="shop", namespace="team-a", uid="1", generation=generation)
    return ObservedFlag(name=SHOP, about=about, document=text, status=status or FeatureFlagStatus())


def mounts(flag: ObjectName, namespace: str, account: str = "default") -> FlagUse:
    return FlagUse(ObjectName(namespace, account), "file", flag)


def live(maps: FlagConfigMaps) -> dict[ObjectName, ObjectMeta]:
    made = [msgspec.convert(each["metadata"], ObjectMeta) for each in maps.apply]
    return {ObjectName(each.namespace, each.name): each for each in made}


def condition(status: FeatureFlagStatus, kind: str) -> Condition:
    (found,) = (each for each in status.conditions if each.type == kind)
    return found


def test_u48_a_config_map_is_made_where_pods_mount_the_flag() -> None:
    known = Laid(flags={"team-a/shop": {ALLOW_FROM: "team-b"}})
    uses = [mounts(SHOP, each) for each in ("team-a", "team-b", "team-c")]
    uses += [FlagUse(ObjectName("team-d", "x"), "kubernetes", SHOP), mounts(ObjectName("team-a", "other"), "team-a")]
    namespaces = mounting_namespaces(SHOP, uses, known, settings())
    assert namespaces == {"team-a", "team-b"}
    maps = flag_config_maps(observed({"flags": {}}), namespaces, {})
    assert [each["metadata"]["namespace"] for each in maps.apply] == ["team-a", "team-b"]
    assert [each["data"] for each in maps.apply] == [{"team-a_shop.flagd.json": '{"flags":{}}'}] * 2
    assert (maps.adopt, maps.refused, maps.packing) == ((), (), "plain")


def test_the_same_flags_make_the_same_config_maps_and_others_make_others() -> None:
    maps = flag_config_maps(observed({"flags": {}}), ["team-a"], {})
    assert flag_config_maps(observed({"flags": {}}), ["team-a"], live(maps)) == maps
    assert flag_config_maps(observed({"flags": {"a": GOOD}}), ["team-a"], live(maps)).apply != maps.apply


def test_u36_one_that_the_original_has_made_is_adopted() -> None:
    name = ObjectName("team-a", "shop")
    theirs = ObjectMeta(name="shop", namespace="team-a", annotations={"openfeature.dev/featureflag": "shop"})
    maps = flag_config_maps(observed({"flags": {}}), ["team-a"], {name: theirs})
    assert (maps.adopt, len(maps.apply)) == ((name,), 1)
    assert not flag_config_maps(observed(), ["team-a"], {name: replace(theirs, labels=dict(LABELS))}).adopt


def test_a_config_map_of_the_users_stays_and_the_status_names_it() -> None:
    name = ObjectName("team-a", "shop")
    maps = flag_config_maps(observed(), ["team-a", "team-b"], {name: ObjectMeta(name="shop", namespace="team-a")})
    assert maps.refused == (name,)
    assert [each["metadata"]["namespace"] for each in maps.apply] == ["team-b"]
    programmed = condition(flag_status(observed(), maps, T1), "Programmed")
    assert (programmed.status, programmed.reason) == ("False", "ConfigMapNotOurs")
    assert "team-a/shop" in programmed.message


def test_flags_that_are_too_large_are_compressed_or_stay_and_the_status_says_so() -> None:
    flag = observed(b'{"flags":{}}'.ljust(MOST_BYTES + 1))
    maps = flag_config_maps(flag, ["team-a"], {})
    assert "binaryData" in maps.apply[0]
    programmed = condition(flag_status(flag, maps, T1), "Programmed")
    assert (programmed.status, programmed.reason) == ("True", "Compressed")
    assert "flagd does not" in programmed.message
    flag = observed({"flags": {}, "metadata": {"noise": Random(1).randbytes(3 * MOST_BYTES // 2).hex()}})
    maps = flag_config_maps(flag, ["team-a"], live(maps))
    assert (maps.apply, maps.adopt) == ((), ())
    programmed = condition(flag_status(flag, maps, T1), "Programmed")
    assert (programmed.status, programmed.reason) == ("False", "TooLarge")


def test_the_config_map_of_a_flag_that_was_deleted_stays_while_a_pod_mounts_it() -> None:
    known = Laid(flags={"team-a/shop": {ALLOW_FROM: "team-b"}})
    uses = [mounts(SHOP, "team-b")]
    (kept,) = kept_config_maps(uses, known, settings())
    known.flags.clear()
    assert kept_config_maps(uses, known, settings()) == {kept}
    known.flags["team-a/shop"] = {}  # it is back, and grants nothing
    assert not kept_config_maps(uses, known, settings())
    assert not kept_config_maps([], known, settings())


def test_the_status_counts_flags() -> None:
    flags = {"a": GOOD, "b": {**GOOD, "state": "DISABLED"}, "c": {**GOOD, "targeting": RULE}}
    document = {"flags": flags, "$evaluators": {"x": RULE}}
    status = flag_status(observed(document), FlagConfigMaps("plain"), T1)
    assert (status.flags, status.enabled, status.rules, status.evaluators, status.errors) == (3, 2, 1, 1, 0)
    assert condition(status, "Accepted").status == "True"
    assert condition(status, "Programmed").reason == "NotMounted"
    reordered = {"$evaluators": document["$evaluators"], "flags": dict(reversed(flags.items()))}
    assert flag_status(observed(reordered), FlagConfigMaps("plain"), T1).digest == status.digest
    assert flag_status(observed(), FlagConfigMaps("plain"), T1).digest != status.digest


def test_bad_flags_are_not_accepted_and_the_status_says_why() -> None:
    status = flag_status(observed({"flags": {"a": {**GOOD, "defaultVariant": "x"}}}), FlagConfigMaps("plain"), T1)
    accepted = condition(status, "Accepted")
    assert (accepted.status, accepted.reason, status.errors) == ("False", "Invalid", 1)
    assert accepted.message.startswith("spec.flagSpec.flags.a.defaultVariant: ")


def test_a_condition_keeps_its_time_until_it_says_something_else() -> None:
    maps = FlagConfigMaps("plain")
    status = flag_status(observed({"flags": {"a": GOOD}}), maps, T1)
    assert flag_status(observed({"flags": {"a": GOOD}}, status), maps, T2) == status
    bad = flag_status(observed({"flags": {"a": {}}}, status, 2), maps, T2)
    assert condition(bad, "Accepted").last_transition_time == "2027-01-15T09:00:00Z"
    assert condition(bad, "Programmed").last_transition_time == "2027-01-15T08:00:00Z"
    assert bad.observed_generation == condition(bad, "Programmed").observed_generation == 2


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3),
    lambda inner: (
        st.dictionaries(
            st.sampled_from(["flags", "$evaluators", "state", "targeting", "variants", "a"]), inner, max_size=4
        )
        | st.lists(inner, max_size=2)
    ),
    max_leaves=10,
)


@given(DOCUMENTS)
def test_any_document_has_a_status_and_a_second_look_changes_nothing(document: Any) -> None:
    flag = observed(msgspec.json.encode(document))
    maps = flag_config_maps(flag, ["team-a"], {})
    status = flag_status(flag, maps, T1)
    again = observed(flag.document, status)
    assert flag_status(again, flag_config_maps(again, ["team-a"], live(maps)), T2) == status
    assert count_flags(document).enabled <= count_flags(document).flags


FLAGS = st.builds(ObjectName, st.sampled_from(["team-a", "ops"]), st.sampled_from(["a", "b"]))
USES = st.frozensets(st.builds(mounts, FLAGS, st.sampled_from(["team-a", "team-b"]), st.sampled_from("xy")))


@given(USES, USES, st.dictionaries(FLAGS.map(str), st.sampled_from([{}, {ALLOW_FROM: "*"}])))
def test_what_is_kept_is_what_is_applied_and_what_lost_its_flag(
    before: frozenset[FlagUse], after: frozenset[FlagUse], flags: dict[str, dict[str, str]]
) -> None:
    known = Laid(flags=flags)
    kept = kept_config_maps(after, known, settings())
    applied = set()
    for flag in {use.flag for use in before | after} & {ObjectName(*each.split("/")) for each in flags}:
        about = ObjectMeta(name=flag.name, namespace=flag.namespace, uid="1")
        namespaces = mounting_namespaces(flag, after, known, settings())
        applied |= set(live(flag_config_maps(ObservedFlag(name=flag, about=about), namespaces, {})))
    orphaned = kept_config_maps([use for use in after if str(use.flag) not in flags], known, settings())
    assert kept == applied | orphaned


def test_of_a_config_map_only_the_file_of_its_flag_counts() -> None:
    def digest(**members: Any) -> str:
        about = {"name": "shop", "namespace": "team-a", "annotations": {"openfeature.dev/featureflag": "shop"}}
        return decode_held(msgspec.Raw(msgspec.json.encode({"metadata": about, **members}))).digest

    file = SHOP.file
    assert digest(data={file: "{}", "other.json": "[]"}) == digest(data={file: "{}"}) != ""
    assert digest(data={file: "[]"}) != digest(data={file: "{}"})
    assert digest(binaryData={file: gzip.compress(b"{}"), "other": b"x"}) == digest(data={file: "{}"})
    assert digest(data={"other.json": "{}"}) == digest() == ""
