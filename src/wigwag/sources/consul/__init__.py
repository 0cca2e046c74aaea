"""Consul as a source: `keys` (flags) and `service` (facts), both by blocking queries.

`query` decides what to ask next, purely; `follow` asks; `access` knows where, as whom, and what refusals mean; `place`
reads addresses and Consul's own variables. Nothing here writes to Consul.
"""
