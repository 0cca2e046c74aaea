"""How an updater is doing: the problems it has, and what others may ask it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

Level: TypeAlias = Literal["warning", "error"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a place, or with a key in it."""

    level: Level
    place: str
    """The directory, or `configmap/NAMESPACE/NAME`."""
    key: str
    """The key, or path of the file, in it; empty: the place itself. `app.yaml#db.size` is a value in a document."""
    reason: str
    digest: str = field(default="", repr=False)
    """Tells one bad content from the next, if the reason does not."""

    def __str__(self) -> str:
        """One line, whatever the name of a file is, so that it is one line of a log."""
        return _in_one_line(f"{self.where}: {self.reason}")

    @property
    def where(self) -> str:
        """The key with its place, or the place."""
        return _in_one_line(f"{self.place}/{self.key}" if self.key else self.place)


def _in_one_line(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class UpdaterHealth(Protocol):
    """An updater, as the page and the metrics see it."""

    @property
    def running(self) -> bool: ...
    @property
    def generation(self) -> int: ...
    @property
    def warnings(self) -> int: ...
    @property
    def errors(self) -> int: ...
    @property
    def problems(self) -> tuple[Problem, ...]: ...
    @property
    def restart_required(self) -> tuple[str, ...]: ...
