"""FeatureFlags: the ConfigMaps that should hold them, and their status.

A ConfigMap is wanted in every namespace with pods that mount the flag, and kept while there is such a pod. The hard
cases: a flag that was deleted leaves its ConfigMaps in other namespaces to the pods that mount them, with the last
flags; a ConfigMap of the user's with the same name stays as it is; and one that the original has made is adopted.

Flags may be large, and there may be many. So the operator keeps a digest of each (`FlagSummary`) and of what each
ConfigMap holds (`HeldFlags`), and reads the flags themselves only if `is_current` says that there is something to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw, Struct, field

from wigwag.flags.critical import critical_digest, marked
from wigwag.flags.digests import DIGITS, document_digest
from wigwag.flags.model import Limits
from wigwag.operator.configmaps import LABELS, MOST_BYTES, NO_FLAGS, flag_config_map, holds_flags, pack, unpack
from wigwag.operator.names import FEATURE_FLAG, ObjectName, config_map_name, parse_name
from wigwag.operator.reconcile.status import (
    ACCEPTED,
    PROGRAMMED,
    PROPAGATED,
    RESOLVED,
    ConditionState,
    conditions,
    listed,
)
from wigwag.operator.reconcile.usage import permitted
from wigwag.operator.remoteflags import WrittenRemote, read_remote
from wigwag.operator.resources.featureflag import FeatureFlagStatus
from wigwag.operator.resources.featureflagsource import FILE
from wigwag.operator.resources.kubernetes import Condition, ObjectMeta
from wigwag.operator.resources.remoteflagprovider import OVERRIDE
from wigwag.operator.validation import flag_findings, is_refused, lines
from wigwag.sources.kubernetes.names import CRITICAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.operator.configmaps import Packing
    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.reconcile.usage import FlagUse
    from wigwag.operator.resources.remoteflagprovider import RemoteFlagProvider
    from wigwag.operator.settings import OperatorSettings

Json: TypeAlias = Any
MOUNTED, NOT_MOUNTED = ("Mounted", "Compressed"), "NotMounted"
"""Reasons of the condition `Programmed`."""


class FlagSummary(Struct, frozen=True):
    """A FeatureFlag without its flags."""

    about: ObjectMeta
    status: FeatureFlagStatus
    digest: str
    """Of its document as the API server writes it."""
    remote: RemoteFlagProvider | None = None
    """Its remote, if there is one that can be used."""
    critical: bytes = b""
    """The digest of its critical flags."""


class HeldFlags(Struct, frozen=True):
    """A ConfigMap of the operator without the flags that it holds."""

    about: ObjectMeta
    digest: str
    """Of the document in it; empty if there is none that can be read."""


class _DocumentSpec(Struct, rename="camel"):
    flag_spec: Raw = Raw()
    remote_flag_provider: Raw = Raw()


class _FlagObject(Struct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _DocumentSpec = field(default_factory=_DocumentSpec)
    status: FeatureFlagStatus = FeatureFlagStatus()


class _HeldDocument(Struct, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None


_flag = msgspec.json.Decoder(_FlagObject).decode
_config_map_object = msgspec.json.Decoder(_HeldDocument).decode


def decode_flag(raw: Raw) -> FlagSummary:
    """Decode a FeatureFlag of a watch."""
    flag = _flag(raw)
    document, remote = _document(flag), read_remote(flag.spec.remote_flag_provider).usable
    critical = critical_digest(document, Limits(), "json")
    return FlagSummary(flag.metadata, flag.status, _digest(document or NO_FLAGS.encode()), remote, critical)


def read_flag(body: bytes) -> ObservedFlag:
    """Read a FeatureFlag, with its flags."""
    flag = _flag(body)
    about = flag.metadata
    name = ObjectName(about.namespace, about.name)
    remote = read_remote(flag.spec.remote_flag_provider)
    return ObservedFlag(name=name, about=about, document=_document(flag), status=flag.status, remote=remote)


def _document(flag: _FlagObject) -> bytes:
    """Return the document of a FeatureFlag, as agents read it: its metadata are marked if the object is."""
    document = bytes(flag.spec.flag_spec)
    critical = document and (flag.metadata.annotations or {}).get(CRITICAL) == "true"
    return marked(document) if critical else document


def decode_held(raw: Raw) -> HeldFlags:
    """Decode a ConfigMap of a watch. Only the file of its flag counts: others may add files of their own."""
    given = _config_map_object(raw)
    about, plain, packed = given.metadata, given.data or {}, given.binary_data or {}
    file = parse_name((about.annotations or {}).get(FEATURE_FLAG, ""), about.namespace).file
    if file in plain:
        return HeldFlags(about, _digest(plain[file].encode()))
    return HeldFlags(about, _digest(unpack(packed[file])) if file in packed else "")


def _digest(document: bytes) -> str:
    return sha256(document).hexdigest()[:DIGITS]


@dataclass(frozen=True, kw_only=True)
class ObservedFlag:
    """A FeatureFlag as it is in the cluster."""

    name: ObjectName
    about: ObjectMeta
    document: bytes = b""
    """Its `flagSpec` as it was written, marked if all of it is critical; empty if it has none."""
    status: FeatureFlagStatus = FeatureFlagStatus()
    remote: WrittenRemote = WrittenRemote()


@dataclass(frozen=True)
class FlagConfigMaps:
    """What is to be done about the ConfigMaps of one FeatureFlag."""

    packing: Packing
    apply: tuple[dict[str, Json], ...] = ()
    adopt: tuple[ObjectName, ...] = ()
    """Those of `apply` that hold the flag and do not have our labels yet: add them first."""
    refused: tuple[ObjectName, ...] = ()
    """Names that pods need, but that somebody else's ConfigMaps have."""


