"""Many parts become one layer, and the next one is made from it: loading costs what changed, not what there is.

    parts by name ─▶ for each place (flag set and key) the parts that define it, the last one wins ─▶ flags

With the layer before at hand, a part that is the same object is not looked at. Of a part that is another one, only the
flags are parsed whose text changed. What is left for each change are copies of dictionaries, which are quick.

The hard case is a flag that several parts define. The last part counts, good or bad: if its definition is bad, the flag
keeps its last good definition, and those of other parts do not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.structs import replace

from wigwag.errors import DocumentError
from wigwag.flags.document import read
from wigwag.flags.flag import DocumentDefaults
from wigwag.flags.parse import DocumentParser, Layer, LayerParts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.flags.flag import Flag, LoadSettings
    from wigwag.flags.model import Finding
    from wigwag.flags.part import Part, Place


_NOTHING = LayerParts({}, {}, frozenset(), {})


def parse_parts(parts: Mapping[str, Part], source: str, options: LoadSettings, previous: Layer | None = None) -> Layer:
    """Parse parts into a layer; those that are first in the mapping are lowest."""
    size, most = sum(part.size for part in parts.values()), options.limits.document_bytes
    if size > most:
        raise DocumentError(f"the flags have {size} bytes, more than the limit of {most} (raise Limits.document_bytes)")
    if previous is None or previous.parted is None or not _continues(previous, parts, options):
        setting = DocumentDefaults(source, {}, {}, options)
        return _Layering(_NOTHING, parts, {"": {}}, setting, previous).layer()
    return _Layering(previous.parted, parts, previous.sets, previous.setting, previous).layer()


def part_of(layer: Layer, flag: Flag) -> str:
    """Return the name of the part that defines a flag of a layer; empty if there are no parts."""
    names = layer.parted.holders.get((flag.set_id, flag.key)) if layer.parted else None
    return names[-1] if names else ""


def labelled(source: str, part: str) -> str:
    """Name the source of a finding that is about one part.

    >>> labelled("core.openfeature.dev/shop?labels=", "checkout")
    'core.openfeature.dev/shop?labels= (checkout)'
    """
    return f"{source} ({part})" if part and source else part or source


def _continues(previous: Layer, parts: Mapping[str, Part], options: LoadSettings) -> bool:
    """Tell whether a layer can be made from the one before: the same options, the same order of parts."""
    assert previous.parted is not None
    if previous.setting.options != options:
        return False
    before, now = list(previous.parted.parts), list(parts)
    if before == now:
        return True
    old, new = previous.parted.parts, parts
    return [name for name in before if name in new] == [name for name in now if name in old]


class _Layering:
    """Makes one layer from another."""

    def __init__(
        self,
        old: LayerParts,
        parts: Mapping[str, Part],
        sets: dict[str, dict[str, Flag]],
        setting: DocumentDefaults,
        previous: Layer | None,
    ) -> None:
        self._old, self._parts, self._setting, self._previous = old, parts, setting, previous
        self._sets, self._own = dict(sets), set[str]()
        self._holders, self._faults = old.holders, old.faults
        self._contested = old.contested
        self._parser = DocumentParser(setting, previous)

    def layer(self) -> Layer:
        touched = self._changed()
        if touched:
            self._faults = self._faults.copy()
        for place in touched:
            self._settle(place)
        parted = LayerParts(self._parts, self._holders, self._contested, self._faults)
        nothing = read(b'{"flags":{}}', self._setting.options.limits)
        return Layer(self._setting, self._ordered(), self._problems(), nothing, {}, {}, parted=parted)

    def _changed(self) -> dict[Place, None]:
        """Note which parts define what, and return the flags that may have another definition."""
        old, new = self._old.parts, self._parts
        touched: dict[Place, None] = {}
        names = [name for name, part in new.items() if old.get(name) is not part]
        names += [name for name in old if name not in new] if len(new) - len(names) < len(old) else []
        if not names:
            return touched
        self._holders = self._holders.copy()
        contested = set(self._contested)
        several: set[Place] = set()
        for name in names:
            before, after = old[name].flags if name in old else {}, new[name].flags if name in new else {}
            alone = (name,)
            for place, text in after.items():
                if place not in before:
                    held = self._holders.get(place)
                    self._holders[place] = (*held, name) if held else alone
                    touched[place] = None
                    if held:
                        several.add(place)
                elif before[place] != text:
                    touched[place] = None
            for place in before.keys() - after.keys():
                self._release(place, name)
                contested.discard(place)
                several.add(place)
                touched[place] = None
        self._order(several, contested)
        self._contested = frozenset(contested)
        return touched

    def _release(self, place: Place, name: str) -> None:
        left = tuple(each for each in self._holders[place] if each != name)
        if left:
            self._holders[place] = left
        else:
            del self._holders[place]

    def _order(self, several: set[Place], contested: set[Place]) -> None:
        """Put the parts of flags that several of them define in order."""
        shared = [place for place in several if len(self._holders.get(place, ())) > 1]
        if shared:
            positions = {name: position for position, name in enumerate(self._parts)}
            for place in shared:
                self._holders[place] = tuple(sorted(self._holders[place], key=positions.__getitem__))
            contested.update(shared)

    def _settle(self, place: Place) -> None:
        """Have the definition of a flag that counts now."""
        text, name = self._text(self._parts, self._holders, place)
        before, _ = self._text(self._old.parts, self._old.holders, place)
        if text is not None and text == before and place not in self._faults:
            return
        self._faults.pop(place, None)
        set_id, key = place
        flag = None
        if text is not None:
            known = len(self._parser.problems)
            self._parser.read(key, text, place)
            flag = self._parser.sets.get(set_id, {}).get(key)
            for problem in self._parser.problems[known:]:
                self._faults[place] = replace(problem, source=labelled(self._setting.source, name))
        self._put(place, flag)

    def _text(
        self, parts: Mapping[str, Part], holders: dict[Place, tuple[str, ...]], place: Place
    ) -> tuple[Raw | None, str]:
        names = holders.get(place)
        return (parts[names[-1]].flags[place], names[-1]) if names else (None, "")

    def _put(self, place: Place, flag: Flag | None) -> None:
        set_id, key = place
        if set_id not in self._own:
            self._sets[set_id] = self._sets.get(set_id, {}).copy()
            self._own.add(set_id)
        if flag is None:
            self._sets[set_id].pop(key, None)
        else:
            self._sets[set_id][key] = flag

    def _ordered(self) -> dict[str, dict[str, Flag]]:
        """Return the sets in the order of their first flag in force: of a key in several sets, the last one answers."""
        sets = {set_id: flags for set_id, flags in self._sets.items() if flags or not set_id}
        if len(sets) <= 2:
            return {"": sets.pop("", {}), **sets}
        closely = {name for place in self._contested for name in self._holders[place][:-1]}
        closely |= {self._holders[place][-1] for place in self._faults if not self._in_force(place)}
        order: dict[str, None] = {"": None}
        for name, part in self._parts.items():
            order |= dict.fromkeys(self._counting(name, part) if name in closely else part.sets)
            if len(order) == len(sets):
                break
        return {set_id: sets[set_id] for set_id in order if set_id in sets} | sets

    def _counting(self, name: str, part: Part) -> Iterable[str]:
        """Return the flag sets of the flags that a part has in force: neither overruled by another part, nor bad."""
        return (place[0] for place in part.flags if self._holders[place][-1] == name and self._in_force(place))

    def _in_force(self, place: Place) -> bool:
        return place[1] in self._sets.get(place[0], {})

    def _problems(self) -> tuple[Finding, ...]:
        if self._previous is not None and self._faults == self._old.faults and self._old is self._previous.parted:
            return self._previous.problems
        return tuple(sorted(self._faults.values(), key=lambda problem: (problem.source, problem.path, problem.code)))
