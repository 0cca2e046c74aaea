"""The configuration of a service's flags: one record, from which the front ends make the options of a command line.

Each front end turns the same declarations into options of its own library; so they have the same names, rules and help
everywhere. How options are declared is in `wigwag.options`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wigwag.errors import UsageError
from wigwag.options import declared, option, port_option

if TYPE_CHECKING:
    from wigwag.dflag.updating.places import Place

_PAGE = "the page of the flags"


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The options of `service`, for programs that do not use `install`.

    >>> ServiceOptions(config_dir=["/etc/dflag"]).config_bind
    '127.0.0.1'
    """

    config_dir: Sequence[str | os.PathLike[str] | Place] = option(
        (), "a directory with a ConfigMap in it, or configmap/NAMESPACE/NAME; may be repeated", metavar="PLACE"
    )
    """Where ConfigMaps are mounted, `configmap/NAMESPACE/NAME`, or records with options (`Directory`, `ConfigMap`); the
    last wins."""
    config_documents: Sequence[str] = option(
        (), "keys there that hold many flags each, such as app.yaml or *.toml; may be repeated", metavar="PATTERN"
    )
    """The keys that contain many flags each, by name or pattern, of all places that are given as text."""
    config_port: int | None = port_option(None, f"serve {_PAGE} here; 0 is any that is free")
    """The port of the flags page; 0 is any free port, None is no page."""
    config_bind: str = option("127.0.0.1", f"where {_PAGE} is served", metavar="ADDRESS")
    """The address of the page."""
    config_token_file: str | None = option(None, f"holds the token to set flags with on {_PAGE}", metavar="FILE")
    """The file with the token for setting flags on the page; without one, the page is read-only."""
    config_strict: bool = option(False, "do not start if a flag is wrong")
    """Whether a bad value prevents the start."""
    command_line: bool = False
    """Whether this is from a command line. Then a failed start exits with one line, as a mistake on that line would;
    otherwise it raises."""

    def __post_init__(self) -> None:
        for name in ("config_dir", "config_documents"):
            given = getattr(self, name)
            if isinstance(given, str | os.PathLike):
                raise UsageError(f"`{name}` is a list: write [{os.fspath(given)!r}]")


OPTIONS = tuple(declared(ServiceOptions))
"""Those that a command line has."""


def given(values: Mapping[str, Any]) -> ServiceOptions:
    """Return the options of a command line; a missing one, or None, has its default.

    >>> given({"config_port": 8080, "config_bind": None, "verbose": True}).config_port
    8080
    """
    fields = {option.name: values.get(option.name) for option in OPTIONS}
    return ServiceOptions(**{name: value for name, value in fields.items() if value is not None}, command_line=True)
