"""The agent: a drop-in for flagd. Sources in, evaluations, events and flag documents out.

May live here: the agent's options, what its sources are, how snapshots are assembled, and the one wiring function.
May not: protocols (see `serve`, `wire`) or the meaning of flags (see `flags`).
"""
