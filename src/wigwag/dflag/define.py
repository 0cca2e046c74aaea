"""Defining flags: one method for each kind of value, all with the same options.

The methods are named after the types, as in `flags.int("rate", 10)`, so in this module the types go by other names.
"""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

from wigwag.dflag.flag import DynFlag
from wigwag.dflag.values import kinds
from wigwag.dflag.values.containers import list_kind, mapping_kind, set_kind
from wigwag.dflag.values.duration import parse_duration
from wigwag.dflag.values.types import kind_of

if TYPE_CHECKING:
    from wigwag.dflag.values.structured import Unknown

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
E_co = TypeVar("E_co", covariant=True)
F = TypeVar("F", bound=Callable[..., object])
Bool: TypeAlias = bool
Int: TypeAlias = int
Float: TypeAlias = float
Str: TypeAlias = str
Bytes: TypeAlias = bytes


class EnumMember(Protocol[E_co]):
    """A member of an enumeration, seen as one of its class: for pyright, `Colour.RED` alone would be a type."""

    @property  # type: ignore[misc]
    def __class__(self) -> type[E_co]: ...  # type: ignore[override]


class FlagOptions(TypedDict, Generic[T], total=False):
    """What every way to define a flag takes."""

    dynamic: bool
    """Whether it may change while the program runs; True unless said otherwise."""
    aliases: Sequence[str]
    """More names for the same value."""
    validators: Sequence[Callable[[T], object]] | Callable[[T], object]
    """One or many. Each may refuse a value, by raising ValueError or returning False; the default must pass, too."""
    input_mutator: Callable[[str], str] | None
    """Changes a text before it is read; unless given it takes off white space, and None takes the text verbatim."""
    mutator: Callable[[T], T] | None
    """Changes a value before it is judged."""
    secret: bool
    """Whether its value must not be shown: in logs, errors, help, or on the page."""
    path_flag: str | None
    """The default of a static flag `<name>_path` that names a file to read the value from; see `load_files`."""


_OPTIONS = """
Options that all flags have:
    validators     a function of the value, or a list of them; one refuses it by raising ValueError or returning False
    dynamic        False: it changes only before start()
    aliases        more names for it
    secret         True: its value is shown nowhere
    input_mutator  changes a text before it is read (default: strips white space); None: take it verbatim
    mutator        changes a value before it is judged
    path_flag      a path: there is a flag <name>_path that names a file to read the value from
"""


def with_options(method: F) -> F:
    """Tell of the options in the help of a method; once, here, and not in each of them."""
    method.__doc__ = f"{cleandoc(method.__doc__ or '')}\n{_OPTIONS}"
    return method


