"""Directory outputs: the newest snapshot, written to a directory whenever the part that is for it has changed.

A directory that cannot be written is tried again after a pause, with what is newest then; meanwhile its last files
stay. An output never holds up a hook, nor another output.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wigwag.errors import WigwagError
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import sleep_until
from wigwag.watt.outputs.directory import OutputDirectory
from wigwag.watt.snapshots.formats import render_files
from wigwag.watt.snapshots.projection import projected_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.pipeline.watch import WatchPolicy
    from wigwag.watt.snapshots.formats import Format
    from wigwag.watt.snapshots.projection import Projection
    from wigwag.watt.snapshots.snapshot import WattSnapshot

log = logging.getLogger("wigwag.watt")


@dataclass(frozen=True, slots=True)
class Output:
    """A directory, and what its files hold."""

    path: str
    files: Mapping[str, tuple[Projection, Format]]

    def digests(self, snapshot: WattSnapshot) -> list[str]:
        """Return the digest of each file. A v2 document also says what is missing."""
        missing = {"watt1": "", "v2": " ".join(snapshot.unresolved)}
        return [projected_digest(snapshot, part) + missing[form] for part, form in self.files.values()]


class OutputWriter:
    """Keeps one directory up to date."""

    def __init__(self, output: Output, snapshots: Broadcast[WattSnapshot], policy: WatchPolicy) -> None:
        self._output, self._snapshots, self._clock = output, snapshots, policy.clock
        self._retry = Retry(Backoff(first=0.5), policy.random)
        self.error: str | None = None
        """Why the newest files are not written; None: they are."""
        self.writes = 0

    @property
    def path(self) -> str:
        """The directory."""
        return self._output.path

    async def run(self) -> None:
        """Write until there are no more snapshots."""
        directory = OutputDirectory(self._output.path)
        written: list[str] = []
        try:
            async for _ in self._snapshots:
                while (digests := self._output.digests(newest := self._snapshots.value)) != written:
                    if await self._write(directory, newest):
                        written = digests
        finally:
            directory.close()

    async def _write(self, directory: OutputDirectory, snapshot: WattSnapshot) -> bool:
        """Write, and return whether that worked; if it did not, wait for the next attempt."""
        try:
            self.writes += await directory.write(render_files(snapshot, self._output.files))
        except WigwagError as error:
            if self.error != str(error):
                log.warning("output %s", error)
            self.error = str(error)
            await sleep_until(self._clock, self._retry.next(self._clock.now()))
            return False
        self._retry.succeeded()
        self.error = None
        return True
