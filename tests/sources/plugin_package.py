"""Distributions with an entry point of `wigwag.sources`, laid out in a directory as an installer would."""

from __future__ import annotations

from pathlib import Path

MODULE = '''
import asyncio, os
from pathlib import Path

from wigwag.errors import UsageError
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.document import Document
from wigwag.sources.kind import SourceKind


async def watch(source, shared):
    """Keys of a store; here the store is a directory, and is polled."""
    path = Path(os.environ["MEMORY_STORE"], source.address.partition(":")[2].partition("?")[0])
    last = None
    while True:
        try:
            content = path.read_bytes()
        except OSError as error:
            yield Unavailable(f"no key {path.name}: {error.strerror}")
        else:
            yield UNCHANGED if content == last else Document(content, "json")
            last = content
        await asyncio.sleep(min(source.settings.interval, 0.05))


def prepare(source, warn, environment):
    if "MEMORY_STORE" not in environment:
        raise UsageError("MEMORY_STORE is not set; set it to where the store is")
    if source.settings.interval > 60:
        warn("a store in memory is polled each minute at least")


KIND = SourceKind(
    name="memory",
    schemes=("memory", "memorys"),
    forms=("memory:KEY",),
    watch=watch,
    prepare=prepare,
    fields=frozenset({"interval"}),
)
GREEDY = SourceKind(name="memory", schemes=("memory", "file"), watch=watch)
FILE = SourceKind(name="file", schemes=("memory",), watch=watch)
PREFIXED = SourceKind(name="memory", prefix="configmap/", watch=watch)
OTHER = SourceKind(name="other", schemes=("memory",), watch=watch)
NOTHING = None
MISREAD = SourceKind(name="memory", watch=watch, parse=lambda uri: uri.split("|")[1])
UNPREPARED = SourceKind(name="memory", watch=watch, prepare=lambda source, warn, environment: environment["STORE"])
'''


def install(
    folder: Path, entries: str, package: str = "wigwag-memory", module: str = "wigwag_memory", text: str = MODULE
) -> Path:
    """Lay out a package; return the directory to put on `sys.path`."""
    info = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[wigwag.sources]\n{entries}\n")
    (folder / f"{module}.py").write_text(text)
    return folder
