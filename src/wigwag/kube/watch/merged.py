"""Several watches as one: all their objects in one mapping, and what has changed in any of them.

    watch of team-a ─┐
    watch of team-b ─┼─▶ one dictionary, one journal ─▶ Objects
    watch of team-c ─┘

The parts are of different namespaces or kinds, so no two have a key in common. A change costs what has changed in its
part: the journal of the merged objects gets its keys, and no other.

Nothing is yielded before every part has answered, because an error is no empty answer. The hard case is a part that may
never answer: a namespace without rights must not hold up the others. So a caller may excuse some troubles. A part with
such a trouble keeps what it had, nothing if it has never answered, and is no trouble of the whole.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from wigwag.kube.watch.listwatch import KindNotServed
from wigwag.kube.watch.objects import ChangeJournal, Objects
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from wigwag.kube.watch.decode import Key
    from wigwag.kube.watch.reflector import Item

T = TypeVar("T")
MOST_REASONS = 3
"""The most troubles that one message names."""


async def merge_watches(
    parts: Mapping[str, AsyncIterator[Item[T]]],
    is_excused: Callable[[Unavailable], bool] = lambda _: False,
    note: Callable[[str, Unavailable | None], object] = lambda *_: None,
) -> AsyncIterator[Item[T]]:
    """Yield the objects of all parts when one changes, `UNCHANGED`, or `Unavailable` with the troubles of all parts.

    `note` is called with a part and its excused trouble when that is another one, and with None when it has answered.
    """
    merge = _Merge[T](frozenset(parts), is_excused, note)
    tasks = [asyncio.get_running_loop().create_task(_follow(merge, *part)) for part in parts.items()]
    try:
        while True:
            await merge.changed.wait()
            merge.changed.clear()
            for item in merge.items():
                yield item
            for task in tasks:
                if task.done():
                    task.result()
                    return
    finally:  # no task group: closing a generator inside one raises a group
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _follow(merge: _Merge[T], part: str, items: AsyncIterator[Item[T]]) -> None:
    try:
        async with closing(items):
            async for item in items:
                merge.take(part, item)
    finally:
        merge.changed.set()


class _Merge(Generic[T]):
    """What is known of all parts."""

    def __init__(
        self,
        parts: frozenset[str],
        is_excused: Callable[[Unavailable], bool],
        note: Callable[[str, Unavailable | None], object],
    ) -> None:
        self._parts, self._is_excused, self._note = parts, is_excused, note
        self._objects: dict[Key, T] = {}
        self._journal = ChangeJournal()
        self._values: dict[str, Objects[T]] = {}
        self._troubles: dict[str, Unavailable] = {}
        self._noted: dict[str, Unavailable | None] = {}
        """The excused trouble of each part that has answered, or that need not."""
        self._is_new = True
        """Whether there is something that was not yielded yet."""
        self.changed = asyncio.Event()

    def take(self, part: str, item: Item[T]) -> None:
        """Note an item of a part."""
        self.changed.set()
        if isinstance(item, Unavailable):
            self._failed(part, item)
            return
        self._tell(part, None)
        if isinstance(item, Unchanged):
            return
        for key in item.changed_since(self._values.get(part)):
            self._journal.add(key)
            if key in item:
                self._objects[key] = item[key]
            else:
                self._objects.pop(key, None)
        self._values[part], self._is_new = item, True

    def _failed(self, part: str, trouble: Unavailable) -> None:
        if self._is_excused(trouble):
            self._tell(part, trouble)
        else:  # an excuse of before stays, so that the others need not wait again
            self._troubles[part] = trouble

    def _tell(self, part: str, trouble: Unavailable | None) -> None:
        self._troubles.pop(part, None)
        if part not in self._noted or self._noted[part] != trouble:
            self._noted[part] = trouble
            self._note(part, trouble)

    def items(self) -> Iterator[Item[T]]:
        """Yield what has become of all parts since the last time."""
        is_complete, is_new = self._parts == self._noted.keys(), self._is_new
        if is_complete and is_new:
            self._is_new = False
            yield Objects(self._objects, self._journal)
        if self._troubles:
            yield _together(list(self._troubles.values()))
        elif is_complete and not is_new:
            yield UNCHANGED


def _together(troubles: list[Unavailable]) -> Unavailable:
    reasons = list(dict.fromkeys(each.reason for each in troubles))
    more = len(reasons) - MOST_REASONS
    text = "; ".join([*reasons[:MOST_REASONS], *([f"and {more} more"] if more > 0 else [])])
    return KindNotServed(text) if all(isinstance(each, KindNotServed) for each in troubles) else Unavailable(text)
