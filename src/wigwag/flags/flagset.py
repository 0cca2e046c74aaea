"""A set of flags that never changes: what evaluations read, and what merging, selecting and diffing make new ones of.

    layers (one per source, lowest priority first)  ──▶  winners by (flag set, key)  ──▶  look-up by key

Every layer is kept whole, so a definition that lost takes over when the winner's source drops it.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from wigwag.errors import UsageError
from wigwag.flags.checks.findings import layer_problems
from wigwag.flags.digests import Digests, changed
from wigwag.flags.evaluate import TYPES, Budget, conclude, conclude_all, not_found, tabulate
from wigwag.flags.selector import Selector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from wigwag.flags.explain import Explanation
    from wigwag.flags.flag import Flag, Table
    from wigwag.flags.model import Finding, FlagType, Json, Resolution
    from wigwag.flags.parse import Layer

    Context = Mapping[str, Json]

D = TypeVar("D")
Float: TypeAlias = float  # a `FlagSet` has methods with the names of these two
Anything: TypeAlias = object


_STEPS_PER_FLAG = 20


class FlagSet:
    """Flags in force, as one immutable value.

    >>> import wigwag
    >>> new_ui = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
    >>> flags = wigwag.load({"flags": {"new-ui": new_ui}})
    >>> flags.keys(), len(flags), "new-ui" in flags
    (('new-ui',), 1, True)
    """

    def __init__(
        self,
        layers: Iterable[Layer],
        clock: Callable[[], Float],
        reflected: dict[str, Json] | None = None,
        whole: FlagSet | None = None,
    ) -> None:
        self.layers = tuple(layers)
        self.clock = clock
        self._whole = whole  # no reference to itself: nothing should have to wait for the garbage collector
        self._sets = _winners(self.layers)
        self._by_key = _by_key(self.layers, self._sets)
        self.reflected = reflected or {}
        """The selector, as metadata of resolutions, if this set is a selection."""
        self._tables: dict[str | None, dict[str, Table]] = {name: {} for name in (None, *TYPES)}
        self._together: tuple[tuple[str, ...], list[Table]] = (), []
        """The keys that a request asked for together last, and their tables."""
        self._digests: Digests | None = None

    @property
    def whole(self) -> FlagSet:
        """The set that this is a selection of, or this set."""
        return self if self._whole is None else self._whole

    @property
    def sets(self) -> Mapping[str, dict[str, Flag]]:
        """The flags in force, by flag set and key."""
        return self._sets

    @overload
    def resolve(
        self, key: str, type: Literal["boolean"], default: D, context: Context | None = None, now: Float | None = None
    ) -> Resolution[bool | D]: ...
    @overload
    def resolve(
        self, key: str, type: Literal["string"], default: D, context: Context | None = None, now: Float | None = None
    ) -> Resolution[str | D]: ...
    @overload
    def resolve(
        self, key: str, type: Literal["integer"], default: D, context: Context | None = None, now: Float | None = None
    ) -> Resolution[int | D]: ...
    @overload
    def resolve(
        self, key: str, type: Literal["float"], default: D, context: Context | None = None, now: Float | None = None
    ) -> Resolution[Float | D]: ...
    @overload
    def resolve(
        self, key: str, type: Literal["object"], default: D, context: Context | None = None, now: Float | None = None
    ) -> Resolution[dict[str, Json] | D]: ...
    @overload
    def resolve(
        self,
        key: str,
        type: FlagType | None = None,
        default: Json = None,
        context: Context | None = None,
        now: Float | None = None,
        budget: Budget | None = None,
    ) -> Resolution: ...
    def resolve(
        self, key: str, type: Any = None, default: Any = None, context: Any = None, now: Any = None, budget: Any = None
    ) -> Resolution:
        """Evaluate one flag.

        `type` is boolean, string, integer, float, object, or None for any. `now` is the time in Unix seconds that rules
        see as `$flagd.timestamp`; without it the clock given to `load` is read, and only by rules that ask. A `budget`
        is shared by several evaluations.

        >>> import wigwag
        >>> flags = wigwag.load('''
        ... flags:
        ...   banner:
        ...     state: ENABLED
        ...     variants: {on: true, off: false}
        ...     defaultVariant: off
        ...     targeting: {if: [{ends_with: [{var: email}, "@example.com"]}, on]}
        ... ''')
        >>> flags.resolve("banner", "boolean", False, {"email": "fay@example.com"}).variant
        'on'
        >>> flags.resolve("banner", "string", "x").error
        'TYPE_MISMATCH'
        """
        try:
            table = self._tables[type].get(key)
        except (KeyError, TypeError):
            table = self._tables[self._known(type)].get(key)
        if table is None:
            flag = self._by_key.get(key)
            if flag is None:
                return not_found(key, default, self.reflected)
            table = self._tables[type][key] = _table(flag, type)
        settled = table.settled
        if settled is not None:
            return settled
        return conclude(table, default, context, now, self.clock, budget)

    def resolve_all(self, keys: tuple[str, ...], context: Context | None, budget: Budget) -> list[Resolution]:
        """Evaluate flags of this set, of any type, as one request that shares a budget and the time."""
        last, tables = self._together
        if last is not keys:
            known = self._tables[None]
            tables = [known.get(key) or known.setdefault(key, _table(self._by_key[key], None)) for key in keys]
            self._together = keys, tables
        return conclude_all(tables, context, self.clock, budget)

    def compile_rules(self, larger_than: int) -> None:
        """Compile the rules whose text is larger than so many bytes, so that no evaluation has to."""
        for flags in self._sets.values():
            for flag in flags.values():
                if not flag.disabled and flag.rule_size > larger_than:
                    _ = flag.program

    def budget(self) -> Budget:
        """Return a budget for the evaluation of all flags: the limit for one, and a little for each."""
        steps = max((layer.setting.options.limits.steps for layer in self.layers), default=0)
        return Budget(steps + _STEPS_PER_FLAG * len(self))

    def boolean(self, key: str, default: bool, context: Context | None = None) -> bool:
        """Return the value of a boolean flag, or the default: if there is no such flag, or no value of that type.

        There is one such method for each type. `resolve` also returns the variant, the reason and the error.

        >>> import wigwag
        >>> flag = {"state": "ENABLED", "variants": {"a": 3.5}, "defaultVariant": "a"}
        >>> flags = wigwag.load({"flags": {"size": flag}})
        >>> flags.float("size", 1.0), flags.integer("size", 1), flags.string("size", "S"), flags.boolean("new", False)
        (3.5, 3, 'S', False)
        """
        return self.resolve(key, "boolean", default, context).value

    def string(self, key: str, default: str, context: Context | None = None) -> str:
        """Return the value of a string flag, or the default."""
        return self.resolve(key, "string", default, context).value

    def integer(self, key: str, default: int, context: Context | None = None) -> int:
        """Return the value of a flag as a whole number, or the default."""
        return self.resolve(key, "integer", default, context).value

    def float(self, key: str, default: Float, context: Context | None = None) -> Float:
        """Return the value of a flag as a number, or the default."""
        return self.resolve(key, "float", default, context).value

    def object(self, key: str, default: Mapping[str, Json], context: Context | None = None) -> Mapping[str, Json]:
        """Return the value of an object flag, or the default. Do not change it: it is shared between calls."""
        return self.resolve(key, "object", default, context).value

    def explain(
        self,
        key: str,
        context: Context | None = None,
        now: Float | None = None,
        type: FlagType | None = None,
    ) -> Explanation:
        """Evaluate one flag and explain the result: a tree of the input and output of each operator.

        >>> import wigwag
        >>> rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
        >>> flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off", "targeting": rule}
        >>> print(wigwag.load({"flags": {"a": flag}}).explain("a", {"tier": "gold"}))
        a = 1 (variant on, TARGETING_MATCH)
        └─ if → "on"   branch 1 taken
           ├─ == → true
           │  ├─ var tier → "gold"
           │  └─ "gold"
           └─ "on"
        """
        from wigwag.flags.explain import Explanation, explain

        flag = self._by_key.get(key)
        if flag is None:
            return Explanation(key, not_found(key, None, self.reflected))
        return explain(flag, self._known(type), context, self.clock() if now is None else now)

    def _known(self, type: str | None) -> str | None:
        if type not in self._tables:
            raise UsageError(f"unknown flag type {type!r}: use one of {', '.join(TYPES)}, or None for any")
        return type

    def keys(self) -> tuple[str, ...]:
        """Return the keys of all flags, sorted."""
        return tuple(sorted(self._by_key))

    def flag(self, key: str) -> Flag | None:
        """Return the flag that answers for a key."""
        return self._by_key.get(key)

    def flags(self) -> tuple[Flag, ...]:
        """Return every flag in force, sorted by flag set and key."""
        return tuple(flags[key] for _, flags in sorted(self._sets.items()) for key in sorted(flags))

    def select(self, selector: str) -> FlagSet:
        """Return the flags that match a selector: `flagSetId=ID`, `flagSetId=` (in no set), `source=URI`, or a source.

        >>> import wigwag
        >>> flag = {"key": "a", "state": "ENABLED", "variants": {"on": 1}, "metadata": {"flagSetId": "blue"}}
        >>> flags = wigwag.load({"flags": [flag]})
        >>> flags.select("flagSetId=blue").keys(), flags.select("flagSetId=red").keys()
        (('a',), ())
        """
        wanted, winners = Selector.parse(selector), self._sets

        def choose(flag: Flag) -> Flag | None:
            return wanted.choose(flag) if winners[flag.set_id][flag.key] is flag else None

        chosen = [layer.only(choose, wanted.only_set) for layer in self.layers]
        layers = [layer for layer in chosen if any(layer.sets.values())]  # metadata of the others does not apply
        return FlagSet(layers, self.clock, wanted.reflected, self.whole)

    def nothing(self, selector: str) -> FlagSet:
        """Return the empty selection of a selector that matches no flag, without looking at the flags."""
        return FlagSet((), self.clock, Selector.parse(selector).reflected, self.whole)

    @cached_property
    def metadata(self) -> dict[str, Json]:
        """Flag-set metadata; of several layers, the later ones win."""
        merged: dict[str, Json] = {}
        for layer in self.layers:
            merged |= layer.setting.metadata
        return merged

    @cached_property
    def id(self) -> str:
        """A digest of the content: equal flags, however they were written, have the same id."""
        if self._digests is None:
            self._digests = Digests.of(flag for flags in self._sets.values() for flag in flags.values())
        return self._digests.all(repr(sorted(self.metadata.items(), key=lambda item: item[0])).encode())

    def after(self, previous: FlagSet) -> FlagSet:
        """Take over the digests of a set that most of these flags were in, so that `id` costs what changed."""
        if self._digests is None and previous._digests is not None:
            self._digests = previous._digests.after(changed(previous.sets, self._sets))
        return self

    @cached_property
    def problems(self) -> tuple[Finding, ...]:
        """What is wrong with the documents: flags in quarantine, rules that will fail, departures from the schema."""
        return tuple(chain.from_iterable(layer_problems(layer) for layer in self.layers))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the flags without what is derived from them."""
        return FlagSet, (self.layers, self.clock, self.reflected, self._whole)

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: Anything) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __eq__(self, other: Anything) -> bool:
        return isinstance(other, FlagSet) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<FlagSet {self.id[:12]}: {len(self)} flags>"


def _table(flag: Flag, type: str | None) -> Table:
    return flag.tables.get(type) or tabulate(flag, type)


def _winners(layers: tuple[Layer, ...]) -> dict[str, dict[str, Flag]]:
    """Return the flags in force by flag set and key: of several definitions, that of the highest layer."""
    if len(layers) == 1:
        return layers[0].sets
    winners: dict[str, dict[str, Flag]] = {}
    for layer in layers:
        for set_id, flags in layer.sets.items():
            winners[set_id] = winners.get(set_id, {}) | flags
    return winners


def _by_key(layers: tuple[Layer, ...], sets: dict[str, dict[str, Flag]]) -> dict[str, Flag]:
    """Return the flag that answers for each key: where several flag sets have it, that of the highest layer."""
    if len(sets) <= 1:
        return next(iter(sets.values()), {})
    answering: dict[str, Flag] = {}
    for layer in layers[:-1]:
        for set_id, flags in layer.sets.items():
            answering |= {key: flag for key, flag in flags.items() if sets[set_id][key] is flag}
    for flags in layers[-1].sets.values():
        answering |= flags  # nothing is above them
    return answering