def mounting_namespaces(
    flag: ObjectName, uses: Iterable[FlagUse], known: KnownObjects, settings: OperatorSettings
) -> frozenset[str]:
    """Return the namespaces whose pods mount a flag, and may."""
    of_flag = (use for use in uses if use.provider == FILE and use.flag == flag)
    return frozenset(use.account.namespace for use in permitted(of_flag, known, settings))


def kept_config_maps(uses: Iterable[FlagUse], known: KnownObjects, settings: OperatorSettings) -> frozenset[ObjectName]:
    """Return the ConfigMaps that are in use; others with our labels are to be pruned.

    One whose flag is gone stays. One whose flag does not grant its use any more does not.
    """
    mounted = {use for use in uses if use.provider == FILE}
    orphaned = {use for use in mounted if known.feature_flag(use.flag) is None}
    kept = orphaned.union(permitted(mounted, known, settings))
    return frozenset(_config_map(use.flag, use.account.namespace) for use in kept)


def _config_map(flag: ObjectName, namespace: str) -> ObjectName:
    return ObjectName(namespace, config_map_name(flag, namespace))


def is_current(flag: FlagSummary, namespaces: Iterable[str], held: Mapping[ObjectName, HeldFlags]) -> bool:
    """Tell whether there is nothing to do about a flag: its ConfigMaps hold it, and its status says so.

    One that cannot be held, because it is too large or a name is taken, never is.
    """
    status, about = flag.status, flag.about
    if status.observed_generation != about.generation:
        return False
    name = ObjectName(about.namespace, about.name)
    present = [held.get(_config_map(name, namespace)) for namespace in namespaces]
    reason = next((each.reason for each in status.conditions if each.type == PROGRAMMED), "")
    if not present or reason not in MOUNTED:
        return not present and reason == NOT_MOUNTED
    return all(each and each.digest == flag.digest and holds_flags(each.about, name) for each in present)


def flag_config_maps(
    flag: ObservedFlag, namespaces: Iterable[str], live: Mapping[ObjectName, ObjectMeta]
) -> FlagConfigMaps:
    """Return the ConfigMaps of a flag. `live` are ConfigMaps that exist, at least those of the names it needs.

    If the flags are too large, nothing is applied: the ConfigMaps keep the last flags that were not.
    """
    wanted = {namespace: _config_map(flag.name, namespace) for namespace in sorted(namespaces)}
    if not wanted:
        return FlagConfigMaps("plain")
    packed = pack(flag.document.decode())
    present = {name: live[name] for name in wanted.values() if name in live}
    refused = tuple(name for name, about in present.items() if not holds_flags(about, flag.name))
    apply = tuple(
        flag_config_map(flag.name, flag.about.uid, packed, namespace)
        for namespace, name in wanted.items()
        if name not in refused and packed.packing != "too large"
    )
    without_labels = (name for name, about in present.items() if not LABELS.items() <= (about.labels or {}).items())
    adopt = tuple(name for name in without_labels if apply and name not in refused)
    return FlagConfigMaps(packed.packing, apply, adopt, refused)


