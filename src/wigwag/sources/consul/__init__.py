"""Consul as a source: `keys` (flags) and `service` (health), both by blocking queries (`query`).

`access` knows the address, the credentials and what refusals mean. Nothing here writes to Consul.
"""
