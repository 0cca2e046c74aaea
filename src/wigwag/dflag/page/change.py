"""A change that is asked for, read from a request: as JSON, as a form, or in the query as the original has it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.dflag.page.listing import fields, truth
from wigwag.dflag.page.messages import HttpError
from wigwag.dflag.values.duration import parse_duration
from wigwag.dflag.values.kinds import DURATION
from wigwag.errors import FlagError

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag
    from wigwag.dflag.page.messages import PageRequest

LONGEST_TTL = 366 * 86400.0
FORM = "application/x-www-form-urlencoded"
_FORMS = f"send application/json, or {FORM}"
_FIELDS = ("value", "ttl", "if_match", "validate_only")


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw
    ttl: float | str | None = None


@dataclass(frozen=True, slots=True)
class Typed:
    """A value that was sent as JSON and is no text."""

    json: str
    value: Any


@dataclass(frozen=True, slots=True)
class FlagEdit:
    """What is to be done to a flag."""

    value: str | Typed = ""
    ttl: float | None = None
    """Seconds after which it runs out."""
    validate_only: bool = False
    """Whether only to tell what would happen."""
    if_match: str = ""
    """Tags of the values that it may replace; empty: of any."""

    def read(self, flag: AnyFlag) -> Any:
        """Return the value that the flag would hold; `FlagError` if it refuses.

        A text is what `set` takes. Any other JSON is the value of a flag that is written as JSON, and else must be of
        the flag's own type: 5 is no text.
        """
        if isinstance(self.value, str):
            return flag.parse(self.value)
        if flag.kind is DURATION:
            raise FlagError(flag.name, 'a duration is a text with its unit, such as "3s"')
        return flag.parse(self.value.json) if flag.kind.is_json else flag.admit(self.value.value)


def media_type(request: PageRequest) -> str:
    """Return the type of a body, without parameters."""
    return request.header("content-type").partition(";")[0].strip().lower()


def read_change(request: PageRequest) -> FlagEdit:
    """Read a value from the body."""
    sent = media_type(request)
    switches = fields(request.query)
    if sent == FORM:
        return _from_fields(_known({**switches, **_form(request)}, *_FIELDS), request)
    if sent != "application/json" and not sent.endswith("+json"):
        raise HttpError(415, f"a value cannot be sent as {sent[:100]!r}: {_FORMS}" if sent else _FORMS)
    _known(switches, "validate_only")
    value, ttl = _decoded(request)
    return FlagEdit(value, _ttl(ttl), _validate_only(switches), request.header("if-match"))


def read_query(request: PageRequest) -> tuple[str, FlagEdit]:
    """Read a name and a value from the query, as in the original, or from a form."""
    if request.body and media_type(request) != FORM:
        raise HttpError(415, f"name and value are in the query, or sent as {FORM}")
    given = _known({**fields(request.query), **_form(request)}, "name", *_FIELDS)
    if not given.get("name"):
        raise HttpError(400, "say which flag to set: /set?name=NAME&value=VALUE")
    return given["name"], _from_fields(given, request)


def read_switches(request: PageRequest) -> FlagEdit:
    """Read what a request says that brings no value."""
    given = {**fields(request.query), **(_form(request) if media_type(request) == FORM else {})}
    _known(given, "validate_only", "if_match")
    return FlagEdit("", None, _validate_only(given), given.get("if_match") or request.header("if-match"))


def _known(given: dict[str, str], *names: str) -> dict[str, str]:
    """Return what is given. What is not known is refused, for it may have been meant to keep a change from happening.

    >>> _known({"dry_run": "1"}, "validate_only")
    Traceback (most recent call last):
    wigwag.dflag.page.messages.HttpError: 'dry_run' means nothing here, so nothing was done; there is validate_only
    """
    strange = next((name for name in given if name not in names), None)
    if strange is not None:
        raise HttpError(400, f"{strange[:100]!r} means nothing here, so nothing was done; there is {', '.join(names)}")
    return given


def _from_fields(given: dict[str, str], request: PageRequest) -> FlagEdit:
    if "value" not in given:
        raise HttpError(400, "say what to set it to, in the field value")
    if_match = given.get("if_match") or request.header("if-match")
    return FlagEdit(given["value"], _ttl(given.get("ttl")), _validate_only(given), if_match)


def _form(request: PageRequest) -> dict[str, str]:
    """Read a form. A browser ends lines as a typewriter does; and curl calls a form whatever it is not told about."""
    if request.body.lstrip()[:1] in (b"{", b"["):
        raise HttpError(400, "this looks like JSON and is sent as a form: send Content-Type: application/json")
    try:
        text = request.body.decode("ascii")
    except UnicodeDecodeError:
        raise HttpError(400, "a form is sent in ASCII, with all else written as %XX") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields(text).items()}


def _decoded(request: PageRequest) -> tuple[str | Typed, float | str | None]:
    try:
        body = msgspec.json.decode(request.body.decode(), type=_Body)
        value = msgspec.json.decode(body.value)
        return value if isinstance(value, str) else Typed(bytes(body.value).decode(), value), body.ttl
    except UnicodeDecodeError:
        raise HttpError(400, "the body is not UTF-8") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        said = str(error)[:200]
        raise HttpError(400, f'the body is not of the form {{"value": …, "ttl": seconds}}: {said}') from None


def _validate_only(given: dict[str, str]) -> bool:
    return truth("validate_only", given.get("validate_only", ""))


def _ttl(given: float | str | None) -> float | None:
    """Read for how long a value holds: seconds, or a duration such as 10m.

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
        seconds = float(given)
    except ValueError:
        return parse_duration(str(given).strip()).total_seconds()
    if not isfinite(seconds):
        raise ValueError("not a number of seconds")
    return seconds