class Definitions:
    """The ways to define a flag. Each takes a name, a default, a usage text and `FlagOptions`."""

    @abstractmethod
    def define(self, name: Str, kind: kinds.ValueKind[T], default: T, usage: Str, options: Any) -> DynFlag[T]:
        """Define a flag of any kind."""

    @with_options
    def flag(
        self, type: type[T], name: Str, default: T, usage: Str = "", **options: Unpack[FlagOptions[T]]
    ) -> DynFlag[T]:
        """Define a flag of a Python type: a plain one, a list, set or map of those, or one that JSON can hold."""
        return self.define(name, kind_of(type), default, usage, options)

    @with_options
    def bool(self, name: Str, default: Bool, usage: Str = "", **options: Unpack[FlagOptions[Bool]]) -> DynFlag[Bool]:
        """Define a flag that is true or false."""
        return self.define(name, kinds.BOOL, default, usage, options)

    @with_options
    def int(self, name: Str, default: Int, usage: Str = "", **options: Unpack[FlagOptions[Int]]) -> DynFlag[Int]:
        """Define a whole number of 64 bits."""
        return self.define(name, kinds.INT, default, usage, options)

    @with_options
    def float(
        self, name: Str, default: Float, usage: Str = "", **options: Unpack[FlagOptions[Float]]
    ) -> DynFlag[Float]:
        """Define a number."""
        return self.define(name, kinds.FLOAT, default, usage, options)

    @with_options
    def str(self, name: Str, default: Str, usage: Str = "", **options: Unpack[FlagOptions[Str]]) -> DynFlag[Str]:
        """Define a text."""
        return self.define(name, kinds.STR, default, usage, options)

    @with_options
    def duration(
        self, name: Str, default: timedelta | Str, usage: Str = "", **options: Unpack[FlagOptions[timedelta]]
    ) -> DynFlag[timedelta]:
        """Define a duration, written as `1h30m`; so may be its default."""
        value = parse_duration(default) if isinstance(default, Str) else default
        return self.define(name, kinds.DURATION, value, usage, options)

    @with_options
    def bytes(
        self, name: Str, default: Bytes, usage: Str = "", **options: Unpack[FlagOptions[Bytes]]
    ) -> DynFlag[Bytes]:
        """Define bytes: the content of a file as it is, or base64 where only text can be given."""
        return self.define(name, kinds.BYTES, default, usage, options)

    @with_options
    def path(
        self, name: Str, default: Path | Str, usage: Str = "", **options: Unpack[FlagOptions[Path]]
    ) -> DynFlag[Path]:
        """Define a path."""
        return self.define(name, kinds.PATH, Path(default), usage, options)

    @with_options
    def decimal(
        self, name: Str, default: Decimal, usage: Str = "", **options: Unpack[FlagOptions[Decimal]]
    ) -> DynFlag[Decimal]:
        """Define a decimal number."""
        return self.define(name, kinds.DECIMAL, default, usage, options)

    @with_options
    def enum(self, name: Str, default: EnumMember[E], usage: Str = "", **options: Unpack[FlagOptions[E]]) -> DynFlag[E]:
        """Define a member of an enumeration, the one of the default."""
        return self.define(name, kinds.enum_kind(default.__class__), cast("E", default), usage, options)

    @overload
    def list(
        self, name: Str, default: Sequence[Str], usage: Str = "", **options: Unpack[FlagOptions[builtins.list[Str]]]
    ) -> DynFlag[builtins.list[Str]]: ...
    @overload
    def list(
        self,
        name: Str,
        default: Sequence[T],
        usage: Str = "",
        *,
        item: type[T],
        keep_empty: Bool = False,
        quoted: Bool = False,
        **options: Unpack[FlagOptions[builtins.list[T]]],
    ) -> DynFlag[builtins.list[T]]: ...
    @with_options
    def list(
        self,
        name: Str,
        default: Sequence[Any],
        usage: Str = "",
        *,
        item: Any = Str,
        keep_empty: Bool = False,
        quoted: Bool = False,
        **options: Any,
    ) -> DynFlag[builtins.list[Any]]:
        """Define a list of texts, or of another type (`item`), written as `a,b,c`, in lines, or as a JSON array.

        With `quoted`, an item may stand in double quotes and hold a comma; with `keep_empty`, the text is taken apart
        at its commas only, and blanks and empty items are kept, as in the original.
        """
        kind = list_kind(kind_of(item), keep_empty=keep_empty, quoted=quoted)
        return self.define(name, kind, builtins.list(default), usage, options)

    @overload
    def set(
        self, name: Str, default: AbstractSet[Str], usage: Str = "", **options: Unpack[FlagOptions[frozenset[Str]]]
    ) -> DynFlag[frozenset[Str]]: ...
    @overload
    def set(
        self,
        name: Str,
        default: AbstractSet[T],
        usage: Str = "",
        *,
        item: type[T],
        keep_empty: Bool = False,
        quoted: Bool = False,
        **options: Unpack[FlagOptions[frozenset[T]]],
    ) -> DynFlag[frozenset[T]]: ...
    @with_options
    def set(
        self,
        name: Str,
        default: AbstractSet[Any],
        usage: Str = "",
        *,
        item: Any = Str,
        keep_empty: Bool = False,
        quoted: Bool = False,
        **options: Any,
    ) -> DynFlag[frozenset[Any]]:
        """Define a set, written as a list is."""
        kind = set_kind(kind_of(item), keep_empty=keep_empty, quoted=quoted)
        return self.define(name, kind, frozenset(default), usage, options)

    @overload
    def mapping(
        self, name: Str, default: Mapping[Str, Str], usage: Str = "", **options: Unpack[FlagOptions[Mapping[Str, Str]]]
    ) -> DynFlag[Mapping[Str, Str]]: ...
    @overload
    def mapping(
        self,
        name: Str,
        default: Mapping[Str, T],
        usage: Str = "",
        *,
        item: type[T],
        quoted: Bool = False,
        **options: Unpack[FlagOptions[Mapping[Str, T]]],
    ) -> DynFlag[Mapping[Str, T]]: ...
    @with_options
    def mapping(
        self,
        name: Str,
        default: Mapping[Str, Any],
        usage: Str = "",
        *,
        item: Any = Str,
        quoted: Bool = False,
        **options: Any,
    ) -> DynFlag[Mapping[Str, Any]]:
        """Define a map from text to text, or to another type (`item`), written as `k=v,k=v` or as a JSON object."""
        return self.define(name, mapping_kind(kind_of(item), quoted=quoted), default, usage, options)

    @overload
    def json(
        self,
        name: Str,
        default: T,
        usage: Str = "",
        *,
        type: type[T],
        unknown_fields: Unknown = "ignore",
        **options: Unpack[FlagOptions[T]],
    ) -> DynFlag[T]: ...
    @overload
    def json(
        self,
        name: Str,
        default: T,
        usage: Str = "",
        *,
        unknown_fields: Unknown = "ignore",
        **options: Unpack[FlagOptions[T]],
    ) -> DynFlag[T]: ...
    @with_options
    def json(
        self,
        name: Str,
        default: Any,
        usage: Str = "",
        *,
        type: Any = None,
        unknown_fields: Unknown = "ignore",
        **options: Any,
    ) -> DynFlag[Any]:
        """Define a value that is written as JSON: a dict or list, or an instance of a class that JSON can hold.

        With `unknown_fields="error"`, a member that the class does not have is refused, and not ignored.
        """
        from wigwag.dflag.values.structured import json_kind  # structures need msgspec, numbers and texts do not

        plain = type is None and isinstance(default, dict | builtins.list | tuple)
        kind = json_kind(None if plain else type or default.__class__, unknown_fields=unknown_fields)
        return self.define(name, kind, default, usage, options)
