"""The options of `wigwag rollout`: which FeatureFlag, and how long to wait for what."""

from __future__ import annotations

from dataclasses import dataclass

from wigwag.options import duration, option, positional


@dataclass(frozen=True, kw_only=True)
class RolloutOptions:
    """The options of `wigwag rollout`."""

    action: str = positional("status", "say how far the flags have come", choices=("status",))
    target: str = positional("featureflag/NAME", "the FeatureFlag")
    namespace: str = option("", "its namespace; that of the kubeconfig by default", short="-n", metavar="NAME")
    timeout: float = option(0.0, "how long to wait; 0: for ever", metavar="DURATION", convert=duration)
    watch: bool = option(True, "wait; with --watch=false, say how far it is and exit")
    digest: str = option(
        "", "wait for the flags with this digest (or how it begins), and fail if they are replaced", metavar="DIGEST"
    )
    ignore_unknown: bool = option(False, "do not wait for agents that do not say which flags they have")
    output: str = option(
        "text", "output format: a line, or a JSON object, for each change", short="-o", choices=("text", "json")
    )
    kubeconfig: str = option("", "the kubeconfig; KUBECONFIG or ~/.kube/config by default", metavar="PATH")
    context: str = option("", "the context of the kubeconfig", metavar="NAME")