def flag_status(flag: ObservedFlag, maps: FlagConfigMaps, now: float) -> FeatureFlagStatus:
    """Return the status of a FeatureFlag; equal to the one it has if there is nothing to write."""
    findings = flag_findings(flag.document) if flag.document else []
    errors = [each for each in findings if is_refused(each)]
    content = msgspec.json.decode(flag.document or NO_FLAGS)
    counts = count_flags(content)
    problems, warnings = (*lines(errors), *flag.remote.problems), (*lines(findings), *flag.remote.warnings)
    if problems:
        accepted = ConditionState("False", "Invalid", "\n".join((*problems, "agents leave out what they cannot use")))
    else:
        accepted = ConditionState("True", "ValidWithWarnings" if warnings else "Valid", "\n".join(warnings))
    states = {ACCEPTED: accepted, PROGRAMMED: _programmed(maps)}
    if flag.remote.is_there:
        states[RESOLVED] = _resolved(flag.remote)
    generation = flag.about.generation
    return FeatureFlagStatus(
        observed_generation=generation,
        conditions=[*conditions(flag.status.conditions, states, generation, now), *_others(flag.status)],
        digest=document_digest(content),
        flags=counts.flags,
        enabled=counts.enabled,
        rules=counts.rules,
        evaluators=counts.evaluators,
        errors=len(errors),
        warnings=len(findings) - len(errors),
        agents=flag.status.agents,
    )


def _others(status: FeatureFlagStatus) -> list[Condition]:
    """Return the conditions that another controller keeps."""
    return [each for each in status.conditions if each.type == PROPAGATED]


class FlagCounts(NamedTuple):
    """How many there are in a document."""

    flags: int
    enabled: int
    rules: int
    """Flags with a targeting rule."""
    evaluators: int


def count_flags(document: Json) -> FlagCounts:
    """Count what is in a document, valid or not."""
    flags = [each for each in _members(document, "flags").values() if isinstance(each, dict)]
    enabled = sum(each.get("state") == "ENABLED" for each in flags)
    return FlagCounts(
        len(_members(document, "flags")),
        enabled,
        sum(bool(each.get("targeting")) for each in flags),
        len(_members(document, "$evaluators")),
    )


def _members(document: Json, name: str) -> dict[str, Json]:
    member = document.get(name) if isinstance(document, dict) else None
    return member if isinstance(member, dict) else {}


def _resolved(remote: WrittenRemote) -> ConditionState:
    """Say whether agents get the remote as a source. Only they can tell whether it answers, and has its Secret."""
    usable = remote.usable
    if usable is None:
        return ConditionState("False", "RemoteUnusable", "new agents get no remote source; Accepted says why")
    wins = "its definitions win" if usable.strategy == OVERRIDE else "definitions of this object win"
    message = f"new agents get the {usable.type} source {usable.uri}, and {wins}"
    if usable.credentials:
        message = f"{message}; they read the Secret {usable.credentials.secret} of their own namespace"
    return ConditionState("True", "RemoteAccepted", message)


def _programmed(maps: FlagConfigMaps) -> ConditionState:
    """Say whether pods that mount the flags have them."""
    size = f"the flags are larger than a ConfigMap may be ({MOST_BYTES} bytes)"
    if maps.refused:
        names = listed(list(map(str, maps.refused)))
        message = f"ConfigMaps of these names exist and are not the operator's: {names}. They stay as they are"
        return ConditionState("False", "ConfigMapNotOurs", f"{message}; rename them, or the FeatureFlag")
    if maps.packing == "too large":
        message = f"{size}, even compressed, so pods with the provider `file` keep the flags that they have"
        return ConditionState("False", "TooLarge", f"{message}; split the FeatureFlag, or use another provider")
    if maps.packing == "gzip" and maps.apply:
        message = f"{size}, so they are compressed (gzip). The agent of the image wigwag reads that; flagd does not"
        return ConditionState("True", "Compressed", message)
    return ConditionState("True", MOUNTED[0] if maps.apply else NOT_MOUNTED)
