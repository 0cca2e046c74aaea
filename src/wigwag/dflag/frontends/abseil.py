"""Flags of ours among those of absl, and flags of absl made dynamic.

    define(flags)                   our flags are flags of absl, too: --rate=5, --nodry_run, --flagfile, FLAGS.rate
    rate = dynamic(flags, _RATE)    a flag of absl is one of ours, too: a ConfigMap changes it, and with it FLAGS.rate

Either way there is one value, and both sides see it. absl sets a flag as soon as it has parsed it, so here a command
line is not one generation. Its validators are called before a value is set. One over several flags is called with the
current values of the others, so two keys of a ConfigMap that are only valid together are rejected.

absl appends to its lists, and so may its users: they get copies, and ours are immutable. Secrets are in none of its
help texts, and not in the output for `--flagfile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from wigwag.dflag.flag import Put
from wigwag.dflag.frontends.options import COMMAND_LINE, commit, help_text, is_switch, needs, parsed
from wigwag.dflag.origin import HIDDEN, Origin, Slot, strongest
from wigwag.dflag.traits import one_or_many
from wigwag.dflag.values.containers import list_kind
from wigwag.dflag.values.frozen import FrozenDict, FrozenList, freeze
from wigwag.dflag.values.kinds import STR, ValueKind
from wigwag.dflag.values.numerals import format_bool
from wigwag.errors import FlagError

try:
    from absl import flags as absl
except ModuleNotFoundError as error:
    raise needs("absl-py", "absl") from error

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.traits import FlagOptions

T = TypeVar("T")
_PROGRAM = Slot(Origin.PROGRAM)
_TEXTS = list_kind(STR)
absl.disclaim_key_flags()  # flags defined here belong to the calling module, and appear in its --help


def define(flags: FlagSet, values: absl.FlagValues = absl.FLAGS) -> None:
    """Define each flag in absl as well, under each of its names.

    >>> from wigwag import dflag
    >>> flags, values = dflag.FlagSet("example"), absl.FlagValues()
    >>> rate, dry = flags.int("rate", 10), flags.bool("dry_run", True)
    >>> define(flags, values)
    >>> values(["program", "--rate=20", "--nodry_run", "file"])
    ['program', 'file']
    >>> rate.get(), str(rate.held), dry.get()
    (20, 'command line', False)
    >>> rate.set("30"); values.rate
    30
    """
    for flag in flags:
        for name in flag.names:
            absl.DEFINE_flag(_Shown(flag, name), values)


class _Parser(absl.ArgumentParser[Any]):
    """Parses a text for absl."""

    def __init__(self, flag: DynFlag[Any], name: str) -> None:
        self._flag, self._name = flag, name

    def parse(self, argument: Any) -> Any:
        """Return the value of a text; anything else is a value already."""
        try:
            return parsed(self._flag, argument) if isinstance(argument, str) else self._flag.admit(argument)
        except FlagError as error:
            raise absl.IllegalFlagValueError(f"flag --{self._name}: {error.reason}") from None

    def flag_type(self) -> str:
        return self._flag.kind.name


class _Serializer(absl.ArgumentSerializer[Any]):
    """Formats a value for absl; secrets are hidden."""

    def __init__(self, flag: DynFlag[Any]) -> None:
        self._flag = flag

    def serialize(self, value: Any) -> str:
        return HIDDEN if self._flag.secret else self._flag.kind.format(value)


class _Shown(absl.Flag[Any]):
    """A flag of ours, as absl sees it. It has no value of its own."""

    def __init__(self, flag: DynFlag[Any], name: str) -> None:
        self._flag = flag
        super().__init__(
            _Parser(flag=flag, name=name),  # by keyword: absl caches parsers with positional arguments for ever
            _Serializer(flag),
            name,
            None,
            help_text(flag, default=False),
            boolean=is_switch(flag),
        )
        if flag.secret:
            _hide(self)

    @property
    def value(self) -> Any:
        """The current value."""
        return self._flag.get()

    @value.setter
    def value(self, value: Any) -> None:
        """Set what the program assigns. A value that would apply anyway is absl undoing an assignment that failed."""
        beneath = {slot: held for slot, held in self._flag.layers.items() if slot != _PROGRAM}
        held = strongest(beneath.values(), self._flag.owner.precedence)
        if value is None or self._flag.same(held.value, value):
            self._flag.reset()
        else:
            commit([Put(self._flag, _PROGRAM, self.parser.parse(value))])

    @property
    def default(self) -> Any:
        """The current default."""
        return self._flag.default

    @default.setter
    def default(self, value: Any) -> None:
        if value is not None:
            self._flag.set_default(value)

    def parse(self, argument: Any) -> None:
        """Set the value of a command line."""
        commit([Put(self._flag, COMMAND_LINE, self.parser.parse(argument))])
        self.present += 1

    def unparse(self) -> None:
        """Drop the value of the command line."""
        commit([Put(self._flag, COMMAND_LINE, drop=True)])
        super().unparse()


def dynamic(
    flags: FlagSet,
    holder: absl.FlagHolder[T],
    values: absl.FlagValues = absl.FLAGS,
    **options: Unpack[FlagOptions[T]],
) -> DynFlag[T]:
    """Make a flag of absl one of ours, too; a change on either side is seen on both.

    >>> from wigwag import dflag
    >>> flags, values = dflag.FlagSet("example"), absl.FlagValues()
    >>> port = absl.DEFINE_integer("port", 80, "where to listen", lower_bound=1, flag_values=values)
    >>> rate = dynamic(flags, port, values)
    >>> _ = values(["program", "--port=8080"])
    >>> rate.get(), str(rate.held)
    (8080, 'command line')
    >>> rate.set("8443"); port.value
    8443
    """
    theirs = values[holder.name]
    default: Any = _frozen(theirs.default)
    bridge = _Bridge(theirs, values, default)
    checks = [bridge.check, *one_or_many(options.pop("validators", ()))]
    ours: DynFlag[T] = flags.define(holder.name, _kind(theirs), default, theirs.help, {**options, "validators": checks})
    bridge.join(ours)
    if ours.secret:
        _hide(theirs)
    return ours


class _Bridge:
    """Keeps a flag of absl and ours equal."""

    def __init__(self, theirs: absl.Flag[Any], values: absl.FlagValues, default: Any) -> None:
        self._theirs, self._values, self._default, self._read = theirs, values, default, 0

    def check(self, value: Any) -> None:
        """Raise if a validator of absl rejects a value; absl itself checks the default, when it parses a line."""
        if value is self._default or value is self._theirs.default:
            return
        for validator in self._theirs.validators:
            if validator.checker != self.copy_from_absl:
                _call(validator, self._values, self._theirs.name, value)

    def join(self, ours: DynFlag[Any]) -> None:
        """Connect both sides. absl has no notifiers, but it calls validators with each value."""
        self._ours = ours
        if not self._theirs.using_default_value:
            self.copy_from_absl(self._theirs.value)
        ours.on_change(self._copy_to_absl, "sync")
        absl.register_validator(self._theirs.name, self.copy_from_absl, flag_values=self._values)  # type: ignore[no-untyped-call, unused-ignore]

    def _copy_to_absl(self, old: Any, new: Any) -> None:
        self._theirs.value = _thawed(new)

    def copy_from_absl(self, value: Any) -> bool:
        """Set our flag to a value of absl; `ValidationError` if it is rejected."""
        slot = COMMAND_LINE if self._theirs.present > self._read else _PROGRAM
        self._read = self._theirs.present
        if not self._ours.same(self._ours.get(), value):
            try:
                self._ours.refuse_if_static()
                commit([Put(self._ours, slot, self._ours.admit(value))])
            except FlagError as error:
                raise absl.ValidationError(error.reason) from None
            self._theirs.value = _thawed(self._ours.get())
        return True


def _call(validator: Any, values: absl.FlagValues, name: str, value: Any) -> None:
    """Call a validator with a value that the flag does not have yet."""
    names = validator.get_flags_names()
    values_by_name = {each: value if each == name else values[each].value for each in names}
    try:
        good = validator.checker(values_by_name if hasattr(validator, "flag_names") else value)
    except absl.ValidationError as error:
        raise ValueError(str(error)) from None
    if not good:
        raise ValueError(validator.message)


def _kind(flag: absl.Flag[Any]) -> ValueKind[Any]:
    """Return the kind of an absl flag; its value may be None, which has no text."""
    parse, serializer, name = flag.parser.parse, flag.serializer, flag.parser.flag_type()

    def write(value: Any) -> str:
        if isinstance(value, bool):
            return format_bool(value)
        return "" if value is None else str(value) if serializer is None else serializer.serialize(value)

    if isinstance(flag, absl.MultiFlag):
        return ValueKind(
            f"list of {name}",
            lambda text: FrozenList(map(parse, _TEXTS.parse(text))),
            lambda value: _TEXTS.format([*map(write, value or ())]),
            _frozen,
            compose=lambda parts: FrozenList(map(parse, _TEXTS.composed(parts))),
        )
    return ValueKind(name, lambda text: _frozen(parse(text)), write, _frozen)


def _frozen(value: Any) -> Any:
    return value if isinstance(value, FrozenList | FrozenDict) else freeze(value)


def _thawed(value: Any) -> Any:
    """Return a mutable copy."""
    if isinstance(value, FrozenList):
        return [_thawed(item) for item in value]
    return {key: _thawed(item) for key, item in value.items()} if isinstance(value, FrozenDict) else value


def _hide(flag: Any) -> None:
    """Keep the value of a secret flag out of absl's help and flag files."""
    described = flag._create_xml_dom_element

    def hiding(doc: Any, *more: Any, **others: Any) -> Any:
        element = described(doc, *more, **others)
        for child in element.childNodes:
            if child.nodeName in ("default", "current"):
                while child.hasChildNodes():
                    child.removeChild(child.firstChild)
                child.appendChild(doc.createTextNode(HIDDEN))
        return element

    flag._create_xml_dom_element = hiding
    flag._get_parsed_value_as_string = lambda value: None if value is None else repr(HIDDEN)
    flag.default_as_str = flag._get_parsed_value_as_string(flag.default)
    flag.serialize = lambda: f"# --{flag.name} is secret, and left out"
