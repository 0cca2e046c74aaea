"""The kinds of sources that come with wigwag: one module per kind, each with one record (`SourceKind`) that says all
about it. Modules here are imported at start, so they are light: clients and stores are imported by the functions that
use them. Kinds do not import each other. The list is `BUILT_IN` in `sources.kinds`.
"""
