"""Kubernetes as a source: FeatureFlags and ConfigMaps, followed by the watches of `wigwag.kube`.

What an address names is in `place`, what objects come to in `objects`. How watching is done, and what happens when it
fails, is not known here.
"""
