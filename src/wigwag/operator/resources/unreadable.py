"""Objects that the API server has and that do not fit their schema: they are older than its rules, or it is another's.

Such an object is read as one that asks for nothing, with its metadata, its status and what is wrong. So nobody uses it,
its neighbours are not affected, and whoever looks for it is told why: the pod that names it, and its own status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from wigwag.operator.resources.clusterfeatureflagsource import ClusterFeatureFlagSource
from wigwag.operator.resources.featureflagsource import FeatureFlagSource, FeatureFlagSourceStatus
from wigwag.operator.resources.flagd import Flagd, FlagdSpec, FlagdStatus
from wigwag.operator.resources.inprocessconfiguration import InProcessConfiguration, InProcessStatus
from wigwag.operator.resources.kubernetes import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

T = TypeVar("T")


class UnreadableSource(FeatureFlagSource, frozen=True, kw_only=True):
    """A FeatureFlagSource, or a shared one, that does not fit its schema."""

    problem: str


class UnreadableConfiguration(InProcessConfiguration, frozen=True, kw_only=True):
    """An InProcessConfiguration that does not fit its schema."""

    problem: str


class UnreadableFlagd(Flagd, frozen=True, kw_only=True):
    """A Flagd that does not fit its schema."""

    spec: FlagdSpec = FlagdSpec(feature_flag_source="")
    problem: str


UnreadableObject: TypeAlias = UnreadableSource | UnreadableConfiguration | UnreadableFlagd


class _SourceHead(Struct):
    metadata: ObjectMeta
    status: FeatureFlagSourceStatus = FeatureFlagSourceStatus()


class _ConfigurationHead(Struct):
    metadata: ObjectMeta
    status: InProcessStatus = InProcessStatus()


class _FlagdHead(Struct):
    metadata: ObjectMeta
    status: FlagdStatus = FlagdStatus()


def _decoder(record: type[T], head: type[Struct], unreadable: Callable[..., T]) -> Callable[[Raw], T]:
    whole, part = msgspec.json.Decoder(record).decode, msgspec.json.Decoder(head).decode

    def decode(raw: Raw) -> T:
        try:
            return whole(raw)
        except msgspec.ValidationError as error:
            return unreadable(**msgspec.structs.asdict(part(raw)), problem=str(error))

    return decode


decode_source = _decoder(FeatureFlagSource, _SourceHead, UnreadableSource)
decode_cluster_source: Callable[[Raw], FeatureFlagSource] = _decoder(
    ClusterFeatureFlagSource, _SourceHead, UnreadableSource
)
decode_configuration = _decoder(InProcessConfiguration, _ConfigurationHead, UnreadableConfiguration)
decode_flagd = _decoder(Flagd, _FlagdHead, UnreadableFlagd)
