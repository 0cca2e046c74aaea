"""Values with a structure, written as JSON: plain dicts and lists, dataclasses, TypedDicts, msgspec Structs, and
pydantic models.

Each text makes a fresh value; nothing of the old one shines through. Unknown members are ignored, as in the original,
unless the flag (`unknown_fields="error"`) or the type itself forbids them (`forbid_unknown_fields`, `extra="forbid"`).
A text that is no JSON is taken as it is where the type can be a text. pydantic is never imported here: a model brings
what is needed with it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar, get_origin, is_typeddict

import msgspec
from msgspec import inspect

from wigwag.dflag.values.frozen import freeze
from wigwag.dflag.values.kinds import ValueKind, wrong
from wigwag.dflag.values.members import completed, strangers
from wigwag.dflag.values.worded import worded_kind
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
    return _container(_decoded(lambda: msgspec.json.decode(text)))


def _container(value: Any) -> Any:
    if not isinstance(value, dict | list):
        raise ValueError(f"expected a JSON object or array, got {value.__class__.__name__}")  # noqa: TRY004
    return freeze(value)


def _take_plain(value: Any) -> Any:
    """Take a copy, as JSON would carry it."""
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
        value = completed(_decoded_or_bare(decoder, text, type))
        if strict and not isinstance(value, str):
            _refuse_strangers(info, msgspec.json.decode(text))
        return freeze(value) if plain else value

    def take(value: Any) -> Any:
        if not plain:
            return value if isinstance(value, type) else _refuse(value, name)
        try:
            found = freeze(msgspec.convert(value, type))
        except msgspec.ValidationError as error:
            raise TypeError(f"expected {name}: {error}") from None
        if strict:
            _refuse_strangers(info, msgspec.to_builtins(value))
        return found

    return ValueKind(name, parse, _encode, take, is_json=True)


def _refuse_strangers(info: inspect.Type, data: Any) -> None:
    found = list(islice(strangers(info, data), _FAULTS))
    if found:
        raise ValueError(f"not the JSON that is wanted: {'; '.join(found)}")


def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    """Return what reads a type; refuse one that is no structure, and one that msgspec would ask us about."""
    try:
        if not isinstance(inspect.type_info(type), _SCALARS):
            return msgspec.json.Decoder(type)
    except TypeError:
        pass
    raise TypeError(
        f"{type!r} cannot be read from JSON: use a dataclass, a TypedDict, a msgspec Struct, a pydantic model, or "
        "plain dicts and lists"
    )


def _refuse(value: object, name: str) -> Any:
    raise wrong(value, name)


def _decoded(decode: Callable[[], T]) -> T:
    try:
        return decode()
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(f"not the JSON that is wanted: {error}") from None


def _decoded_or_bare(decoder: msgspec.json.Decoder[Any], text: str, type: Any) -> Any:
    """Read JSON; or else take the text as it is, if that can be of the type."""
    try:
        return _decoded(lambda: decoder.decode(text))
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

    return ValueKind(model.__name__, parse, lambda value: str(value.model_dump_json()), _instance(model), is_json=True)


def _instance(model: Any) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, model) else _refuse(value, model.__name__)


def _summary(error: ValueError) -> str:
    """Say where and why, without the input that pydantic would show."""
    faults = error.errors() if hasattr(error, "errors") else []
    told = [f"$.{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:_FAULTS]]
    more = f" and {len(faults) - _FAULTS} more" if len(faults) > _FAULTS else ""
    return f"not the JSON that is wanted: {'; '.join(told)}{more}" if told else "not the JSON that is wanted"
