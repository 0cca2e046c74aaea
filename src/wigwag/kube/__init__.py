"""Kubernetes: how its API server is found, asked and followed.

Connection and credentials, single requests, and the reflector, which lists and then follows. Nothing here knows what
the objects mean: sources, the proxy and the operator do.
"""
