"""An edit of a flag over HTTP: read from a request (JSON, a form, or a query as in the original), then applied.

An edit is applied under the lock of the flags: the tag is compared, the value is checked, and the effective value is
computed there. So a dry run reports exactly what the edit would do, and nothing can happen between the comparison of a
tag and the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.dflag.flag import Put
from wigwag.dflag.origin import Origin, Slot
from wigwag.dflag.page.listing import fields, truth
from wigwag.dflag.page.messages import FORM, HttpError
from wigwag.dflag.page.state import flag_state, pretty
from wigwag.dflag.values.kinds import DURATION
from wigwag.dflag.values.numerals import parse_duration
from wigwag.errors import FlagError

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.origin import Held
    from wigwag.dflag.page.messages import PageRequest
    from wigwag.dflag.page.state import PageStateCache

LONGEST_TTL = 366 * 86400.0
_TYPES = f"send application/json, or {FORM}"
_FIELDS = ("value", "ttl", "if_match", "validate_only")
_SLOT = Slot(Origin.HTTP)
_STATIC = "it is static: the program has read it already; change it where it is configured, and restart the program"


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw
    ttl: float | str | None = None


@dataclass(frozen=True, slots=True)
class FlagEdit:
    """A change that a request asks for."""

    value: str | msgspec.Raw | None = None
    """A text, or JSON that is not a string; None removes the override."""
    ttl: float | None = None
    """Seconds after which the value expires."""
    validate_only: bool = False
    """Whether this is a dry run."""
    if_match: str = ""
    """Tags of the values that it may replace; empty: of any."""

    def parse(self, flag: AnyFlag) -> Any:
        """Return the value that the flag would hold; `FlagError` if the flag refuses it.

        A string is parsed as `set` does. Other JSON is the value of a flag that is written as JSON; for any other flag
        it must have the flag's own type: 5 is not a string.
        """
        if not isinstance(self.value, msgspec.Raw):
            return flag.parse(self.value or "")
        if flag.kind is DURATION:
            raise FlagError(flag.name, 'a duration is a text with its unit, such as "3s"')
        return flag.parse(bytes(self.value)) if flag.kind.is_json else flag.admit(msgspec.json.decode(self.value))


@dataclass(frozen=True, slots=True)
class EditEffect:
    """What an edit changes, or would change."""

    name: str
    old_value: str
    new_value: str
    changed: bool | None
    """Whether the value changes; None for a secret flag, since the answer would confirm a guess."""
    in_force: bool
    """Whether the edit decides the value, and nothing of higher precedence does."""
    validate_only: bool

    def summary(self) -> str:
        """Return the result of a dry run as a sentence."""
        if not self.in_force:
            return "Accepted, but a value of higher precedence would stay in force."
        if self.changed is None:
            return "Accepted."
        if not self.changed:
            return "Accepted; nothing would change."
        return f"Would change from {self.old_value} to {self.new_value}"


def read_value(request: PageRequest) -> FlagEdit:
    """Read an edit from the body of a request."""
    sent = request.media_type
    if sent == FORM:
        return _from_fields(request, _fields(request, *_FIELDS))
    if sent != "application/json" and not sent.endswith("+json"):
        raise HttpError(415, f"a value cannot be sent as {sent[:100]!r}: {_TYPES}" if sent else _TYPES)
    return _edit(request, _fields(request, "validate_only"), *_decoded(request))


def read_query(request: PageRequest) -> tuple[str, FlagEdit]:
    """Read the name of a flag and an edit from the query, as in the original, or from a form."""
    if request.body and request.media_type != FORM:
        raise HttpError(415, f"send name and value in the query, or as {FORM}")
    given = _fields(request, "name", *_FIELDS)
    if not given.get("name"):
        raise HttpError(400, "the name of the flag is missing: /set?name=NAME&value=VALUE")
    return given["name"], _from_fields(request, given)


def read_reset(request: PageRequest) -> FlagEdit:
    """Read an edit that removes an override."""
    return _edit(request, _fields(request, "validate_only", "if_match"))


def _fields(request: PageRequest, *names: str) -> dict[str, str]:
    """Return the fields of the query and of a form. An unknown one may have been meant to prevent the change."""
    given = {**fields(request.query), **(_form(request) if request.media_type == FORM else {})}
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        use = ", ".join(names)
        raise HttpError(400, f"unknown parameter {unknown[:100]!r}, so nothing was changed; use {use}")
    return given


def _from_fields(request: PageRequest, given: dict[str, str]) -> FlagEdit:
    if "value" not in given:
        raise HttpError(400, "the field value is missing")
    return _edit(request, given, given["value"], given.get("ttl"))


def _edit(
    request: PageRequest, given: dict[str, str], value: str | msgspec.Raw | None = None, ttl: float | str | None = None
) -> FlagEdit:
    dry_run = truth("validate_only", given.get("validate_only", ""))
    return FlagEdit(value, _ttl(ttl), dry_run, given.get("if_match") or request.header("if-match"))


def _form(request: PageRequest) -> dict[str, str]:
    """Read a form. Browsers end lines with CR LF; and curl sends everything as a form by default."""
    if request.body.lstrip()[:1] in (b"{", b"["):
        raise HttpError(400, "the body looks like JSON but is sent as a form: send Content-Type: application/json")
    try:
        text = request.body.decode("ascii")
    except UnicodeDecodeError:
        raise HttpError(400, "a form is ASCII: percent-encode other characters") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields(text).items()}


def _decoded(request: PageRequest) -> tuple[str | msgspec.Raw, float | str | None]:
    try:
        body = msgspec.json.decode(request.body.decode(), type=_Body)
        value = msgspec.json.decode(body.value)
        return value if isinstance(value, str) else body.value, body.ttl
    except UnicodeDecodeError:
        raise HttpError(400, "the body is not UTF-8") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        reason = str(error)[:200]
        raise HttpError(400, f'the body is not of the form {{"value": …, "ttl": seconds}}: {reason}') from None


def _ttl(given: float | str | None) -> float | None:
    """Read the time to live of a value: seconds, or a duration such as 10m.

    >>> _ttl("1.5"), _ttl("10m"), _ttl(30), _ttl("")
    (1.5, 600.0, 30.0, None)
    """
    if given is None or (isinstance(given, str) and not given.strip()):
        return None
    try:
        seconds = _seconds(given)
    except (ValueError, OverflowError):
        raise HttpError(422, "ttl is a number of seconds, or a duration such as 10m or 1h30m") from None
    if not 0 < seconds <= LONGEST_TTL:
        raise HttpError(422, f"ttl must be more than 0 and at most {LONGEST_TTL:.0f} seconds")
    return seconds


def _seconds(given: float | str) -> float:
    try:
        return float(given)
    except ValueError:
        return parse_duration(str(given).strip()).total_seconds()


def apply_edit(flag: AnyFlag, edit: FlagEdit, flags: FlagSet, states: PageStateCache, now: float) -> EditEffect:
    """Set the override of a flag or remove it; in a dry run, only return the effect."""
    if not flag.dynamic:
        raise HttpError(409, f"flag {flag.name!r}: {_STATIC}")
    effects: list[EditEffect] = []

    def decide() -> list[Put]:
        if edit.if_match and not tags(edit.if_match) & {"*", flag_state(flag).tag, states.state().tag}:
            raise HttpError(412, f"flag {flag.name!r}: it has changed since you read it; read it again")
        puts = [Put(flag, slot, drop=True) for slot in flag.layers if slot.origin is Origin.HTTP]
        if edit.value is not None:
            puts = [Put(flag, _SLOT, edit.parse(flag), None if edit.ttl is None else now + edit.ttl)]
        effects.append(_effect(flag, flags.validate(puts).get(flag, flag.held), edit))
        return [] if edit.validate_only else puts

    try:
        flags.commit(decide)
    except FlagError as error:
        raise HttpError(422, str(error)) from error
    return effects[0]


def _effect(flag: AnyFlag, held: Held[Any], edit: FlagEdit) -> EditEffect:
    """Return the effect of an edit after which the flag holds `held`."""
    old, new = (pretty(flag.kind, flag.show(each.value)) for each in (flag.held, held))
    changed = None if flag.secret else not flag.same(flag.held.value, held.value)
    in_force = (held.slot == _SLOT) == (edit.value is not None)
    return EditEffect(flag.name, old, new, changed, in_force, edit.validate_only)


def tags(if_match: str) -> set[str]:
    """Return the tags of an `If-Match` header; a weak one matches nothing.

    >>> sorted(tags('"a", W/"b", c'))
    ['a', 'c']
    """
    parts = (part.strip() for part in if_match.split(","))
    return {part.strip('"') for part in parts if part and not part.startswith("W/")}
