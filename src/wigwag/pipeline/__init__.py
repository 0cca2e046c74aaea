"""The one watch pipeline: spec, watch, parse, aggregate, limit, publish, and `run`, which joins them.

asyncio only. Nothing here knows what a flag is, or opens a file or a connection: watchers come from outside, and time
and chance are arguments (`clock`, `backoff`).
"""
