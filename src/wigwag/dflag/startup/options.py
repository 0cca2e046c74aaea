"""The options of `dflag.service`: one record, and the command-line options that fill it.

Each front end makes options of the same table, so they have the same names, types and help everywhere.
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
    """The options of `service`, for programs that do not use `install`.

    >>> ServiceOptions(config_dir=["/etc/dflag"]).config_bind
    '127.0.0.1'
    """

    config_dir: Sequence[str | os.PathLike[str] | Place] = ()
    """Where ConfigMaps are mounted, `configmap/NAMESPACE/NAME`, or records with options (`Directory`, `ConfigMap`); the
    last wins."""
    config_documents: Sequence[str] = ()
    """The keys that contain many flags each, by name or pattern, of all places that are given as text."""
    config_port: int | None = None
    """The port of the flags page; 0 is any free port, None is no page."""
    config_bind: str = "127.0.0.1"
    """The address of the page."""
    config_token_file: str | None = None
    """The file with the token for setting flags on the page; without one, the page is read-only."""
    config_strict: bool = False
    """Whether a bad value prevents the start."""
    command_line: bool = False
    """Whether this is from a command line. Then a failed start exits with one line, as a mistake on that line would;
    otherwise it raises."""

    def __post_init__(self) -> None:
        for name in ("config_dir", "config_documents"):
            given = getattr(self, name)
            if isinstance(given, str | os.PathLike):
                raise UsageError(f"`{name}` is a list: write [{os.fspath(given)!r}]")


class Option(NamedTuple):
    """An option of the command line."""

    field: str
    """The field of `ServiceOptions`."""
    sort: Sort
    metavar: str
    help: str

    @property
    def name(self) -> str:
        """Its name on the command line."""
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
    """Return the options of a command line; a missing one, or None, has its default.

    >>> given({"config_port": 8080, "config_bind": None, "verbose": True}).config_port
    8080
    """
    fields = {option.field: values.get(option.field) for option in OPTIONS}
    return ServiceOptions(**{name: value for name, value in fields.items() if value is not None}, command_line=True)
