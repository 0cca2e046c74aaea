"""How addresses of objects begin, and what their kinds are called. Without imports: it is loaded at every start."""

from __future__ import annotations

FLAGS, CONFIG = "core.openfeature.dev/", "configmap/"
SELF = "kubernetes-self"
"""The kind of `core.openfeature.dev/` without a name: what the annotations of the agent's own pod name."""
