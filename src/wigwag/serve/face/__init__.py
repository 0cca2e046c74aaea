"""The runtime that every long-running command (a face: agent, proxy) shares.

`process` runs it: log, limits, event loop, signals, exit code. `lifecycle` opens, announces and drains its ports.
`ports` describes one port; `capacity` divides the open files among them.
"""
