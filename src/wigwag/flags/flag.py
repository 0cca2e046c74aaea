"""One flag: its definition, and what is derived from it on first use.

Loading ten thousand flags must not compile ten thousand rules, so everything beyond the shape of a definition (the
closures of the rule, the tables of prepared answers, the digest) is made when it is first asked for, and kept. A flag
that did not change in a re-load is the same object, with all of that.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from wigwag.errors import DocumentError
from wigwag.flags.document import Definition, decode
from wigwag.flags.model import Finding, Fractional, Limits, Numbers, Resolution, canonical, child, render
from wigwag.flags.rules import refs
from wigwag.flags.rules.compile import Program, compile_rule
from wigwag.flags.rules.site import failing

if TYPE_CHECKING:
    from wigwag.flags.model import Json, Where
    from wigwag.flags.rules.site import Watch

DISABLED_STATE = "DISABLED"
_NOTHING: dict[Any, Any] = {}


class LoadSettings(Struct, frozen=True):
    """How documents are read and evaluated."""

    fractional: Fractional = "v2"
    numbers: Numbers = "truncate"
    limits: Limits = Limits()


class DocumentDefaults(Struct, frozen=True):
    """What flags of one document share."""

    source: str
    metadata: dict[str, Any]
    evaluators: dict[str, Any]
    options: LoadSettings


class Table(Struct, eq=False):
    """The prepared answers of one flag for one requested type."""

    key: str
    type: str | None
    metadata: dict[str, Any]
    variants: dict[str, Any]
    default_variant: str | None
    disabled: bool
    settled: Resolution | None
    """The answer that needs no evaluation."""
    program: Program | None
    matched: dict[str, Resolution]
    default: Resolution | None


class Flag(Struct, eq=False, gc=False):
    """A flag as it is in force. Nothing it holds points back to it, so it is left out of garbage collection."""

    key: str
    set_id: str
    definition: Definition
    metadata: dict[str, Any]
    """Flag-set metadata overlaid by the flag's own."""
    setting: DocumentDefaults
    place: str | int
    """Where it stands under `flags`: the name in a map, the index in an array."""
    tables: dict[str | None, Table] = _NOTHING
    _rule: Any = UNSET
    _program: Program | None = None
    _digest: bytes = b""
    findings: tuple[Finding, ...] | None = None
    """What is wrong with it, once it was checked."""
    written: str = ""
    """The flag as a member of a sync document, cached: see `member`."""
    _reflecting: dict[str, Flag] | None = None

    @property
    def where(self) -> Where:
        """The place of the definition."""
        return ("$.flags", self.place)

    @property
    def path(self) -> str:
        """The JSON path of the definition."""
        return render(self.where)

    @property
    def variants(self) -> dict[str, Any]:
        """Variant names and values."""
        return self.definition.variants or _NOTHING

    @property
    def default_variant(self) -> str | None:
        """The variant for those that no rule matches; null and empty mean none."""
        return self.definition.defaultVariant or None

    @property
    def disabled(self) -> bool:
        """Whether the flag is switched off. Any state but DISABLED counts as enabled, as in flagd."""
        return self.definition.state == DISABLED_STATE

    @property
    def source(self) -> str:
        """Where the definition came from."""
        return self.setting.source

    @property
    def fractional(self) -> Fractional:
        """The hashing version: the metadata member `fractional`, else the option."""
        wanted = self.metadata.get("fractional")
        return wanted if wanted in ("v2", "v3") else self.setting.options.fractional

    @property
    def targeted(self) -> bool:
        """Whether there is a rule. `{}` is none; `null` is one that never matches."""
        raw = self.definition.targeting
        return isinstance(raw, Raw) and bytes(raw).translate(None, b" \t\r\n") != b"{}"

    @property
    def rule_size(self) -> int:
        """Bytes of the rule's text; 0 if there is none."""
        raw = self.definition.targeting
        return len(bytes(raw)) if isinstance(raw, Raw) else 0

    @property
    def rule(self) -> Json:
        """The targeting rule as it stands in the document. Raises `DocumentError` if it cannot be decoded."""
        if self._rule is UNSET:
            raw = self.definition.targeting
            self._rule = decode(raw, child(self.path, "targeting")) if isinstance(raw, Raw) else None
        return self._rule

    @property
    def program(self) -> Program:
        """The compiled rule: made once, for all types and for the flag as selections reflect it."""
        if self._program is None:
            self._program = self.compiled()
        return self._program

    def compiled(self, watch: Watch | None = None) -> Program:
        """Compile the rule; one that cannot be decoded becomes one that fails."""
        evaluators, limits = self.setting.evaluators, self.setting.options.limits
        try:
            path = (self.where, "targeting")
            return compile_rule(self.rule, self.key, evaluators, self.fractional, limits, watch, path=path)
        except DocumentError as error:
            return Program(failing(str(error)))

    def to_dict(self) -> dict[str, Json]:
        """Return the flag as flagd's sync payload has it: `$ref`s resolved, metadata merged."""
        flag: dict[str, Json] = {
            "state": self.definition.state or "",
            "defaultVariant": self.default_variant or "",
            "variants": self.variants,
        }
        if self.targeted:
            flag["targeting"] = self._inlined()
        flag["source"] = self.source
        if self.metadata:
            flag["metadata"] = self.metadata
        return flag

    @property
    def member(self) -> str:
        """The flag as a member of the flags of a sync document: its key, a colon, and its definition."""
        if not self.written:
            self.written = msgspec.json.encode({self.key: self.to_dict()})[1:-1].decode()
        return self.written

    def forget(self) -> None:
        """Drop what only a flag in force needs, and what can be made again."""
        self.written, self._reflecting = "", None

    def reflecting(self, name: str, value: str) -> Flag:
        """Return the flag with the selection in its metadata, unless it is there already: the same object each time.

        A flag has one source and one flag set, so there is at most one such flag for each of the two.
        """
        if name in self.metadata:
            return self
        flag = self._reflecting.get(name) if self._reflecting else None
        if flag is None:
            flag = replace(
                self,
                metadata={name: value, **self.metadata},
                tables={},
                _digest=b"",
                findings=None,
                written="",
                _reflecting=None,
            )
            self._reflecting = {**(self._reflecting or {}), name: flag}
        return flag

    def _inlined(self) -> Json:
        """Return the rule with its references resolved; one that cannot be, so that it fails elsewhere, too."""
        try:
            return refs.inline(self.rule, self.setting.evaluators)
        except DocumentError as error:
            return {"unusable-rule": [str(error)]}

    @property
    def digest(self) -> bytes:
        """A digest of everything that matters: equal content, however it was written, has the same."""
        if not self._digest:
            self._digest = blake2b(self._content(), digest_size=16).digest()
        return self._digest

    def _content(self) -> bytes:
        """Return what the digest is about: the definition, what it inherits, its evaluators, how it is evaluated."""
        definition, evaluators = self.definition, self.setting.evaluators
        try:
            rule, reached = self.rule, refs.reachable(self.rule, evaluators) if self.targeted else {}
        except DocumentError:
            rule, reached = bytes(definition.targeting).hex() if definition.targeting else None, {}
        own = [
            definition.state or "",
            definition.defaultVariant or "",
            self.variants,
            self.targeted and [rule],
            reached,
        ]
        inherited = [self.metadata, self.source, self.set_id, self.key, self.fractional, self.setting.options.numbers]
        return canonical([*own, *inherited])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the definition without what is derived from it."""
        return Flag, (self.key, self.set_id, self.definition, self.metadata, self.setting, self.place)
