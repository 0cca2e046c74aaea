"""Which objects to watch: a frozen record. Equal records are the same watch, so a hub can share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.kube.kinds import Kind, Query

if TYPE_CHECKING:
    from collections.abc import Mapping


def label_selector(labels: Mapping[str, str]) -> str:
    """Return the selector of objects with all of these labels.

    >>> label_selector({"app": "shop", "tier": "web"})
    'app=shop,tier=web'
    """
    return ",".join(f"{name}={value}" for name, value in labels.items())


@dataclass(frozen=True, slots=True)
class KubeWatch:
    """Objects of a kind: in a namespace or in all, one by its name or all that selectors choose.

    One object is chosen by a field selector, so that a Role with `resourceNames` is enough to watch it, and it need not
    exist yet.

    >>> from wigwag.kube.kinds import FEATURE_FLAG
    >>> watch = KubeWatch(FEATURE_FLAG, "team-a", "checkout")
    >>> print(watch, watch.selectors())
    featureflags.core.openfeature.dev team-a/checkout (('fieldSelector', 'metadata.name=checkout'),)
    """

    kind: Kind
    namespace: str = ""
    """Empty: all namespaces."""
    name: str = ""
    """Empty: all names."""
    labels: str = ""
    """A label selector, as in `kubectl get -l`."""
    fields: str = ""
    """A field selector beside the name."""
    metadata_only: bool = False
    """Whether the server leaves out everything but names, labels, annotations and the like."""

    def __post_init__(self) -> None:
        self.kind.path(self.namespace, self.name)  # which checks both
        for selector in (self.labels, self.fields):
            if not selector.isprintable():
                raise UsageError(f"{self.kind}: a selector holds control characters; write it as for `kubectl get`")

    def __str__(self) -> str:
        place = f" {self.namespace or '*'}/{self.name or '*'}" if self.kind.namespaced else f" {self.name or '*'}"
        chosen = [text for text in (self.labels, self.fields) if text]
        return f"{self.kind}{place}" + (f" ({'; '.join(chosen)})" if chosen else "")

    @property
    def path(self) -> str:
        """The path of the list."""
        return self.kind.path(self.namespace)

    def selectors(self) -> Query:
        """Return the selectors as query parameters."""
        name = f"metadata.name={self.name}" if self.name else ""
        fields = ",".join(text for text in (name, self.fields) if text)
        selectors = (("labelSelector", self.labels), ("fieldSelector", fields))
        return tuple((key, text) for key, text in selectors if text)

    def rule(self) -> str:
        """Return the rule of a Role that allows this watch, for error messages.

        >>> from wigwag.kube.kinds import POD
        >>> KubeWatch(POD).rule()
        '{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}'
        """
        names = f"resourceNames: [{self.name}], " if self.name else ""
        group = self.kind.group or '""'
        return f"{{apiGroups: [{group}], resources: [{self.kind.plural}], {names}verbs: [get, list, watch]}}"
