"""Consul as a source: `keys`, `service` (health) and `endpoints`, all by blocking queries (`query`).

`access` knows the address, the credentials and what refusals mean; `hub` shares the connections of a process; both
`service` and `endpoints` are made from `instances`. Nothing here writes to Consul.
"""
