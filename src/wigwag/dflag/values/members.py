"""The members of values from JSON: those that are unknown, and those that are missing.

msgspec ignores a member that the type does not have, unless the type is a Struct that forbids it. For a flag with
`unknown_fields="error"`, the data is compared with the type, at all levels. And for a member of a dataclass that is
missing, msgspec leaves the default in the class, where encoding the instance does not see it; so it is set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeGuard

from msgspec import inspect

from wigwag.dflag.naming import did_you_mean

_OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_ROWS = (inspect.StructType, inspect.NamedTupleType)


def unknown_members(info: inspect.Type, data: Any, path: str = "$") -> Iterator[str]:
    """Yield the members of JSON data that a type does not have.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Retry:
    ...     attempts: int = 3
    >>> list(unknown_members(inspect.type_info(list[Retry]), [{"attempts": 1}, {"atempts": 2}]))
    ["$[1].atempts is unknown; did you mean 'attempts'?"]
    """
    for part in info.types if isinstance(info, inspect.UnionType) else (info,):
        if isinstance(data, dict) and _is_meant(part, data):
            yield from _in_object(part, data, path)
        elif isinstance(data, list):
            for number, (each, item) in enumerate(zip(_item_types(part, len(data)), data, strict=False)):
                yield from unknown_members(each, item, f"{path}[{number}]")


def _is_meant(info: inspect.Type, data: dict[str, Any]) -> bool:
    """Tell whether an object is of a type; the tag tells Structs apart."""
    tag = info.tag_field if isinstance(info, inspect.StructType) else None
    return tag is None or not isinstance(info, inspect.StructType) or data.get(tag, info.tag) == info.tag


def _in_object(info: inspect.Type, data: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(info, inspect.DictType):
        for name, value in data.items():
            yield from unknown_members(info.value_type, value, f"{path}.{name}")
    elif isinstance(info, _OBJECTS):
        known = {field.encode_name: field.type for field in info.fields}
        tag = getattr(info, "tag_field", None)
        for name, value in data.items():
            if name in known:
                yield from unknown_members(known[name], value, f"{path}.{name}")
            elif name != tag:
                yield f"{path}.{name} is unknown{did_you_mean(name, known)}"


def _item_types(info: inspect.Type, count: int) -> list[inspect.Type]:
    if isinstance(info, inspect.CollectionType):
        return [info.item_type] * count
    if isinstance(info, inspect.TupleType):
        return [*info.item_types]
    return [field.type for field in info.fields] if isinstance(info, _ROWS) else []


def completed(value: Any) -> Any:
    """Set the members of dataclasses that were left to the class, and return the value."""
    if _is_record(value):
        for field in dataclasses.fields(value):
            if hasattr(value, "__dict__") and field.name not in value.__dict__ and hasattr(value, field.name):
                object.__setattr__(value, field.name, getattr(value, field.name))
    for part in _parts(value):
        completed(part)
    return value


def _is_record(value: Any) -> TypeGuard[Any]:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif _is_record(value):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))
    else:
        yield from (getattr(value, name) for name in getattr(value, "__struct_fields__", ()))
