"""Config files: YAML, JSON or TOML, with the names of options as keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wigwag.errors import DocumentError, UsageError

DEFAULT = ".agent.yaml"


def read_config(path: str) -> dict[str, Any]:
    """Read a config file; without a path, the one in the home directory, if there is one."""
    chosen = Path(path) if path else Path.home() / DEFAULT
    try:
        text = chosen.read_bytes()
    except OSError as error:
        if not path:
            return {}
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise UsageError(f"cannot read the config file {chosen}: {reason}") from error
    try:
        return _parsed(chosen, text)
    except ValueError as error:  # not TOML, not YAML or not UTF-8; `DocumentError` is one
        raise UsageError(f"the config file {chosen} cannot be used: {error}") from error


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    if path.suffix.lower() == ".toml":
        import tomllib

        return tomllib.loads(text.decode())
    from wigwag.flags.document import parse_yaml
    from wigwag.flags.model import Limits

    value = parse_yaml(text, Limits())  # JSON is YAML too
    if not isinstance(value, dict):
        raise DocumentError("it must be a mapping of options to values")
    return value
