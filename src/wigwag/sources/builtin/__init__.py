"""The kinds of sources that come with wigwag: one module per kind, each with one record (`SourceKind`).

Modules here are imported at start, so they are light: functions import the clients that they use. Kinds do not import
each other. The list is `BUILT_IN` in `sources.kinds`.
"""
