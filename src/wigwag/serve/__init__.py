"""Serving: the services (evaluation, sync, OFREP, management) on top of `wire`, access control, and in `face` what
every long-running command shares: ports, readiness, draining, signals.

May live here: what a request means and how an answer is written. May not: decisions about flags, sockets, sources.
"""
