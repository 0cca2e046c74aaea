"""Prefixes of addresses, and the name of a kind. Without imports: it is loaded at every start."""

from __future__ import annotations

FLAGS, CONFIG = "core.openfeature.dev/", "configmap/"
CRITICAL = "openfeature.dev/critical"
"""The annotation of a FeatureFlag that marks all its flags as critical, if it is `true`."""
SELF = "kubernetes-self"
"""The kind of `core.openfeature.dev/` without a name: the sources in the annotations of the agent's own pod."""
