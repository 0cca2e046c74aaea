"""Kubernetes: a client of the API server, and watches that do not lose events. Knows no flags.

    config/   where the API server is, and the credentials for it
    kinds     `Kind`: group, version, plural; the paths of objects
    client    `Kube`: one request at a time (get, list, create, patch, apply, …)
    watch/    `watch_kube`: list, then watch, for ever; yields whole maps of objects
    hub       shares the client and equal watches within a process
    kindtable which kind a name means, as in `kubectl get`; pure
    discovery the kinds of a server, shared like the watches
    named     `watch_named`: a kind by its name, also one that is installed later
    errors    `ApiError`, with the server's own `Status`
    control/  the parts of a controller: work queue, leader election, server-side apply, Events

What objects mean belongs to the callers: sources, the proxy, the operator.
"""
