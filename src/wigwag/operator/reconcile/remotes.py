"""The remotes that agents get beside FeatureFlags, as digests: by them a rollout knows which workloads are behind.

A source names FeatureFlags, and each may have a remote, which is an argument of the agent. So a remote that changes
is a change of what the source means, though nobody has edited the source. Names are read in the namespace of each pod,
so it is a change for the workloads of some namespaces only.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from wigwag.flags.model import canonical
from wigwag.operator.injection.merge import effective_source
from wigwag.operator.injection.sources import SourceResolver
from wigwag.operator.remoteflags import element

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.injection.sources import NamedRemote
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource, FeatureFlagSourceSpec
    from wigwag.operator.settings import OperatorSettings

DIGITS = 16


class RemoteChange(NamedTuple):
    """The digests of the remotes of one source in one namespace, by FeatureFlag."""

    before: Mapping[str, str]
    """As the status of the source has them: what workloads run with."""
    after: Mapping[str, str]
    """What new pods would get."""


def remote_change(
    source: FeatureFlagSource, namespace: str, known: KnownObjects, settings: OperatorSettings
) -> RemoteChange:
    """Return what has become of the remotes that pods of a namespace get from a source."""
    named = list(_named(source.spec, namespace, known, settings))
    flags = {str(each.flag) for each in named}
    before = {flag: digest for flag, digest in source.status.remotes.items() if flag in flags}
    return RemoteChange(before, _digests(named))


def remote_digests(
    spec: FeatureFlagSourceSpec, namespaces: Iterable[str], known: KnownObjects, settings: OperatorSettings
) -> dict[str, str]:
    """Return the digests of the remotes that pods of these namespaces get from a source, by FeatureFlag."""
    named = (each for namespace in namespaces for each in _named(spec, namespace, known, settings))
    return dict(sorted(_digests(named).items()))


def with_remotes(digest: str, remotes: Mapping[str, str]) -> str:
    """Return the digest of a source together with its remotes; without any, that of the source alone.

    >>> with_remotes("0f1e", {}), with_remotes("0f1e", {"team-a/flags": "9a8b"})
    ('0f1e', '0f1e-d46fd61ad233572b')
    """
    return f"{digest}-{_digest(remotes)}" if remotes else digest


def remotes_part(digest: str) -> str:
    """Return the part of such a digest that is of the remotes; empty if there are none."""
    return digest.partition("-")[2]


def _named(
    spec: FeatureFlagSourceSpec, namespace: str, known: KnownObjects, settings: OperatorSettings
) -> Iterator[NamedRemote]:
    effective = effective_source(settings.sidecar, [spec])
    resolver = SourceResolver(namespace=namespace, known=known, settings=settings)
    return (resolver.remote_of(entry, effective.default_sync_provider) for entry in effective.sources)


def _digests(named: Iterable[NamedRemote]) -> dict[str, str]:
    """Return the digests of what agents get: a setting that is left out is no part of them, whatever its default."""
    return {
        str(each.flag): _digest({**element(each.usable), "strategy": each.usable.strategy})
        for each in named
        if each.usable is not None
    }


def _digest(content: object) -> str:
    return sha256(canonical(content)).hexdigest()[:DIGITS]
