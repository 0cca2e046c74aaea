"""Addresses of Kubernetes sources: which objects of the API server hold the flags.

    core.openfeature.dev/NAMESPACE/NAME                  one FeatureFlag
    core.openfeature.dev/NAMESPACE?labels=app=shop       the FeatureFlags that a label selector chooses, as one set
    configmap/NAMESPACE/NAME[/KEY]                       what one key of a ConfigMap holds, or all keys, as one set

All FeatureFlags of a namespace are chosen by an explicit `?labels=`: a forgotten name must not select them. Where a
comma separates addresses, as in `--uri`, write a selector of several parts as `labels=app=shop&labels=tier!=x`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from wigwag.errors import UsageError
from wigwag.kube.kinds import CONFIG_MAP, FEATURE_FLAG
from wigwag.kube.watch.spec import KubeWatch
from wigwag.sources.kubernetes.names import CONFIG, FLAGS

if TYPE_CHECKING:
    from wigwag.kube.kinds import Kind

_FORMS = {
    FLAGS: f"write {FLAGS}NAMESPACE/NAME, or {FLAGS}NAMESPACE?labels=SELECTOR for several",
    CONFIG: f"write {CONFIG}NAMESPACE/NAME, or {CONFIG}NAMESPACE/NAME/KEY for one key of it",
}
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_LABEL = rf"(?:{_WORD}/)?{_WORD}"
_REQUIREMENT = (
    rf"\s*(?:!?\s*{_LABEL}|{_LABEL}\s*(?:==?|!=)\s*(?:{_WORD})?"
    rf"|{_LABEL}\s+(?:not)?in\s*\(\s*(?:{_WORD})?(?:\s*,\s*(?:{_WORD})?)*\s*\))\s*"
)
_SELECTOR = re.compile(rf"(?:{_REQUIREMENT}(?:,{_REQUIREMENT})*)?")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
_LONGEST = 1024


class ObjectsAddress(NamedTuple):
    """Objects of one kind in one namespace."""

    kind: Kind
    namespace: str
    name: str = ""
    """Empty: those that `labels` choose."""
    key: str = ""
    """The key of a ConfigMap; empty: all of them."""
    labels: str = ""

    @property
    def several(self) -> bool:
        """Whether it may hold more than one document."""
        return not self.name or (self.kind == CONFIG_MAP and not self.key)

    def watch(self) -> KubeWatch:
        """Return the watch of these objects."""
        return KubeWatch(self.kind, self.namespace, self.name, self.labels)

    def __str__(self) -> str:
        what = "ConfigMap" if self.kind == CONFIG_MAP else "FeatureFlag"
        if self.name:
            return f"{what} {self.namespace}/{self.name}"
        return f"{what} in {self.namespace}" + (f" with the labels {self.labels}" if self.labels else "")


def read_address(name: str, provider: str = "kubernetes") -> ObjectsAddress:
    """Parse the name of a source: of FeatureFlags, or with the provider `configmap`. The prefix may be left out.

    >>> read_address("team-a/checkout").watch().selectors()
    (('fieldSelector', 'metadata.name=checkout'),)
    >>> print(read_address("core.openfeature.dev/team-a?labels=app=shop,tier!=x"))
    FeatureFlag in team-a with the labels app=shop,tier!=x
    >>> read_address("configmap/team-a/flags/shop.yaml", "configmap").key
    'shop.yaml'
    """
    prefix = CONFIG if provider == "configmap" else FLAGS
    path, mark, query = name.removeprefix(prefix).partition("?")
    parts = path.split("/")
    try:
        address = _config_map(parts, query) if prefix == CONFIG else _feature_flags(parts, query if mark else None)
        address.watch()  # which checks the names
    except UsageError as error:
        raise UsageError(f"{error}; {_FORMS[prefix]}") from None
    return address


def _feature_flags(parts: list[str], query: str | None) -> ObjectsAddress:
    if query is None:
        if len(parts) != 2 or not all(parts):
            raise UsageError("this names no FeatureFlag")
        return ObjectsAddress(FEATURE_FLAG, *parts)
    options = [each.partition("=") for each in query.split("&")]
    strange = next((name for name, _, _ in options if name != "labels"), None)
    if strange is not None or len(parts) != 1 or not parts[0]:
        raise UsageError(f"this chooses no FeatureFlags{f' by the option {strange[:40]!r}' if strange else ''}")
    labels = ",".join(unquote(text) for _, _, text in options)
    if len(labels) > _LONGEST or not _SELECTOR.fullmatch(labels):
        raise UsageError("the label selector is malformed; write it as for `kubectl get -l`")
    return ObjectsAddress(FEATURE_FLAG, parts[0], labels=labels)


def _config_map(parts: list[str], query: str) -> ObjectsAddress:
    if query or len(parts) not in (2, 3) or not all(parts):
        raise UsageError("this names no ConfigMap")
    if len(parts) == 3 and not _KEY.fullmatch(parts[2]):
        raise UsageError(f"{parts[2][:40]!r} is no key of a ConfigMap")
    return ObjectsAddress(CONFIG_MAP, *parts)
