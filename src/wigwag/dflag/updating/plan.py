"""What the contents of ConfigMaps mean for a set of flags. Nothing here reads or changes anything.

A plan is made of all contents each time: which keys are good, bad or gone, and the value of each flag. So a key that
was missed, repeated or rejected before needs no special case. Contents that have not changed are not parsed, logged or
counted again. The exception is a document of many flags that cannot be read: which flags it sets is only known from the
last version that could be read, so that is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from wigwag.dflag.flag import Put
from wigwag.dflag.naming import did_you_mean
from wigwag.dflag.origin import Origin, Slot
from wigwag.dflag.updating.contents import Contents, Unreadable
from wigwag.dflag.updating.health import Level, Problem
from wigwag.dflag.updating.places import Place, rank
from wigwag.errors import DocumentError, FlagError

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.documents import Node, ValuesDocument
    from wigwag.dflag.updating.policy import Policy

_DOCUMENTS = (".yaml", ".yml", ".json", ".toml", ".env")
_HINT = "; if it holds many flags, name it with --config-documents, or in the `documents` of its place"
_MOST_HINTS = 10
Picture: TypeAlias = Mapping[Place, Contents]
"""The contents of each place that could be read."""
LARGE = 16 << 10
"""The least size of a document that is worth a thread, in bytes; the slowest parser takes about a second for 1 MiB."""


class ValueOutcome(NamedTuple):
    """The result of parsing a value."""

    content: bytes | Unreadable | Node
    flag: DynFlag[Any] | None
    value: Any = None
    problem: Problem | None = None


class Opened(NamedTuple):
    """The result of parsing a document."""

    content: bytes | Unreadable
    document: ValuesDocument | None = None
    """The last version that could be read; None: it never could."""
    problem: Problem | None = None


_NEVER = Opened(Unreadable("it was never read"))


@dataclass(slots=True)
class Plan:
    """The changes to make, and the problems to report."""

    puts: list[Put] = field(default_factory=list)
    outcomes: dict[tuple[Place, str], ValueOutcome] = field(default_factory=dict)
    opened: dict[tuple[Place, str], Opened] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    restart: dict[str, str] = field(default_factory=dict)
    """Static flags that have a new value, and why."""
    refused: bool = False
    """Whether no change is made because of the problems."""

    def document(self, place: Place, key: str, content: bytes | Unreadable) -> Opened:
        """Return a document as it was, or parse it if it has changed; its last version stays if it cannot be read."""
        from wigwag.dflag.updating.documents import read_document

        before = self.opened.get((place, key), _NEVER)
        if before.content == content:
            return before
        if isinstance(content, Unreadable):
            return Opened(content, before.document, Problem("error", place.title, key, content.reason))
        try:
            return Opened(content, read_document(key, content))
        except DocumentError as error:
            return Opened(content, before.document, Problem("error", place.title, key, str(error), _digest(content)))

    def large_documents(self, picture: Picture) -> list[tuple[Place, str, bytes]]:
        """Return the large documents in a picture that have changed."""
        keys = ((place, key, content) for place, contents in picture.items() for key, content in contents.items())
        return [
            (place, key, content)
            for place, key, content in keys
            if isinstance(content, bytes) and len(content) >= LARGE and _is_document(place, key)
            if self.opened.get((place, key), _NEVER).content != content
        ]


def plan(flags: FlagSet, picture: Picture, before: Plan, policy: Policy, *, static: bool) -> Plan:
    """Decide the values of the flags; `before` is the last plan. With `static`, static flags may still change."""
    planner = _Planner(flags, before, policy, static)
    for place, contents in picture.items():
        planner.add(place, contents)
    return planner.plan()


class _Planner:
    def __init__(self, flags: FlagSet, before: Plan, policy: Policy, static: bool) -> None:
        self._flags, self._before, self._policy, self._static = flags, before, policy, static
        self._plan, self._hints = Plan(), 0
        self._wanted: dict[tuple[Slot, DynFlag[Any]], tuple[str, ValueOutcome]] = {}

    def add(self, place: Place, contents: Contents) -> None:
        """Add the contents of a place: documents in the order of their patterns, then single keys, by name."""
        slot = Slot(Origin.CONFIGMAP, place.title, place.position)
        unread = []
        for key in sorted(contents, key=lambda key: (rank(place.documents, key), key)):
            if _is_document(place, key):
                unread += [] if self._add_document(place, slot, key, contents[key]) else [key]
            elif (name := place.names.flag(key)) is not None:
                self._add_value(place, slot, key, contents[key], self._flags.find(name))
        if unread:
            self._keep_missing(slot, unread[0])
        else:
            self._drop_missing(slot)

    def _add_document(self, place: Place, slot: Slot, key: str, content: bytes | Unreadable) -> bool:
        """Add the values of a document, or of its last good version; return False if there is none."""
        from wigwag.dflag.updating.documents import unfold

        opened = self._plan.opened[place, key] = self._before.document(place, key, content)
        if opened.problem is not None:
            self._plan.problems.append(opened.problem)
        if opened.document is None:
            return False
        for name, flag, node in unfold(opened.document, place.names, self._flags):
            self._add_value(place, slot, f"{key}#{name}", node, flag)
        return True

    def _add_value(
        self, place: Place, slot: Slot, key: str, content: bytes | Unreadable | Node, flag: DynFlag[Any] | None
    ) -> None:
        """Add a value, and note which flag it sets."""
        outcome = self._before.outcomes.get((place, key))
        if outcome is None or outcome.content != content or outcome.flag is not flag:
            outcome = self._outcome(place.title, key, content, flag)
        self._plan.outcomes[place, key] = outcome
        if outcome.problem is not None:
            self._plan.problems.append(outcome.problem)
        if flag is None:
            return
        other = self._wanted.get((slot, flag))
        if other is not None:
            reason = f"sets the flag {flag.name!r}, as {other[0]} does: this one counts"
            self._plan.problems.append(Problem("warning", slot.place, key, reason))
        self._wanted[slot, flag] = key, outcome

    def _missing(self, slot: Slot) -> list[DynFlag[Any]]:
        """Return the flags that had a value from a place and have none now."""
        return [flag for flag in self._flags if slot in flag.layers and (slot, flag) not in self._wanted]

    def _keep_missing(self, slot: Slot, key: str) -> None:
        """Report the flags that keep a value that is gone, because a document that was never read may set it."""
        held = [flag.name for flag in self._missing(slot)]
        if held:
            names = ", ".join(held[:_MOST_HINTS]) + (", …" if len(held) > _MOST_HINTS else "")
            reason = f"it may set flags that nothing else sets any more, so they keep their values: {names}"
            self._plan.problems.append(Problem("warning", slot.place, key, reason))

    def _drop_missing(self, slot: Slot) -> None:
        """Decide about the flags that had a value from a place and have none now."""
        for flag in self._missing(slot):
            if self._policy.on_missing == "error":
                self._plan.problems.append(Problem("error", slot.place, flag.name, "the key is gone; its value stays"))
            elif self._policy.on_missing == "default":
                self._put(Put(flag, slot, drop=True), f"{slot.place}/{flag.name} is gone")

    def plan(self) -> Plan:
        """Return the whole plan."""
        for (slot, flag), (key, outcome) in self._wanted.items():
            held, part = flag.layers.get(slot), "" if isinstance(outcome.content, bytes) else key
            if outcome.problem is None and (held is None or held.value is not outcome.value or held.part != part):
                self._put(Put(flag, slot, outcome.value, part=part), f"{slot.place}/{key} has another value")
        if self._policy.atomic == "all" and any(problem.level == "error" for problem in self._plan.problems):
            self._plan.puts, self._plan.refused = [], True
        return self._plan

    def _outcome(
        self, place: str, key: str, content: bytes | Unreadable | Node, flag: DynFlag[Any] | None
    ) -> ValueOutcome:
        if flag is None:
            return ValueOutcome(content, None, problem=self._unknown(place, key))
        if isinstance(content, Unreadable):
            return ValueOutcome(content, flag, problem=Problem("error", place, key, content.reason))
        try:
            return ValueOutcome(content, flag, _parsed(flag, content))
        except FlagError as error:
            return ValueOutcome(content, flag, problem=Problem("error", place, key, error.reason, _digest(content)))

    def _unknown(self, place: str, key: str) -> Problem | None:
        if self._policy.unknown == "ignore":
            return None
        level: Level = "error" if self._policy.unknown == "error" else "warning"
        hint = _HINT if key.endswith(_DOCUMENTS) else ""
        if not hint and self._hints < _MOST_HINTS:  # only for a few, because it takes time
            self._hints += 1
            hint = did_you_mean(key.rpartition("#")[2], [each for flag in self._flags for each in flag.names])
        return Problem(level, place, key, f"there is no such flag in the set {self._flags.name!r}{hint}")

    def _put(self, put: Put, why: str) -> None:
        """Add a change, or note that it takes a restart."""
        if put.flag.dynamic or self._static:
            self._plan.puts.append(put)
            return
        held = put.flag.layers.get(put.slot, put.flag.held)
        if put.drop or not put.flag.same(held.value, put.value):
            self._plan.restart[put.flag.name] = why


def _is_document(place: Place, key: str) -> bool:
    return rank(place.documents, key) < len(place.documents)


def _parsed(flag: DynFlag[Any], content: bytes | Node) -> Any:
    if isinstance(content, bytes):
        return flag.parse(content)
    from wigwag.dflag.updating.documents import value_of

    return value_of(flag, content)


def _digest(content: bytes | Node) -> str:
    return sha256(content if isinstance(content, bytes) else repr(content).encode()).hexdigest()[:16]
