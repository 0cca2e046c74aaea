"""What a selector names: one source, of a kind that subscribers may ask for.

A selector comes from any client that can reach the port, and decides what this process opens. So nothing is allowed
that was not allowed on the command line, except FeatureFlags and files, which the clients of flagd-proxy ask for. A
path is normalised before it is compared with the root, so `..` does not lead out of it; nor do symbolic links.
"""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wigwag.errors import UsageError
from wigwag.proxy.options import KINDS, USUAL
from wigwag.sources.kinds import kind_named, kind_of, prepare, read_source
from wigwag.sources.plugins import is_installed
from wigwag.sources.source import Source

if TYPE_CHECKING:
    from wigwag.proxy.options import ProxyOptions
    from wigwag.sources.kind import SourceKind

LONGEST = 1024


class Selectors(Struct, frozen=True):
    """Which selectors are good, and what they name."""

    kinds: tuple[str, ...] = USUAL
    root: str = ""
    """The directory that files must be in, as an absolute path; empty: any."""
    most: int = 16 << 20
    """The largest document, in bytes."""

    @classmethod
    def of(cls, options: ProxyOptions) -> Selectors:
        """Read the options."""
        for kind in options.allow:
            if kind not in KINDS and not is_installed(kind):
                raise UsageError(f"--allow: {kind!r} is no kind of target; known are {', '.join(KINDS)}")
        others = dict.fromkeys(kind_named(kind).name for kind in options.allow if kind not in KINDS)
        kinds = (*(kind for kind in KINDS if kind in (*USUAL, *options.allow)), *others)
        root = os.path.realpath(options.file_root) if options.file_root else ""
        if root and not os.path.isdir(root):  # noqa: PTH112 - the path stays text
            raise UsageError(f"--file-root: there is no directory {options.file_root}")
        return cls(kinds, root, options.max_document)

    def read(self, selector: str) -> Source:
        """Return what a selector names; `UsageError` says what it may name."""
        if not selector:
            raise UsageError(f"say which flags are meant: the selector must be {self.accepted}")
        if len(selector) > LONGEST or not selector.isprintable():
            raise UsageError(f"a selector has at most {LONGEST} characters, and no control characters")
        try:
            source = read_source(selector, self._plugins())  # only what is allowed: a subscriber loads no code
        except UsageError as error:
            raise UsageError(f"the selector names no target: {error}; accepted here: {self.accepted}") from None
        if source.provider not in self.kinds:
            raise UsageError(f"this proxy has no {source.provider} targets; accepted here: {self.accepted}")
        source = replace(source, settings=replace(source.settings, most=self.most, max_message=self.most))
        prepare([source], lambda _: None)
        return self._inside(source) if source.provider == "file" and self.root else source

    @property
    def accepted(self) -> str:
        """The forms of selectors that are good."""
        return " or ".join(kind_of(kind).form for kind in self.kinds)

    def _plugins(self) -> list[SourceKind]:
        return [kind_of(kind) for kind in self.kinds if kind not in KINDS]

    def _inside(self, source: Source) -> Source:
        """Check where a path leads now. Links may be turned later, so the root is checked again at every reading."""
        path = os.path.normpath(os.path.join(self.root, source.name))  # noqa: PTH118 - text, to be compared
        for each in (path, os.path.realpath(path)):
            if not each.startswith(self.root.rstrip("/") + "/"):
                raise UsageError("the file is not in the directory that this proxy serves files of")
        return replace(source, name=path, settings=replace(source.settings, root=self.root))
