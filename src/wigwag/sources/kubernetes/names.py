"""Prefixes of addresses, and the name of a kind. Without imports: it is loaded at every start."""

from __future__ import annotations

FLAGS, CONFIG = "core.openfeature.dev/", "configmap/"
SELF = "kubernetes-self"
"""The kind of `core.openfeature.dev/` without a name: the sources in the annotations of the agent's own pod."""
