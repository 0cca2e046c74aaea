"""watt: watch everything, act on one consistent picture.

May live here: watt's options, how snapshots are made of what is watched, hooks, outputs, and the one wiring function.
May not: watching itself (see `kube`, `sources`), gates and limiters (see `pipeline`), or protocols (see `serve`,
`wire`).
"""
