"""Random flag documents, each with what a reader of it is to know, in plain records.

Every definition has a number of its own, which is in its metadata and in its values, so that any mixture of two states
shows. Rules are of one kind, trivially predictable: who has tier gold gets variant b.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

KEYS = ("k1", "k2", "k3", "k4")
SETS = ("", "red", "blue")
RULE = {"if": [{"==": [{"var": "tier"}, "gold"]}, "b"]}
BROKEN_RULE = {"no-such-operator": [1]}
UNUSABLE = (
    b"",
    b"{",
    b"[]",
    b"{}",
    b'{"flags": 3}',
    b'{"flags": {}, "metadata": 3}',
    b"\xff\xfe\x00",
    b"<html></html>",
)
"""Documents that no reader can make anything of."""
_BAD: tuple[dict[str, Any], ...] = (
    {"variants": []},
    {"variants": {"a": 1}, "defaultVariant": "z"},
    {"state": 3, "variants": {}},
    {"variants": 7},
)
_KINDS = ("boolean", "string", "integer", "float", "object")


@dataclass(frozen=True, eq=False)
class Known:
    """One definition, as its author meant it."""

    number: int
    key: str
    set_id: str
    kind: str
    definition: dict[str, Any]
    metadata: dict[str, Any]
    """With what it inherits from its document."""
    targeted: bool = False
    broken: bool = False
    """Whether its rule cannot be evaluated."""

    @property
    def disabled(self) -> bool:
        return bool(self.definition["state"] == "DISABLED")


@dataclass(frozen=True, eq=False)
class Doc:
    """A document: its text, and what is in it. A flag that cannot be loaded is there by its name only."""

    text: bytes
    usable: bool
    own_set: str = ""
    items: tuple[tuple[str, str, Known | None], ...] = ()

    def flawless(self) -> bool:
        """Tell whether a strict reader takes it."""
        return self.usable and all(known is not None and not known.broken for _, _, known in self.items)


def _values(kind: str, number: int) -> tuple[Any, Any]:
    values: dict[str, tuple[Any, Any]] = {
        "boolean": (True, False),
        "string": (f"{number}.a", f"{number}.b"),
        "integer": (2 * number, 2 * number + 1),
        "float": (number + 0.25, number + 0.5),
        "object": ({"n": number, "v": "a"}, {"n": number, "v": "b"}),
    }
    return values[kind]


@dataclass
class Author:
    """Writes documents."""

    random: Random
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def document(self) -> Doc:
        """Write a document: mostly a good one, sometimes with a bad flag, sometimes of no use at all."""
        random = self.random
        if random.random() < 0.08:
            return Doc(random.choice(UNUSABLE), usable=False)
        inherited: dict[str, Any] = {"doc": next(self.numbers)} if random.random() < 0.4 else {}
        if (own_set := random.choice(SETS)) and random.random() < 0.5:
            inherited["flagSetId"] = own_set
        own_set = inherited.get("flagSetId", "")
        named = [(set_id, key) for set_id in SETS for key in KEYS]
        chosen = random.sample(named, random.choice((0, 1, 2, 3, 3, 4, 5)))
        written = [self._flag(set_id, key, own_set, inherited) for set_id, key in chosen]
        if len({key for _, key in chosen}) == len(chosen) and random.random() < 0.6:
            flags: Any = {key: told for (_, key), (told, _) in zip(chosen, written, strict=True)}
        else:
            flags = [{"key": key, **told} for (_, key), (told, _) in zip(chosen, written, strict=True)]
        text = json.dumps({"metadata": inherited, "flags": flags} if inherited else {"flags": flags}).encode()
        items = ((*name, known) for name, (_, known) in zip(chosen, written, strict=True))
        return Doc(text, True, own_set, tuple(items))

    def _flag(self, set_id: str, key: str, own_set: str, inherited: dict[str, Any]) -> tuple[Any, Known | None]:
        """Write a flag; return the text of it, and what it means, if it means anything."""
        random, number = self.random, next(self.numbers)
        told: dict[str, Any] = {"number": number}
        if set_id != own_set:
            told["flagSetId"] = set_id or None
        if random.random() < 0.1:
            return {**random.choice(_BAD), "metadata": told}, None
        kind = random.choice(_KINDS)
        a, b = _values(kind, number)
        definition: dict[str, Any] = {
            "state": "DISABLED" if random.random() < 0.1 else "ENABLED",
            "variants": {"a": a, "b": b},
            "defaultVariant": "a",
        }
        targeted, broken = random.random() < 0.4, random.random() < 0.05
        if targeted or broken:
            definition["targeting"] = BROKEN_RULE if broken else RULE
        metadata = {name: value for name, value in {**inherited, **told}.items() if value is not None}
        known = Known(number, key, set_id, kind, definition, metadata, targeted or broken, broken)
        return {**definition, "metadata": told}, known
