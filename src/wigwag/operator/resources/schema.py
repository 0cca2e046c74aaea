r"""Structural schemas for custom resource definitions, rendered from the records that parse the objects.

| annotation of a field | in the schema |
|---|---|
| a record | its fields, `required` if they have no default; unknown members are dropped by the API server |
| `dict[str, Any]`, `Any` | unknown members are kept |
| `X \| None` | `X`; the member may be left out, but not null |
| `int \| str` | a number or text, as Kubernetes writes quantities |
| `Meta(...)`, `declared(...)` | limits, description, default, CEL rules |

The default of a field is what a record has when the member is missing. The default in a schema is what the API server
adds to an object. They differ on purpose: a merge has to see whether a member is there.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Meta, inspect

Json: TypeAlias = Any
OPEN = "x-kubernetes-preserve-unknown-fields"
_MISSING: Any = object()
_LIMITS = {"pattern": "pattern", "ge": "minimum", "le": "maximum", "min_length": "minLength", "max_length": "maxLength"}
_PLAIN = {inspect.StrType: "string", inspect.IntType: "integer", inspect.BoolType: "boolean"}


def declared(
    description: str = "", *, default: Json = _MISSING, rules: dict[str, str] | None = None, **extra: Json
) -> Meta:
    """Declare what a schema says about a field beside its type. `rules` maps CEL rules to their messages.

    >>> from typing import Annotated
    >>> schema_of(Annotated[int, declared("Of probes.", default=8014, format="int32")])
    {'description': 'Of probes.', 'type': 'integer', 'default': 8014, 'format': 'int32'}
    """
    members: dict[str, Json] = {"description": description} if description else {}
    if default is not _MISSING:
        members["default"] = default
    if rules:
        members["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in rules.items()]
    return Meta(extra_json_schema={**members, **extra})


def schema_of(type: Any) -> dict[str, Json]:
    """Return the schema of a type.

    >>> schema_of(dict[str, str])
    {'type': 'object', 'additionalProperties': {'type': 'string'}}
    >>> schema_of(dict[str, Any])
    {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
    """
    return _rendered(inspect.type_info(type))


def _rendered(type: inspect.Type) -> dict[str, Json]:
    match type:
        case inspect.Metadata():
            return _described(_rendered(type.type), type.extra_json_schema or {})
        case inspect.StructType():
            return _record(type)
        case inspect.UnionType():
            return _union([each for each in type.types if not isinstance(each, inspect.NoneType)])
        case inspect.ListType():
            limits = {"minItems": type.min_length, "maxItems": type.max_length}
            given = {name: limit for name, limit in limits.items() if limit is not None}
            return {"type": "array", **given, "items": _rendered(type.item_type)}
        case inspect.DictType():
            free = isinstance(type.value_type, inspect.AnyType)
            return {
                "type": "object",
                **({OPEN: True} if free else {"additionalProperties": _rendered(type.value_type)}),
            }
        case inspect.LiteralType():
            return {"type": "string", "enum": list(type.values)}
        case inspect.AnyType():
            return {OPEN: True}
        case _:
            return _scalar(type)


def _described(schema: dict[str, Json], extra: dict[str, Json]) -> dict[str, Json]:
    """Add what `declared` says; the description comes first."""
    both = schema | extra
    return {name: both[name] for name in ("description", *both) if name in both}


def _scalar(type: inspect.Type) -> dict[str, Json]:
    limits = {name: getattr(type, own) for own, name in _LIMITS.items() if getattr(type, own, None) is not None}
    return {"type": _PLAIN[type.__class__], **limits}


def _union(types: list[inspect.Type]) -> dict[str, Json]:
    if len(types) == 1:
        return _rendered(types[0])
    return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def _record(type: inspect.StructType) -> dict[str, Json]:
    required = [field.encode_name for field in type.fields if field.required]
    properties = {field.encode_name: _rendered(field.type) for field in type.fields}
    description = (type.cls.__doc__ or "").partition("\n")[0]
    return {
        "description": description,
        "type": "object",
        **({"required": required} if required else {}),
        "properties": properties,
    }
