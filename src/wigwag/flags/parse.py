"""A document becomes flags. A bad flag is put in quarantine with the reason and the path; its neighbours load.

    bad shape (variants that are no object, a default variant that does not exist, …)   quarantined
    bad rule (unknown operator, `$ref` to nowhere, an unknown variant, …)                loaded, fails where reached
    against the schema in any other way                                                 loaded, reported by `schema`

Given the previous layer, a flag whose text did not change is reused, and a flag that went bad keeps its last good
definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from wigwag import jsontext
from wigwag.errors import DocumentError
from wigwag.flags.checks.catalogue import finding
from wigwag.flags.checks.schema import rule_errors
from wigwag.flags.document import UNDECODABLE, Definition, decode_object, identity_of, key_of, reason
from wigwag.flags.flag import DocumentDefaults, Flag, LoadSettings
from wigwag.flags.model import Finding, canonical, child, few
from wigwag.flags.selector import set_id_of
from wigwag.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from wigwag.flags.document import FlagDocument
    from wigwag.flags.model import Json, Limits
    from wigwag.flags.part import Part, Place

_NONE: dict[str, Flag] = {}
_KEYLESS = finding("flag-key-missing", ".key", "a flag needs a key that is not empty")
_WRONG_TYPE = re.compile(r"expected `(\w+)(?: \| null)?`, got `(\w+)`")
_NAMES = {"str": "text", "bool": "a boolean", "int": "a number", "float": "a number", "object": "an object"}
_NAMES |= {"array": "an array"}
_FLAT = frozenset((bool, int, float, str, type(None)))
"""What has no depth."""
_definition = jsontext.decoder(Definition)


class LayerParts(Struct, frozen=True, eq=False):
    """What a layer was made of, for the next one to be made from."""

    parts: Mapping[str, Part]
    holders: dict[Place, tuple[str, ...]]
    """The parts that define a flag, in order: the last one wins."""
    contested: frozenset[Place]
    """Flags that several parts define."""
    faults: dict[Place, Finding]
    """Why flags are in quarantine."""


class Layer(Struct, eq=False):
    """The flags of one source, by flag set and key, and what was wrong with the document."""

    setting: DocumentDefaults
    sets: dict[str, dict[str, Flag]]
    problems: tuple[Finding, ...]
    document: FlagDocument
    _placed: dict[str | int, Flag] | None = None
    _texts: dict[str | int, Raw] | None = None
    findings: tuple[Finding, ...] | None = None
    """All that is wrong with it, once it was checked."""
    parted: LayerParts | None = None
    """If the source has several documents."""

    def only(self, choose: Callable[[Flag], Flag | None], set_id: str | None = None) -> Layer:
        """Return the layer with what is chosen of each of its flags; `set_id`: the only flag set to look at."""
        sets = self.sets if set_id is None else {set_id: self.sets.get(set_id, _NONE)}
        chosen = {
            name: {key: kept for key, flag in flags.items() if (kept := choose(flag)) is not None}
            for name, flags in sets.items()
        }
        return replace(self, sets=chosen, findings=None)

    def flags(self) -> Iterator[Flag]:
        """Return all flags."""
        return chain.from_iterable(flags.values() for flags in self.sets.values())

    def flag(self, set_id: str, key: str) -> Flag | None:
        """Return one flag."""
        return self.sets.get(set_id, _NONE).get(key)

    @property
    def placed(self) -> dict[str | int, Flag]:
        """The flags that this document defines, by their place; one kept from an earlier document is not among them."""
        if self._placed is None:
            self._placed = {flag.place: flag for flag in self.flags()}
        return self._placed

    @property
    def texts(self) -> dict[str | int, Raw]:
        """The text of each flag, by its place: what a re-load compares with."""
        if self._texts is None:
            self._texts = self.document.texts()
        return self._texts


def parse(document: FlagDocument, source: str, options: LoadSettings, previous: Layer | None = None) -> Layer:
    """Parse a document into a layer."""
    setting = DocumentDefaults(
        source,
        _without_nulls(_object(document.metadata, "$.metadata", options)),
        _object(document.evaluators, "$.$evaluators", options),
        options,
    )
    return DocumentParser(_shared(setting, previous) if previous else setting, previous).layer(document)


def _shared(setting: DocumentDefaults, previous: Layer) -> DocumentDefaults:
    """Take over what is exactly as it was: flags that are taken over then share it. To Python, 1 and true are equal."""
    old = previous.setting
    metadata, evaluators = (
        before if canonical(before) == canonical(now) else now
        for before, now in ((old.metadata, setting.metadata), (old.evaluators, setting.evaluators))
    )
    return replace(setting, metadata=metadata, evaluators=evaluators)


class DocumentParser:
    """Parses the flags of one layer. `sets` has those in force, `problems` what is wrong with the others."""

    def __init__(self, setting: DocumentDefaults, previous: Layer | None) -> None:
        self._setting = setting
        self.sets: dict[str, dict[str, Flag]] = {}
        self.problems: list[Finding] = []
        self._previous = previous
        self._placed: dict[str | int, Flag] | None = None
        self._texts: dict[str | int, Raw] | None = None

    def layer(self, document: FlagDocument) -> Layer:
        if document.definitions is not None and self._previous is None:
            self._load_all(document.definitions)
        else:
            self._load_each(document)
        return Layer(self._setting, self.sets, tuple(self.problems), document, self._placed, self._texts)

    def _load_all(self, definitions: dict[str, Definition] | list[Definition]) -> None:
        """Add all flags; those that are surely possible, which is nearly every one, in as few steps as can be."""
        setting, metadata = self._setting, self._setting.metadata
        set_id, longest = set_id_of(metadata), setting.options.limits.string_length
        flags = self.sets.setdefault(set_id, {})
        places: Iterable[tuple[str | int, Definition]]
        places = definitions.items() if isinstance(definitions, dict) else enumerate(definitions)
        for place, definition in places:
            variants, default = definition.variants, definition.defaultVariant
            if variants and place and definition.metadata is None and (not default or default in variants):
                for value in variants.values():
                    kind = value.__class__
                    if kind not in _FLAT or (kind is str and len(value) > longest):
                        break
                else:
                    if place.__class__ is str:
                        flags[place] = Flag(place, set_id, definition, metadata, setting, place)
                        continue
            self._load(place, definition)

    def _load_each(self, document: FlagDocument) -> None:
        reusable, before = self._reusable(), self._previous.texts if self._previous else {}
        self._texts, self._placed = document.texts(), {}
        self.sets.setdefault(set_id_of(self._setting.metadata), {})  # first, as in `_load_all`: the last set answers
        for place, text in self._texts.items():
            flag = reusable.get(place)
            if flag is not None and before[place] == text:
                self._add(flag, place)
                continue
            self.read(place, bytes(text))  # a copy, or its rule would keep the whole document in memory

    def read(self, place: str | int, text: bytes | Raw, known: Place | None = None) -> None:
        """Add the flag that a text defines; `known`: its flag set and key, if they are known already."""
        try:
            definition = _definition(text)
        except UNDECODABLE as error:
            set_id, key = known or self._identity(place, text)
            self._quarantine(place, _misshapen(child("$.flags", place), error), key, set_id)
        else:
            self._load(place, definition)

    def _reusable(self) -> dict[str | int, Flag]:
        """The flags that are as they were if their text is, by place: nothing that they inherit has changed."""
        old, new = self._previous, self._setting
        if old is None or old.setting.metadata is not new.metadata or old.setting.options != new.options:
            return {}
        if old.setting.evaluators is new.evaluators:
            return old.placed
        return {place: flag for place, flag in old.placed.items() if not _may_refer(old.texts[place])}

    def _load(self, place: str | int, definition: Definition) -> None:
        """Add the flag, unless something about it is impossible."""
        setting = self._setting
        own, metadata = definition.metadata, setting.metadata
        if own:
            metadata = _without_nulls(metadata | own)
        key = place if place.__class__ is str else definition.key
        fault = _impossible(definition, setting.options.limits) if key else _KEYLESS
        flag = Flag(key or "", set_id_of(metadata), definition, metadata, setting, place)
        if fault is None and self._previous is not None:
            fault = self._worse_rule(flag)
        if fault is None:
            self._add(flag, place)
        else:
            self._quarantine(place, fault, flag.key, flag.set_id)

    def _add(self, flag: Flag, place: str | int) -> None:
        flags = self.sets.setdefault(flag.set_id, {})
        if place.__class__ is int and flag.key in flags:
            message = f"flag {flag.key!r} is defined again; the last one counts"
            self._report("duplicate-flag", child("$.flags", place), message)
        flags[flag.key] = flag
        if self._placed is not None:
            self._placed[place] = flag

    def _worse_rule(self, flag: Flag) -> Finding | None:
        """A rule that went bad must not replace one that worked. Without a predecessor it is checked on first use."""
        old = self._last_good(flag.key, flag.set_id)
        errors = rule_errors(flag) if old is not None and flag.targeted else []
        return None if old is None or not errors or rule_errors(old) else errors[0]

    def _identity(self, place: str | int, text: bytes | Raw) -> Place:
        """Return flag set and key of a flag whose definition makes no sense, as far as they can be made out."""
        own = identity_of(text).metadata
        own = own if own.__class__ is dict else {}
        return set_id_of(self._setting.metadata | own), key_of(place, text)

    def _quarantine(self, place: str | int, fault: Finding, key: str, set_id: str) -> None:
        """Report a bad flag, and keep its last good definition if there is one."""
        old = self._last_good(key, set_id)
        if old is not None:
            self.sets.setdefault(set_id, {})[key] = old
        own = child("$.flags", place)
        path = fault.path if fault.path.startswith("$") else own + fault.path
        kept = "; its last good definition stays in force" if old else "; the flag is not loaded"
        if old is not None and not path.startswith(own):  # in a shared rule: reported once for all who use it
            kept = "; the last good definition of each flag that uses it stays in force"
        self._report(fault.code, path, fault.message + kept, fault.hint)

    def _last_good(self, key: str, set_id: str) -> Flag | None:
        return self._previous.flag(set_id, key) if self._previous else None

    def _report(self, code: str, path: str, message: str, hint: str = "") -> None:
        self.problems.append(finding(code, path, message, hint, self._setting.source))


def _may_refer(text: Raw) -> bool:
    """Tell whether a definition may hold a `$ref`; an escape may hide one."""
    raw = bytes(text)
    return b"$ref" in raw or b"\\u" in raw


def _without_nulls(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if value is not None}


def _object(raw: Raw, path: str, options: LoadSettings) -> dict[str, Any]:
    value = decode_object(raw, path)
    message = _beyond(value, options.limits)
    if message is not None:
        raise DocumentError(f"{path}: {message}")
    return value


def _impossible(definition: Definition, limits: Limits) -> Finding | None:
    """Return what makes a flag impossible to load, if anything does; the path is within the flag."""
    variants, default = definition.variants or {}, definition.defaultVariant
    for member, value in ("variants", definition.variants), ("metadata", definition.metadata):
        message = _beyond(value, limits)
        if message is not None:
            return finding("limit", f".{member}", message)
    if default and default not in variants:
        known = few(variants)
        message = f"the default variant {default!r} is not one of the variants: {known}"
        return finding("default-variant-unknown", ".defaultVariant", message, suggest(default, variants))
    return None


def _beyond(value: Json, limits: Limits) -> str | None:
    """Return what is too much about a value: its nesting, or the length of a string in it."""
    level = [value]
    for _ in range(limits.depth + 1):
        if any(item.__class__ is str and len(item) > limits.string_length for item in level):
            return f"a string has more than {limits.string_length} characters (raise Limits.string_length)"
        level = [inner for item in level for inner in _members(item)]
        if not level:
            return None
    return f"nested more than {limits.depth} deep (raise Limits.depth)"


def _members(value: Json) -> list[Json]:
    if value.__class__ is dict:
        return list(value.values())
    return value if value.__class__ is list else []


def _misshapen(path: str, error: Exception) -> Finding:
    """Return why a flag cannot be decoded, in words: which member has the wrong type."""
    _, _, where = str(error).partition(" - at `$")
    message = reason(error)
    message = message.partition(" at ")[0] if where else message
    wrong = _WRONG_TYPE.fullmatch(message)
    hint = ""
    if wrong:
        wanted, given = wrong.groups()
        message = f"must be {_NAMES.get(wanted, wanted)}, not {_NAMES.get(given, given)}"
        hint = "put it in quotes" if wanted == "str" and given in ("bool", "int", "float") else ""
    return finding("flag-shape", path + where.rstrip("`").replace("[...]", ""), message, hint)
