"""Protocol adapters: evaluation (v1, v2, schema.v1), sync, OFREP and management, on top of `wire`.

May live here: what a request means and how an answer is written. May not: decisions about flags, sockets, sources.
"""
