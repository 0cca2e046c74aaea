"""Values that are written as JSON: dicts and lists, dataclasses, TypedDicts, msgspec Structs, and pydantic models.

Each text makes a new value; nothing of the old one stays. Unknown members are ignored, as in the original, unless the
flag (`unknown_fields="error"`) or the type itself forbids them (`forbid_unknown_fields`, `extra="forbid"`). A text that
is not JSON is taken as it is where the type allows a string: UUIDs, dates, times and choices of texts are written with
or without quotes. pydantic is never imported here: a model brings its own parser.

The hard cases are members. msgspec ignores a member that the type does not have, so with `unknown_fields="error"` the
data is compared with the type, at all levels. And for a member of a dataclass that is missing, msgspec leaves the
default in the class, where encoding the instance does not see it; so it is set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeGuard, TypeVar, get_args, get_origin, is_typeddict

import msgspec
from msgspec import inspect

from wigwag.dflag.naming import did_you_mean
from wigwag.dflag.values.frozen import freeze
from wigwag.dflag.values.kinds import ValueKind, exactly, wrong
from wigwag.dflag.values.numerals import shown
from wigwag.errors import UsageError

T = TypeVar("T")
Unknown: TypeAlias = Literal["ignore", "error"]
_FAULTS = 3
_SCALARS = (
    inspect.CustomType,
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.BytesType,
)
_STRINGS: dict[Any, tuple[str, str]] = {
    inspect.UUIDType: ("uuid", "a UUID"),
    inspect.DateTimeType: ("datetime", "a time such as 2026-01-31T12:30:00Z"),
    inspect.DateType: ("date", "a date such as 2026-01-31"),
    inspect.TimeType: ("time", "a time of the day such as 12:30:00"),
}
_OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_ROWS = (inspect.StructType, inspect.NamedTupleType)


def json_kind(type: Any = None, *, unknown_fields: Unknown = "ignore") -> ValueKind[Any]:
    """Return the kind of JSON values: of a type, or of any dict or list.

    >>> json_kind().parse('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> json_kind().parse('3')
    Traceback (most recent call last):
    ValueError: expected a JSON object or array, got int
    """
    if unknown_fields not in ("ignore", "error"):
        raise UsageError(f"unknown_fields is 'ignore' or 'error', not {unknown_fields!r}")
    strict, is_model = unknown_fields == "error", hasattr(type, "model_validate_json")
    if strict and (type is None or is_model):
        raise UsageError(
            "unknown_fields='error' is for dataclasses, TypedDicts and Structs: dicts and lists know no fields, and a "
            "pydantic model says so itself, with extra='forbid'"
        )
    if type is None:
        return ValueKind("json", _parse_plain, _encode, _take_plain, is_json=True)
    return _model_kind(type) if is_model else worded_kind(type) or _typed_kind(type, strict)


def _parse_plain(text: str) -> Any:
    value = _decoded(msgspec.json.decode, text)
    if not isinstance(value, dict | list):
        raise ValueError(f"expected a JSON object or array, got {value.__class__.__name__}")  # noqa: TRY004
    return freeze(value)


def _take_plain(value: Any) -> Any:
    """Return a copy, with only what JSON can represent."""
    if not isinstance(value, dict | list | tuple):
        raise wrong(value, "a dict or a list")
    try:
        plain = msgspec.to_builtins(value)
        _encode(plain)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise TypeError(f"not JSON: {error}") from None
    return freeze(plain, tuples=False)


def _encode(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _typed_kind(type: Any, strict: bool) -> ValueKind[Any]:
    decoder, info = _decoder(type), inspect.type_info(type)
    name = getattr(type, "__name__", str(type))
    plain = is_typeddict(type) or get_origin(type) is not None

    def parse(text: str) -> Any:
        value = _completed(_decoded_or_bare(decoder, text, type))
        if strict and not isinstance(value, str):
            _refuse_unknown(info, msgspec.json.decode(text))
        return freeze(value) if plain else value

    def take(value: Any) -> Any:
        try:
            frozen = freeze(msgspec.convert(value, type))
        except msgspec.ValidationError as error:
            raise TypeError(f"expected {name}: {error}") from None
        if strict:
            _refuse_unknown(info, msgspec.to_builtins(value))
        return frozen

    return ValueKind(name, parse, _encode, take if plain else exactly(type), is_json=True)


def _refuse_unknown(info: inspect.Type, data: Any) -> None:
    unknown = list(islice(_unknown_members(info, data), _FAULTS))
    if unknown:
        raise ValueError(f"not the JSON that is wanted: {'; '.join(unknown)}")


def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type; raise for a scalar, and for a type that msgspec does not know."""
    try:
        if not isinstance(inspect.type_info(type), _SCALARS):
            return msgspec.json.Decoder(type)
    except TypeError:
        pass
    raise TypeError(
        f"{type!r} cannot be read from JSON: use a dataclass, a TypedDict, a msgspec Struct, a pydantic model, or "
        "plain dicts and lists"
    )


def _decoded(decode: Callable[[str], Any], text: str) -> Any:
    try:
        return decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(f"not the JSON that is wanted: {error}") from None


def _decoded_or_bare(decoder: msgspec.json.Decoder[Any], text: str, type: Any) -> Any:
    """Decode JSON; if that fails, convert the text itself, if the type allows it."""
    try:
        return _decoded(decoder.decode, text)
    except ValueError:
        try:
            return msgspec.convert(text, type)
        except msgspec.ValidationError:
            pass
        raise


def _model_kind(model: Any) -> ValueKind[Any]:
    def parse(text: str) -> Any:
        try:
            return model.model_validate_json(text)
        except ValueError as error:
            raise ValueError(_summary(error)) from None

    return ValueKind(model.__name__, parse, lambda value: str(value.model_dump_json()), exactly(model), is_json=True)


def _summary(error: ValueError) -> str:
    """Return the places and reasons, without the input that pydantic would show."""
    faults = error.errors() if hasattr(error, "errors") else []
    reasons = [f"$.{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:_FAULTS]]
    more = f" and {len(faults) - _FAULTS} more" if len(faults) > _FAULTS else ""
    return f"not the JSON that is wanted: {'; '.join(reasons)}{more}" if reasons else "not the JSON that is wanted"


def worded_kind(type: Any) -> ValueKind[Any] | None:
    """Return the kind of a type that JSON has as a string: choices of texts, UUIDs, dates, times. None: it is another.

    >>> from typing import Literal
    >>> from uuid import UUID
    >>> worded_kind(Literal["red", "blue"]).parse("red"), worded_kind(UUID).parse("0" * 32)
    ('red', UUID('00000000-0000-0000-0000-000000000000'))
    >>> worded_kind(Literal["red", "blue"]).parse("green")
    Traceback (most recent call last):
    ValueError: 'green' is not one of red, blue
    """
    try:
        info = inspect.type_info(type)
    except TypeError:
        return None
    if isinstance(info, inspect.LiteralType):
        name = f"one of {', '.join(map(str, get_args(type)))}"  # in the order of the definition
        return _worded(type, name, name, choice=True) if all(isinstance(each, str) for each in info.values) else None
    names = _STRINGS.get(info.__class__)
    return None if names is None else _worded(type, *names, choice=False)


def _worded(type: Any, name: str, wanted: str, *, choice: bool) -> ValueKind[Any]:
    def parse(text: str) -> Any:
        try:
            return msgspec.convert(text, type)
        except msgspec.ValidationError:
            pass
        try:
            return msgspec.json.decode(text, type=type)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            raise ValueError(f"{shown(text)} is not {wanted}") from None

    def take(value: Any) -> Any:
        if isinstance(value, str) and not choice:
            raise wrong(value, name)
        try:
            return msgspec.convert(value, type)
        except msgspec.ValidationError:
            pass
        if choice and isinstance(value, str):
            raise ValueError(f"{shown(value)} is not {wanted}")
        raise wrong(value, name)

    return ValueKind(name, parse, lambda value: str(msgspec.to_builtins(value)), take)


def _unknown_members(info: inspect.Type, data: Any, path: str = "$") -> Iterator[str]:
    """Yield the members of JSON data that a type does not have.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Retry:
    ...     attempts: int = 3
    >>> list(_unknown_members(inspect.type_info(list[Retry]), [{"attempts": 1}, {"atempts": 2}]))
    ["$[1].atempts is unknown; did you mean 'attempts'?"]
    """
    for part in info.types if isinstance(info, inspect.UnionType) else (info,):
        if isinstance(data, dict) and _is_meant(part, data):
            yield from _in_object(part, data, path)
        elif isinstance(data, list):
            for number, (each, item) in enumerate(zip(_item_types(part, len(data)), data, strict=False)):
                yield from _unknown_members(each, item, f"{path}[{number}]")


def _is_meant(info: inspect.Type, data: dict[str, Any]) -> bool:
    """Tell whether an object is of a type; the tag tells Structs apart."""
    if not isinstance(info, inspect.StructType) or info.tag_field is None:
        return True
    return bool(data.get(info.tag_field, info.tag) == info.tag)


def _in_object(info: inspect.Type, data: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(info, inspect.DictType):
        for name, value in data.items():
            yield from _unknown_members(info.value_type, value, f"{path}.{name}")
    elif isinstance(info, _OBJECTS):
        known = {field.encode_name: field.type for field in info.fields}
        tag = getattr(info, "tag_field", None)
        for name, value in data.items():
            if name in known:
                yield from _unknown_members(known[name], value, f"{path}.{name}")
            elif name != tag:
                yield f"{path}.{name} is unknown{did_you_mean(name, known)}"


def _item_types(info: inspect.Type, count: int) -> list[inspect.Type]:
    if isinstance(info, inspect.CollectionType):
        return [info.item_type] * count
    if isinstance(info, inspect.TupleType):
        return [*info.item_types]
    return [field.type for field in info.fields] if isinstance(info, _ROWS) else []


def _completed(value: Any) -> Any:
    """Set the members of dataclasses that were left to the class, and return the value."""
    if _is_record(value):
        for field in dataclasses.fields(value):
            if hasattr(value, "__dict__") and field.name not in value.__dict__ and hasattr(value, field.name):
                object.__setattr__(value, field.name, getattr(value, field.name))
    for part in _parts(value):
        _completed(part)
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
