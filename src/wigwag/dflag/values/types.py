"""Which kind of value a Python type is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from wigwag.dflag.values.containers import list_kind, mapping_kind, set_kind
from wigwag.dflag.values.kinds import BOOL, BYTES, DECIMAL, DURATION, FLOAT, INT, PATH, STR, ValueKind, enum_kind

_PLAIN: dict[Any, ValueKind[Any]] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: STR,
    timedelta: DURATION,
    bytes: BYTES,
    Path: PATH,
    Decimal: DECIMAL,
}


def kind_of(wanted: Any) -> ValueKind[Any]:
    """Return the kind of a type.

    >>> kind_of(int).name, kind_of(list[int]).name, kind_of(frozenset[str]).name, kind_of(dict[str, float]).name
    ('int', 'list of int', 'set of str', 'map to float')
    >>> kind_of(dict).name, kind_of(dict[str, list[int]]).name
    ('json', 'dict')
    """
    if isinstance(wanted, ValueKind):
        return wanted
    if wanted in _PLAIN:
        return _PLAIN[wanted]
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return enum_kind(wanted)
    generic = _generic(wanted)
    if generic is not None:
        return generic
    from wigwag.dflag.values.structured import json_kind  # needs msgspec, which plain kinds do without

    return json_kind(None if wanted in (dict, list, Any) else wanted)


def _generic(wanted: Any) -> ValueKind[Any] | None:
    """Return the kind of a list, set or map of plain items; anything deeper is JSON."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (list, Sequence) and _simple(parts[0]):
        return list_kind(kind_of(parts[0]))
    if origin in (set, frozenset, AbstractSet) and _simple(parts[0]):
        return set_kind(kind_of(parts[0]))
    if origin in (dict, Mapping) and parts[0] is str and _simple(parts[1]):
        return mapping_kind(kind_of(parts[1]))
    return None


def _simple(wanted: Any) -> bool:
    if wanted in _PLAIN or (isinstance(wanted, type) and issubclass(wanted, Enum)):
        return True
    from wigwag.dflag.values.structured import worded_kind

    return worded_kind(wanted) is not None
