"""What must be so, in plain dictionaries: which flags are in force, what each source is to say of itself, what an
evaluation comes to. No code of the product takes part in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.flags import Doc, Known

Layer: TypeAlias = "dict[str, dict[str, Known]]"
"""The flags of a source by flag set and key, sets in the order in which they answer, the last one first."""
GRACE = 5.0
"""How long the first flags wait for a required source."""
NOTICED = 0.6
"""How long it may take until it is noticed that a source is stale, or no longer."""


def read(doc: Doc, before: Layer | None, *, strict: bool) -> Layer | None:
    """Return the flags of a source after a document, or None if the document is rejected as a whole."""
    if not doc.usable or (strict and not doc.flawless()):
        return None
    layer: Layer = {doc.own_set: {}}
    for set_id, key, known in doc.items:
        old = (before or {}).get(set_id, {}).get(key)
        worse = known is None or (known.broken and old is not None and not old.broken)
        kept = old if worse else known
        if kept is not None:
            layer.setdefault(set_id, {})[key] = kept
    return layer


def numbers(layer: Layer) -> dict[tuple[str, str], int]:
    """Return which definitions a layer holds."""
    return {(set_id, key): known.number for set_id, flags in layer.items() for key, known in flags.items()}


class State:
    """Published flags: the layers of all sources that have any, lowest priority first, by the names of the sources."""

    def __init__(self, layers: Sequence[tuple[str, Layer]]) -> None:
        self.layers = tuple(layers)
        self._winners: dict[tuple[str, str], tuple[str, Known]] = {}
        for name, layer in layers:
            for set_id, flags in layer.items():
                for key, known in flags.items():
                    self._winners[set_id, key] = name, known

    def select(self, selector: str) -> Selection:
        """Return the flags that a selector names."""
        name, _, value = selector.partition("=")
        wins = self._winners
        if name == "flagSetId":
            wins = {where: won for where, won in wins.items() if where[0] == value}
        elif name == "source":
            wins = {where: won for where, won in wins.items() if won[0] == value}
        return Selection(self, wins, {name: value} if name else {})

    def numbers(self) -> dict[tuple[str, str], int]:
        """Return which definitions are in force."""
        return {where: known.number for where, (_, known) in self._winners.items()}


@dataclass
class Selection:
    """Some of the flags in force."""

    state: State
    winners: Mapping[tuple[str, str], tuple[str, Known]]
    reflected: dict[str, str]
    by_key: dict[str, tuple[str, Known]] = field(default_factory=dict)
    """Who answers for a key: of several flag sets, that of the highest source; within one, the last."""

    def __post_init__(self) -> None:
        for name, layer in self.state.layers:
            for set_id, flags in layer.items():
                for key in flags:
                    if self.winners.get((set_id, key), ("", None))[0] == name:
                        self.by_key[key] = self.winners[set_id, key]

    def metadata(self, known: Known) -> dict[str, Any]:
        return {**self.reflected, **known.metadata}

    def document(self) -> dict[str, Any]:
        """Return what sync clients get: of several flag sets with a key, the last by name, as flagd has it.

        The selector is reflected in evaluations, not in documents.
        """
        flags = {}
        for (_, key), (name, known) in sorted(self.winners.items(), key=lambda item: item[0]):
            flags[key] = {**known.definition, "source": name}
            if known.metadata:
                flags[key]["metadata"] = dict(known.metadata)
        return {"flags": flags}

    def numbers(self) -> dict[str, frozenset[int]]:
        """Return the definitions of each key, in whatever sets."""
        found: dict[str, frozenset[int]] = {}
        for (_, key), (_, known) in self.winners.items():
            found[key] = found.get(key, frozenset()) | {known.number}
        return found


@dataclass(frozen=True)
class Answer:
    """What an evaluation comes to, whatever protocol asks."""

    value: Any = None
    variant: str | None = None
    reason: str = ""
    error: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def answer(known: Known, metadata: Mapping[str, Any], context: Mapping[str, Any], *, stale: bool) -> Answer:
    """Evaluate a flag."""
    if known.disabled:
        return Answer(reason="DISABLED", metadata=metadata)
    if known.broken:
        return Answer(reason="ERROR", error="PARSE_ERROR", metadata=metadata)
    matched = known.targeted and context.get("tier") == "gold"
    variant = "b" if matched else "a"
    reason = "TARGETING_MATCH" if matched else "DEFAULT" if known.targeted else "STATIC"
    return Answer(known.definition["variants"][variant], variant, "STALE" if stale else reason, None, metadata)


@dataclass
class Upstream:
    """One source: what it has said, and what the agent is to say about it."""

    name: str
    required: bool
    versions: list[Layer] = field(default_factory=list)
    """Every state that its flags were ever in."""
    layer: Layer | None = None
    state: str = "starting"
    confirmed: float | None = None
    values: int = 0
    starts: int = 0
    error: str | None = None
    """How the last error begins."""
    bad: str | None = None
    """Why the document that the link delivered last could not be used, if so."""
    fresh_since: float = float("-inf")

    def live_again(self, restored: tuple[Layer, float] | None, now: float) -> None:
        """Begin another life of the agent, perhaps with what was kept from an earlier one, and its age."""
        self.layer = self.confirmed = None
        if restored is not None:
            self.layer, age = restored
            self.confirmed = now - age
        self.state, self.values, self.starts, self.error, self.bad = "starting", 0, 0, None, None
        self.fresh_since = float("-inf")

    def delivered(self, doc: Doc, now: float, limit: float, *, strict: bool) -> bool:
        """Note that a document came; tell whether it changes anything."""
        layer = read(doc, self.layer, strict=strict)
        if layer is None:
            self.bad = "DocumentError: "
            self.failed(self.bad)
            return False
        self.bad = None
        self._confirm(now, limit)
        self.values += 1
        changed = self.layer is None or numbers(layer) != numbers(self.layer) or list(layer) != list(self.layer)
        if changed or not self.versions:
            self.versions.append(layer)
        self.layer = layer
        return True

    def unchanged(self, now: float, limit: float) -> None:
        """Note that the last document still holds."""
        if self.bad is not None:
            self.failed(self.bad)
        elif self.values:
            self._confirm(now, limit)

    def failed(self, error: str) -> None:
        self.state, self.error = "failing", error

    def _confirm(self, now: float, limit: float) -> None:
        if self.stale(now, limit):
            self.fresh_since = now
        self.state, self.confirmed = "live", now

    def stale(self, now: float, limit: float) -> bool:
        restored = self.confirmed is not None and not self.values
        return restored or bool(limit and self.confirmed is not None and now - self.confirmed > limit)

    def unsure(self, now: float, limit: float) -> bool:
        """Tell whether it became stale, or fresh, so recently that nobody need have noticed."""
        grew = limit and self.confirmed is not None and self.values and 0 <= now - self.confirmed - limit <= NOTICED
        return bool(grew) or now - self.fresh_since <= NOTICED
