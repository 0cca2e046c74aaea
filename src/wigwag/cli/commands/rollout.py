"""`wigwag rollout status`: wait until all agents have the flags of a FeatureFlag, as `kubectl rollout status` does."""

from __future__ import annotations

from wigwag.operator.propagation.options import RolloutOptions

Options = RolloutOptions

HELP = "wait until all agents have the flags of a FeatureFlag"
DESCRIPTION = """\
Wait until all agents that use a FeatureFlag have its newest flags, and say how far it is meanwhile. The operator writes
that into the status of the FeatureFlag; `kubectl get featureflags` shows it, too.

  kubectl apply -f checkout.yaml && wigwag rollout status featureflag/checkout --timeout 5m
  wigwag rollout status ff/checkout -n shop --watch=false        say it once, and do not wait

Exits with 0 when all agents have the flags (with --watch=false: always), 1 if they do not in time, if the FeatureFlag
does not exist or cannot be read, 2 on wrong options.
"""


def run(options: RolloutOptions) -> int:
    """Wait, and return the exit code."""
    from wigwag.cli.rollouts import flag_name, wait_for_agents  # what talks to Kubernetes is imported where it is used

    return wait_for_agents(flag_name(options.target), options)
