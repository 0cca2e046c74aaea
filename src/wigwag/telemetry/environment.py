"""The `OTEL_*` variables, as the OpenTelemetry specification reads them: an empty one counts as absent.

The Python SDK takes `OTEL_EXPORTER_OTLP_TIMEOUT` for seconds; the specification, and flagd with it, for milliseconds.
We follow the specification. A value may be a secret, so an error names the variable and never quotes a header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from wigwag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_PAIRS = 128
LONGEST_MILLISECONDS = 24 * 3600 * 1000


class Environment:
    """A view of the process's environment."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def text(self, *names: str) -> str:
        """Return the first of these that is set, or nothing."""
        return next((value for name in names if (value := self._variables.get(name, "").strip())), "")

    def choice(self, names: tuple[str, ...], known: tuple[str, ...], default: str) -> str:
        """Return the first that is set, which must be known."""
        found = self.text(*names).lower() or default
        if found not in known:
            raise UsageError(f"{self._set(names)}: {found!r} is not supported; use one of {', '.join(known)}")
        return found

    def truth(self, *names: str) -> bool | None:
        """Return true or false if one is set; as the specification has it, everything but `true` is false."""
        found = self.text(*names)
        return found.lower() == "true" if found else None

    def seconds(self, names: tuple[str, ...], default: float) -> float:
        """Return a duration, which is written in milliseconds."""
        found = self.text(*names)
        if not found:
            return default
        if not found.isdecimal() or not 0 < int(found) <= LONGEST_MILLISECONDS:
            raise UsageError(f"{self._set(names)}: {found!r} is not a number of milliseconds, such as 5000")
        return int(found) / 1000

    def number(self, name: str, default: int, largest: int) -> int:
        """Return a whole number of at least 1; more than the largest is the largest."""
        found = self.text(name)
        if not found:
            return default
        if not found.isdecimal() or int(found) < 1:
            raise UsageError(f"{name}: {found!r} is not a whole number of at least 1")
        return min(int(found), largest)

    def ratio(self, name: str, default: float) -> float:
        """Return a number from 0 to 1."""
        found = self.text(name)
        try:
            number = float(found) if found else default
        except ValueError:
            number = -1.0
        if not 0.0 <= number <= 1.0:
            raise UsageError(f"{name}: {found!r} is not a number from 0 to 1")
        return number

    def pairs(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Return `key=value,key=value`, percent-decoded."""
        items = [item for item in self.text(*names).split(",") if item.strip()]
        parts = [item.partition("=") for item in items]
        if len(items) > MOST_PAIRS or not all(key.strip() and separator for key, separator, _ in parts):
            raise UsageError(f"{self._set(names)}: write key=value,key=value, at most {MOST_PAIRS} of them")
        return tuple((unquote(key.strip()), unquote(value.strip())) for key, _, value in parts)

    def _set(self, names: tuple[str, ...]) -> str:
        """Return which of these is meant."""
        return next((name for name in names if self.text(name)), names[-1])
