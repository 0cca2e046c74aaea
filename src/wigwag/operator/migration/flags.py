"""FeatureFlagConfiguration to FeatureFlag: v1alpha1 has the flags as a JSON text, v1alpha2 as an object.

What else it says is about the agent: where it takes the flags from, its variables, its resources. That belongs to a
FeatureFlagSource now. A workload that names the object in an annotation gets a FeatureFlagSource with all of it
(`migration.workloads`); if no workload does, it is lost, and the remark says where to write it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wigwag import jsontext
from wigwag.operator.injection.verdict import Denied
from wigwag.operator.migration.remarks import Migrated, Remark, members, new_object, unmigrated
from wigwag.operator.resources.featureflag import FlagSpec
from wigwag.operator.validation import validate_feature_flag

if TYPE_CHECKING:
    from collections.abc import Iterator

Json: TypeAlias = Any
KIND = "FeatureFlagConfiguration"
_OF_THE_SOURCE = {
    "syncProvider": "`sources` of a FeatureFlagSource",
    "flagDSpec": "`envVars` and `managementPort` of a FeatureFlagSource",
    "resources": "`resources` of a FeatureFlagSource",
}
_decode = jsontext.decoder()


def migrate_flags(old: Json, *, moved: bool) -> Migrated:
    """Return the FeatureFlag. `moved`: a workload's FeatureFlagSource has what the object says about the agent."""
    spec = members(old.get("spec"))
    try:
        flag_spec = _flag_spec(spec.get("featureFlagSpec"))
        made = new_object(old, "FeatureFlag", {} if flag_spec is None else {"flagSpec": flag_spec})
        verdict = validate_feature_flag(msgspec.json.encode(made))
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        return unmigrated("$.spec.featureFlagSpec", f"the flags cannot be read: {error}")
    remarks = [*_remarks(spec, moved=moved)]
    if isinstance(verdict, Denied):
        reason = verdict.message.replace("\n", "; ")
        remarks.append(Remark("warning", "$.spec.featureFlagSpec", f"the operator will refuse these flags: {reason}"))
    return Migrated((made,), tuple(remarks))


def _flag_spec(given: Json) -> Json:
    flag_spec = _decode(given) if isinstance(given, str) and given.strip() else given or None
    if flag_spec is not None:
        msgspec.convert(flag_spec, FlagSpec)
    return flag_spec


def _remarks(spec: Json, *, moved: bool) -> Iterator[Remark]:
    if spec.get("serviceProvider"):
        message = "serviceProvider is dropped: the operator chooses the agent"
        hint = "put its credentials into `envVars` of a FeatureFlagSource"
        yield Remark("warning", "$.spec.serviceProvider", f"{message}; {hint}")
    for name, place in _OF_THE_SOURCE.items():
        if spec.get(name) and not moved:
            yield Remark("warning", f"$.spec.{name}", f"{name} is dropped: write it into {place}")
    for name in spec:
        if name not in ("featureFlagSpec", "serviceProvider", *_OF_THE_SOURCE):
            yield Remark("warning", f"$.spec.{name}", f"{name} is dropped: no version has such a field")
