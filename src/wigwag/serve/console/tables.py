"""Views that are plain tables: columns with a kind, and rows. The page needs no code of its own for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from wigwag.serve.console.live import LiveStreams
from wigwag.version import __version__

if TYPE_CHECKING:
    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.serve.console.site import ApiPage
    from wigwag.wire.http import Request, Stream

ColumnKind: TypeAlias = Literal["text", "number", "state", "age", "time", "seconds", "error", "list"]
"""How a cell is shown: `age` counts seconds until now, `time` is in Unix seconds, `seconds` is a duration."""
MOST_ROWS = 10_000


class Column(Struct, frozen=True):
    """A column: the member of a row that it shows, its title, and how it is shown."""

    name: str
    title: str
    kind: ColumnKind = "text"


class TableView(Struct, frozen=True):
    """A view: its name and title, its columns, and what returns the rows."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: Callable[[], Iterable[Mapping[str, Any]]]
    empty: str = "There is nothing here."

    def to_dict(self) -> dict[str, Any]:
        """Return the view as JSON."""
        rows = list(self.rows())
        shown = {"title": self.title, "columns": self.columns, "empty": self.empty}
        return shown | {"rows": rows[:MOST_ROWS], "more": max(0, len(rows) - MOST_ROWS)}


class TableConsole:
    """The API of a face whose views are tables."""

    def __init__(self, face: str, views: Iterable[TableView], topics: Mapping[str, Broadcast[Any]]) -> None:
        self._face, self._views = face, {view.name: view for view in views}
        self._live = LiveStreams(topics, lambda name: {})

    def api(self) -> Mapping[bytes, ApiPage]:
        """Return the pages of the API."""
        pages: dict[bytes, ApiPage] = {b"": self._overview, b"/events": self._events}
        for view in self._views.values():
            pages[f"/{view.name}".encode()] = _page(view)
        return pages

    def _overview(self, request: Request) -> dict[str, Any]:
        titles = {view.name: view.title for view in self._views.values()}
        return {"face": self._face, "version": __version__, "views": list(titles), "titles": titles}

    def _events(self, request: Request) -> Stream:
        return self._live.response()


def _page(view: TableView) -> ApiPage:
    return lambda request: view.to_dict()
