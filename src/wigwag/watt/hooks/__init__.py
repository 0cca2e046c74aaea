"""Hooks: commands, URLs and Python functions that watt calls. `hook` describes one, `call` and `command` call it.

`derive` runs watch hooks, which say what else to watch; `notify` runs notify hooks, which learn of new snapshots.
"""
