"""`wigwag operator`: agents beside pods, by annotations; with the command line of open-feature-operator."""

from __future__ import annotations

import os

from wigwag.cli.main import without_gc
from wigwag.operator.settings import OperatorOptions, read_settings

Options = OperatorOptions

HELP = "run the Kubernetes operator: a drop-in for open-feature-operator"
DESCRIPTION = """\
Put an agent beside each pod that asks for flags by an annotation, check FeatureFlags when they are written, and keep
what FeatureFlag, FeatureFlagSource, InProcessConfiguration and Flagd objects ask for.

  kubectl apply --server-side -k deploy/kustomize/default   install it; see docs/guides/operator.md
  wigwag operator --leader-elect                            what its Deployment runs, with several replicas
  KUBECONFIG=test.yaml wigwag operator                      beside a test cluster, whose API server can reach us

What it gives agents and the proxy comes from the environment: SIDECAR_…, IN_PROCESS_…, FLAGD_…, FLAGD_PROXY_…,
POD_NAMESPACE, FLAGS_VALIDATION_ENABLED, with the names and defaults of the original. Options may be variables, too.
"""
ENVIRONMENT = "OPERATOR_"
GO_FLAGS = True
CONFIG = STRICT_CONFIG = True
"""A misspelt `leader-elect` would be two leaders, so an unknown key is an error."""


def run(options: OperatorOptions) -> int:
    """Run the operator until a signal stops it."""
    settings = read_settings(os.environ, options)
    with without_gc():
        from wigwag.operator.run import run_operator  # the server is imported only where it is started

    return run_operator(settings)
