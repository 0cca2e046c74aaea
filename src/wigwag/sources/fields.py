"""The fields of one element of `--sources`: flagd's, and a few of our own.

Names are taken in any case, as Go takes them, and because flagd's config files come to it in lower case. What nobody
knows is told, with what may have been meant, and read over; a value of the wrong kind is an error that names its
place. Values are never shown: some of them are secrets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import fields

from wigwag.errors import UsageError
from wigwag.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wigwag.sources.kind import SourceKind
    from wigwag.sources.uris import UriAddress

    Remark = Callable[[str], object]

LONGEST_INTERVAL = 86400
_EXAMPLE = '[{"uri": "flags.json", "provider": "file"}]'
_Natural = Annotated[int, Meta(ge=0)]
_PLACE = re.compile(r" - at `\$([^`]*)`")
_EVERYWHERE = {"uri", "provider", "required", "optional"}
_REMEDIES = {
    "interval": f"whole seconds from poll to poll, at most {LONGEST_INTERVAL} (a day)",
    "timeoutS": "seconds until a request is given up, 0 for the usual",
    "headers": 'an object of texts, such as {"X-Team": "blue"}',
    "oauth": "an object with tokenUrl, and either clientID and clientSecret or folder",
    "maxMsgSize": "bytes in a message, 0 for the usual",
    "maxBytes": "bytes in a document, 0 for the usual",
    "onDelete": "keep (its flags stay) or remove",
    "tls": "true or false",
    "required": "true or false",
    "optional": "true or false",
}


class OAuthFields(Struct, frozen=True):
    """Client credentials for a token, from here or from files."""

    client_id: str = field(default="", name="clientID")
    client_secret: str = field(default="", name="clientSecret")
    token_url: str = field(default="", name="tokenUrl")
    folder: str = ""
    """Where the files `client-id` and `client-secret` are."""
    reload_delay: Annotated[float, Meta(ge=0)] = field(default=0.0, name="reloadDelayS")

    def __repr__(self) -> str:
        """Show nothing."""
        return "OAuth(…)"


class Fields(Struct, frozen=True):
    """One element of `--sources`."""

    uri: str = ""
    provider: str = ""
    auth_header: str = field(default="", name="authHeader")
    headers: dict[str, str] = {}
    interval: Annotated[int, Meta(ge=0, le=LONGEST_INTERVAL)] = 0
    interval_seed: str = field(default="", name="intervalSeed")
    timeout: Annotated[float, Meta(ge=0)] = field(default=0.0, name="timeoutS")
    oauth: OAuthFields | None = None
    tls: bool = False
    cert_path: str = field(default="", name="certPath")
    provider_id: str = field(default="", name="providerID")
    selector: str = ""
    max_msg_size: _Natural = field(default=0, name="maxMsgSize")
    incremental_updates: bool = field(default=False, name="incrementalUpdates")
    required: bool | None = None
    optional: bool | None = None
    max_bytes: _Natural = field(default=0, name="maxBytes")
    on_delete: Literal["", "keep", "remove"] = field(default="", name="onDelete")
    token_file: str = field(default="", name="tokenFile")

    def given(self) -> list[str]:
        """Return the names of the fields that say something."""
        return [each.encode_name for each in fields(self) if getattr(self, each.name) not in (each.default, {}, None)]


class Element(Struct, frozen=True):
    """The fields of an element, and where it stands."""

    where: str
    fields: Fields

    def refuse(self, member: str, why: str) -> UsageError:
        """Make an error that names a field of this element."""
        return UsageError(f"--sources: {self.where}{member}: {why}")

    def check(self, kind: SourceKind, place: UriAddress, remark: Remark) -> None:
        """See that the fields make sense together, for a source of this kind."""
        for member, why in _contradictions(self.fields, kind, place):
            raise self.refuse(f".{member}", why)
        for name in self.fields.given():
            if name not in kind.fields | _EVERYWHERE:
                remark(f"--sources: {self.where}.{name} has no effect on a source of the kind {kind.name}")
        if self.fields.oauth and self.fields.auth_header:
            remark(f"--sources: {self.where}.authHeader has no effect: oauth brings its own")


def read_elements(configured: Any, remark: Remark) -> list[Element]:
    """Read `--sources`: JSON text, or what a config file holds, which may have numbers as text."""
    text = isinstance(configured, str | bytes)
    if not configured or (text and not configured.strip()):
        return []
    try:
        found = msgspec.json.decode(configured) if text else configured
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"--sources: {error}; write {_EXAMPLE}") from error
    if not isinstance(found, list):
        raise UsageError(f"--sources: expected an array of objects; write {_EXAMPLE}")
    return [_element(f"$.sources[{n}]", each, remark, strict=text) for n, each in enumerate(found)]


def _element(where: str, told: Any, remark: Remark, *, strict: bool) -> Element:
    if not isinstance(told, dict):
        raise UsageError(f"--sources: {where}: expected an object; write {_EXAMPLE}")
    known = _known(told, Fields, where, remark)
    if isinstance(known.get("oauth"), dict):
        known["oauth"] = _known(known["oauth"], OAuthFields, f"{where}.oauth", remark)
    try:
        found = Element(where, msgspec.convert(known, Fields, strict=strict))
    except msgspec.ValidationError as error:
        raise UsageError(f"--sources: {_placed(str(error), where)}") from error
    for name in ("uri", "provider"):
        if not getattr(found.fields, name):
            raise found.refuse("", f"{name} is missing; write {_EXAMPLE[1:-1]}")
    return found


def _known(told: dict[Any, Any], record: type[Struct], where: str, remark: Remark) -> dict[str, Any]:
    """Return the members that are known, by their proper names; null says nothing, as in Go."""
    names = {each.encode_name.lower(): each.encode_name for each in fields(record)}
    found = {}
    for key, value in told.items():
        name = names.get(str(key).lower())
        if name is None:
            close = closest(str(key), names.values())
            meant = f"; did you mean {close}?" if close else ""
            remark(f"--sources: {where}.{key} is no field and is read over{meant}")
        elif value is not None:
            found[name] = value
    return found


def _placed(message: str, where: str) -> str:
    """Put the place first and the remedy last."""
    at = _PLACE.search(message)
    path = at[1] if at else ""
    remedy = _REMEDIES.get(path[1:].partition(".")[0].partition("[")[0], "")
    said = _PLACE.sub("", message)
    return f"{where}{path}: {said[:1].lower()}{said[1:]}{f'; it is {remedy}' if remedy else ''}"


def _contradictions(told: Fields, kind: SourceKind, place: UriAddress) -> Iterator[tuple[str, str]]:
    """Return the fields that cannot be meant so, and why."""
    if told.required is not None and told.optional is not None and told.required == told.optional:
        yield "optional", "says the opposite of required; leave one of them out"
    yield from kind.contradictions(told, place)
    if told.token_file and (told.oauth or told.auth_header or "authorization" in map(str.lower, told.headers)):
        yield "tokenFile", "is one of several credentials; leave out authHeader, oauth and the header Authorization"
    yield from _unsendable(told)
    if told.oauth:
        yield from _oauth_contradictions(told.oauth)


def _unsendable(told: Fields) -> Iterator[tuple[str, str]]:
    lines = {"authHeader": told.auth_header, "headers": "".join((*told.headers, *told.headers.values()))}
    for name, text in lines.items():
        if not text.replace("\t", "").isprintable():
            yield name, "has a line break or a control character in it, which no header can have; take it out"
    if any(not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) for name in told.headers):
        yield "headers", "has a name that no header can have; use letters, digits and -"


def _oauth_contradictions(told: OAuthFields) -> Iterator[tuple[str, str]]:
    if not told.token_url:
        yield "oauth.tokenUrl", "is missing; write where tokens are issued, such as https://HOST/token"
    elif not re.match(r"https?://[^/]", told.token_url):
        yield "oauth.tokenUrl", "is no web address; write https://HOST/token"
    if not told.folder:
        for name, value in (("clientID", told.client_id), ("clientSecret", told.client_secret)):
            if not value:
                yield f"oauth.{name}", "is missing; write it, or in folder where the file with it is"
