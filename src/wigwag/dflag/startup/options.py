"""What a service is asked to do about its flags: one record, and the options of a command line that fill it.

Each front end makes options of the same table, in its own way; so they have the same names, rules and help everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from wigwag.errors import UsageError

if TYPE_CHECKING:
    from wigwag.dflag.updating.places import Place

Sort: TypeAlias = Literal["text", "texts", "port", "switch"]
HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What the options of `install` say; for programs that have theirs from elsewhere.

    >>> ServiceOptions(config_dir=["/etc/dflag"]).config_bind
    '127.0.0.1'
    """

    config_dir: Sequence[str | os.PathLike[str] | Place] = ()
    """Where ConfigMaps are mounted, `configmap/NAMESPACE/NAME`, or records that say more (`Directory`, `ConfigMap`);
    the last counts most."""
    config_documents: Sequence[str] = ()
    """The keys that hold many flags each, by name or pattern, of all places that are given as text."""
    config_port: int | None = None
    """Where the page of the flags is served; 0 is any port that is free, None is no page."""
    config_bind: str = "127.0.0.1"
    """The address that it is served at."""
    config_token_file: str | None = None
    """The file with the token that whoever sets a flag there must have; without one, flags can only be looked at."""
    config_strict: bool = False
    """Whether not to start if a flag is wrong."""
    command_line: bool = False
    """Whether this is from a command line. Then a start that fails ends the program with one line, as a mistake on that
    line would; and otherwise, it raises."""

    def __post_init__(self) -> None:
        for name in ("config_dir", "config_documents"):
            given = getattr(self, name)
            if isinstance(given, str | os.PathLike):
                raise UsageError(f"`{name}` is a list: write [{os.fspath(given)!r}]")


class Option(NamedTuple):
    """An option of the command line."""

    field: str
    """What it fills."""
    sort: Sort
    metavar: str
    help: str

    @property
    def name(self) -> str:
        """What it is called."""
        return f"--{self.field.replace('_', '-')}"


_PAGE = "the page of the flags"
OPTIONS = (
    Option(
        "config_dir",
        "texts",
        "PLACE",
        "a directory with a ConfigMap in it, or configmap/NAMESPACE/NAME; may be repeated",
    ),
    Option(
        "config_documents",
        "texts",
        "PATTERN",
        "keys there that hold many flags each, such as app.yaml or *.toml; may be repeated",
    ),
    Option("config_port", "port", "PORT", f"serve {_PAGE} here; 0 is any that is free"),
    Option("config_bind", "text", "ADDRESS", f"where {_PAGE} is served"),
    Option("config_token_file", "text", "FILE", f"holds the token to set flags with on {_PAGE}"),
    Option("config_strict", "switch", "", "do not start if a flag is wrong"),
)


def given(values: Mapping[str, Any]) -> ServiceOptions:
    """Return what a command line says; what is not in it, or None, has its default.

    >>> given({"config_port": 8080, "config_bind": None, "verbose": True}).config_port
    8080
    """
    found = {option.field: values.get(option.field) for option in OPTIONS}
    return ServiceOptions(**{name: value for name, value in found.items() if value is not None}, command_line=True)
