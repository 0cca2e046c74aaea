"""Loading, merging and comparing whole sets of flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wigwag.errors import DocumentError
from wigwag.flags.digests import changed
from wigwag.flags.document import read
from wigwag.flags.flag import LoadSettings
from wigwag.flags.flagset import FlagSet
from wigwag.flags.layering import parse_parts
from wigwag.flags.parse import parse
from wigwag.flags.selector import FLAG_SET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from wigwag.flags.document import Format, Input
    from wigwag.flags.flag import Flag
    from wigwag.flags.parse import Layer
    from wigwag.flags.part import Part


class Diff(Struct, frozen=True):
    """The keys that differ between two sets of flags.

    >>> import wigwag
    >>> flag = {"state": "ENABLED", "variants": {"on": 1}}
    >>> old, new = wigwag.load({"flags": {"a": flag, "b": flag}}), wigwag.load({"flags": {"b": flag, "c": flag}})
    >>> wigwag.diff(old, new)
    Diff(written=('c',), updated=(), deleted=('a',))
    """

    written: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.written or self.updated or self.deleted)

    def kinds(self) -> dict[str, str]:
        """Return `write`, `update` or `delete` by key, as flagd's change event has it."""
        return (
            dict.fromkeys(self.written, "write")
            | dict.fromkeys(self.updated, "update")
            | dict.fromkeys(self.deleted, "delete")
        )


def load(
    document: Input,
    *,
    source: str,
    options: LoadSettings,
    clock: Callable[[], float],
    strict: bool = False,
    format: Format | None = None,
    previous: FlagSet | None = None,
) -> FlagSet:
    """Read one document. `strict` rejects it if anything in it is an error."""
    source = _named(source)
    old = _before(previous, source)
    layer = parse(read(document, options.limits, format, whole=old is None), source, options, old)
    return _checked(FlagSet((layer,), clock), strict=strict)


def load_parts(
    parts: Mapping[str, Part],
    *,
    source: str,
    options: LoadSettings,
    strict: bool,
    previous: FlagSet | None,
    clock: Callable[[], float],
) -> FlagSet:
    """Load several documents as one source, the last one on top. Parts that are as they were before cost nothing."""
    source = _named(source)
    return _checked(FlagSet((parse_parts(parts, source, options, _before(previous, source)),), clock), strict=strict)


def _named(source: str) -> str:
    return source.encode("utf-8", "backslashreplace").decode()  # a file's name may be any bytes


def _before(previous: FlagSet | None, source: str) -> Layer | None:
    layers = reversed(previous.whole.layers) if previous else ()
    return next((layer for layer in layers if layer.setting.source == source), None)


def _checked(flags: FlagSet, *, strict: bool) -> FlagSet:
    if strict:
        errors = [finding for finding in flags.problems if finding.severity == "error"]
        if errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise DocumentError(f"{errors[0]}{more}", errors)
    return flags


def update(before: FlagSet, after: FlagSet) -> FlagSet:
    """Take a document as an update of the flag sets that it names; keep the other flag sets of the document before.

    >>> import wigwag
    >>> def one(name): return {"metadata": {"flagSetId": name}, "flags": {name: {"variants": {"on": 1}}}}
    >>> update(wigwag.load(one("blue")), wigwag.load(one("red"))).keys()
    ('blue', 'red')
    >>> update(wigwag.load(one("blue")), wigwag.load({"metadata": {"flagSetId": "blue"}, "flags": {}})).keys()
    ()
    """
    (old,), (new,) = before.layers, after.layers
    named = {set_id for set_id, flags in new.sets.items() if flags}
    if isinstance(default := new.setting.metadata.get(FLAG_SET), str):
        named.add(default)
    kept = {set_id: flags for set_id, flags in old.sets.items() if set_id not in named}
    sets = kept | {set_id: flags for set_id, flags in new.sets.items() if set_id in named}
    return FlagSet((replace(new, sets=sets, _placed=new.placed, findings=None, parted=None),), after.clock)


def merge(sets: Iterable[FlagSet], clock: Callable[[], float]) -> FlagSet:
    """Put sets of flags on top of each other, the last one on top, with its clock. Nothing of the others is lost."""
    merged = tuple(sets)
    return FlagSet([layer for flags in merged for layer in flags.layers], merged[-1].clock if merged else clock)


def diff(old: FlagSet, new: FlagSet) -> Diff:
    """Compare two sets of flags by content: definition, merged metadata and source.

    >>> import wigwag
    >>> flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "on"}
    >>> before = wigwag.load({"flags": {"a": flag}})
    >>> after = wigwag.load({"flags": {"a": {**flag, "defaultVariant": "off"}}})
    >>> wigwag.diff(before, after).updated
    ('a',)
    """
    pairs = changed(old.sets, new.sets)
    written = {flag.key for _, flag in pairs if flag is not None and flag.key not in old}
    deleted = {flag.key for flag, _ in pairs if flag is not None and flag.key not in new}
    updated = {flag.key for flag in map(_updated, pairs) if flag is not None} - written - deleted
    return Diff(tuple(sorted(written)), tuple(sorted(updated)), tuple(sorted(deleted)))


def _updated(pair: tuple[Flag | None, Flag | None]) -> Flag | None:
    """Return the flag if its content differs. The same key may be in several flag sets; all of them count."""
    old, new = pair
    if old is None or new is None:
        return old or new
    return new if old.digest != new.digest else None
