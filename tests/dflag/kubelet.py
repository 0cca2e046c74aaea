"""A mounted ConfigMap, written as the kubelet writes it; and a way to wait for what follows from it."""

from __future__ import annotations

import shutil
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tests.dflag.sets import set_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from wigwag.dflag import DynFlag

T = TypeVar("T")
Order = Literal["new", "old"]
ORDERS: tuple[Order, ...] = ("new", "old")


class Volume:
    """Written step by step, in the order of kubelets since 1.23 (`new`) or before (`old`).

    The new order makes the links to new keys after the swap, so that for a moment they are missing; the old one makes
    them before it, so that for a moment they lead nowhere. Both remove those of removed keys, and the old generation,
    at the end. A content that is the same is not written at all.
    """

    def __init__(self, path: Path, content: Mapping[str, bytes | str] | None = None, order: Order = "new") -> None:
        self.path, self._order, self._number = path, order, count()
        self._written: Mapping[str, bytes] | None = None
        path.mkdir(exist_ok=True)
        if content is not None:
            self.write(content)

    def write(self, content: Mapping[str, bytes | str]) -> None:
        """Write all of it."""
        for _ in self.steps(content):
            pass

    def again(self) -> None:
        """Swap in a new generation of the same content."""
        written, self._written = self._written, None
        assert written is not None
        self.write(written)

    def steps(self, content: Mapping[str, bytes | str]) -> Iterator[str]:
        """Write it, and stop after each step."""
        wanted = {key: data.encode() if isinstance(data, str) else data for key, data in content.items()}
        if wanted == self._written:
            return
        self._written = wanted
        link = self.path / "..data"
        old = self.path / link.readlink() if link.is_symlink() else None
        new = self.path / f"..2026_01_01_00_00_00.{next(self._number):09d}"
        new.mkdir()
        for key, data in wanted.items():
            (new / key).parent.mkdir(parents=True, exist_ok=True)
            (new / key).write_bytes(data)
        yield "written"
        for step in (self._swap, self._link) if self._order == "new" else (self._link, self._swap):
            step(new.name, wanted)
            yield step.__name__.removeprefix("_")
        self._unlink(wanted)
        yield "unlink"
        if old is not None:
            shutil.rmtree(old)
        yield "removed"

    def _swap(self, name: str, wanted: Mapping[str, bytes]) -> None:
        (self.path / "..data_tmp").symlink_to(name)
        (self.path / "..data_tmp").rename(self.path / "..data")

    def _link(self, name: str, wanted: Mapping[str, bytes]) -> None:
        for top in {key.partition("/")[0] for key in wanted}:
            if not (self.path / top).is_symlink():
                (self.path / top).symlink_to(f"..data/{top}")

    def _unlink(self, wanted: Mapping[str, bytes]) -> None:
        tops = {key.partition("/")[0] for key in wanted}
        for visible in self.path.iterdir():
            if not visible.name.startswith("..") and visible.name not in tops:
                visible.unlink()


def until(condition: Callable[[], Any], timeout: float = 60.0) -> Any:
    """Wait until something holds, in another thread or process; return it."""
    end = time.monotonic() + timeout
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        pause.wait(0.002)
    return found


def becomes(flag: DynFlag[T], value: T) -> None:
    """Wait until a flag holds a value, and until all that comes with it is in place: the generation, and calls."""
    until(lambda: flag.get() == value)
    with set_of(flag)._store.lock:
        pass


class Heard:
    """A notifier that notes what it is told."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, Any]] = []

    def __call__(self, old: Any, new: Any) -> None:
        self.steps.append((old, new))
