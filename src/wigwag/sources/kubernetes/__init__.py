"""Kubernetes as a source: FeatureFlags and ConfigMaps, by the watches of `wigwag.kube`.

`address` says which objects, `objects` makes a document of them. Watching and its failures are not known here.
"""
