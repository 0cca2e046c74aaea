"""Which namespaces and pods an operator is for, where several operators run in one cluster.

A *revision* is the name of an operator. The label `openfeature.dev/revision` of a namespace says which revision it
belongs to; a namespace without the label belongs to `default`, except for pods that have the label themselves. An
operator without a revision (`--revision` is not given) is alone, and everything is its own.

| what | whose it is |
|---|---|
| a pod, its agent and the image of that | of the revision that the namespace names; if it names none, the pod |
| ConfigMaps for pods, Roles for their accounts | of the revision of the pods' namespace |
| the status of an object, rollouts because it has changed | of the revision of the object's namespace |
| the proxy, the certificate, the Lease | of each operator, in its own namespace |

So each object has one writer, and a namespace moves from one operator to another by its label. The hard case is the
move itself: for a moment both or none may think that a namespace is theirs. Both write the same ConfigMaps and Roles,
and neither deletes what it does not own; so the worst is that something is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wigwag.operator.names import REVISION

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = "default"
"""The revision of namespaces without a label."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the operator of one revision is for; an empty name is for everything."""

    revision: str = ""

    def of_namespace(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a namespace with these labels is this operator's.

        >>> canary, default, alone = Ownership("canary"), Ownership(DEFAULT), Ownership()
        >>> [each.of_namespace({REVISION: "canary"}) for each in (canary, default, alone)]
        [True, False, True]
        >>> [each.of_namespace({}) for each in (canary, default, alone)]
        [False, True, True]
        """
        return not self.revision or labels.get(REVISION, DEFAULT) == self.revision

    def of_pod(self, labels: Mapping[str, str], revision: str) -> bool:
        """Tell whether a pod is this operator's; `labels` are those of its namespace, `revision` is its own label.

        >>> Ownership("canary").of_pod({}, "canary"), Ownership("canary").of_pod({REVISION: "default"}, "canary")
        (True, False)
        """
        return not self.revision or (labels.get(REVISION) or revision or DEFAULT) == self.revision

    def name(self, text: str) -> str:
        """Return the name of an object that each operator has its own of.

        >>> Ownership("canary").name("lease"), Ownership("default").name("lease"), Ownership().name("lease")
        ('lease-canary', 'lease', 'lease')
        """
        return text if self.revision in ("", DEFAULT) else f"{text}-{self.revision}"
