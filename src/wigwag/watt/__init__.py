"""watt: watch Kubernetes, Consul, directories and URIs, and act on one consistent picture of all of them.

`specs` says what can be watched, `watchers` watches it, `snapshot` assembles it, `hooks` and `api` hand it on. Nothing
here knows about flags.
"""
