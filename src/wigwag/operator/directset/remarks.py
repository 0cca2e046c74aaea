"""What the operator remarks on workloads and pods, as `scope=…, mode=…, refresh=…, config=…`.

| member | values |
|---|---|
| `scope` | `namespace`: all objects are in the pod's namespace; `cross-namespace`: some are not |
| `mode` | `source`, `standing-order`, `direct-set`, joined by `+`: the last one wins; `in-process`; `none` |
| `refresh` | `live`: changes of flags arrive at once; `file`: the kubelet takes up to a minute; `restart` |
| `config` | of a workload: the digest of its flags as they are now; of a pod: the digest of what its agent was told |
| `problem` | why flags are not as the annotations say |
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from wigwag.flags.model import canonical
from wigwag.operator.injection.podflags import named_flags
from wigwag.operator.resources.featureflagsource import FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from wigwag.operator.injection.podflags import PodFlags
    from wigwag.operator.names import ObjectName
    from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec

DIGITS = 16
_BEGINNING = "scope="
_LONGEST = 500
"""Characters of a problem; the Event has all of it."""


class Configured(NamedTuple):
    """The configuration of an agent that remarks are about."""

    namespace: str
    named: Collection[ObjectName]
    """The FeatureFlagSources."""
    flags: PodFlags
    spec: FeatureFlagSourceSpec
    """With the flags."""


def agent_remarks(about: Configured, config: str, problem: str = "") -> str:
    """Return the remarks on a pod with an agent, or on a workload of such pods."""
    flags = list(named_flags(about.spec, about.namespace))
    scope = _scope(about.namespace, [*about.named, *(name for _, name in flags)])
    modes = {"source": about.named, "standing-order": about.flags.orders, "direct-set": about.flags.direct}
    mode = "+".join(name for name, given in modes.items() if given) or "none"
    refresh = "file" if any(provider == FILE for provider, _ in flags) else "live"
    why = f", problem={_one_line(problem)}" if problem else ""
    return f"{scope}, mode={mode}, refresh={refresh}, config={config}{why}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def is_remark(text: str) -> bool:
    """Tell whether a text is one of ours: it stays ours to remove when there is nothing to remark any more."""
    return text.startswith(_BEGINNING)


def in_process_remarks(namespace: str, named: Collection[ObjectName]) -> str:
    """Return the remarks on pods with an environment for in-process providers, which a running pod keeps."""
    return f"{_scope(namespace, named)}, mode=in-process, refresh=restart"


def _scope(namespace: str, names: Collection[ObjectName]) -> str:
    return f"{_BEGINNING}{'namespace' if all(name.namespace == namespace for name in names) else 'cross-namespace'}"


def config_of_flags(about: Configured, digest_of: Callable[[ObjectName], str]) -> str:
    """Return the digest of the flags of an agent: that of its FeatureFlag, if that is all it has."""
    flags = [name for _, name in named_flags(about.spec, about.namespace)]
    if len(flags) == len(about.spec.sources) == 1:
        return digest_of(flags[0]) or "none"
    sources = [[each.provider, each.source] for each in about.spec.sources]
    return config_of([sources, [digest_of(name) for name in flags]])


def config_of(values: Sequence[object]) -> str:
    """Return the digest of what an agent is told."""
    return sha256(canonical(list(values))).hexdigest()[:DIGITS]
