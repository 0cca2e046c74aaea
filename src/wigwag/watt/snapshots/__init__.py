"""Snapshots: `snapshot` models one, `history` numbers and keeps them, `projection` selects parts, `formats` writes."""
