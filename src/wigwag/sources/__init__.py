"""Where flags come from: one module per kind of source (`disk.file`, `remote.http`, …); kinds never import each other.

A source is a frozen spec and an async generator that yields the whole current value when it changes. It yields
`UNCHANGED` when the last value is confirmed, `Unavailable` while it has none but goes on trying, and raises if it has
to be restarted. Only polled sources and watches retry by themselves: they alone remember the last response. `kinds` is
the registry; `merge` makes one document of many.
"""
