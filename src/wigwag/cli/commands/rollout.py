"""`wigwag rollout status`: wait until all agents have the flags of a FeatureFlag, as `kubectl rollout status` does."""

from __future__ import annotations

from dataclasses import dataclass

from wigwag.options import duration, option, positional

HELP = "wait until all agents have the flags of a FeatureFlag"
DESCRIPTION = """\
Wait until all agents that use a FeatureFlag have its newest flags, and say how far it is meanwhile. The operator writes
that into the status of the FeatureFlag; `kubectl get featureflags` shows it, too.

  kubectl apply -f checkout.yaml && wigwag rollout status featureflag/checkout --timeout 5m
  wigwag rollout status ff/checkout -n shop --watch=false        say it once, and do not wait

Exits with 0 when all agents have the flags (with --watch=false: always), 1 if they do not in time, if the FeatureFlag
does not exist or cannot be read, 2 on wrong options.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
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


def run(options: Options) -> int:
    """Wait, and return the exit code."""
    from wigwag.cli.rollouts import flag_name, wait_for_agents  # what talks to Kubernetes is imported where it is used

    return wait_for_agents(flag_name(options.target), options)
