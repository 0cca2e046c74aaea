"""The fields of one element of `--sources`: flagd's, and a few of our own.

Names match in any case, as in Go, and because flagd's config files reach it in lower case. An unknown field is ignored
with a warning and a suggestion; a value of the wrong type is an error that names its place. Values are never shown:
some of them are secrets.
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

    Warn = Callable[[str], object]

LONGEST_INTERVAL = 86400
"""As in flagd: a day."""
_EXAMPLE = '[{"uri": "flags.json", "provider": "file"}]'
_Natural = Annotated[int, Meta(ge=0)]
_PLACE = re.compile(r" - at `\$([^`]*)`")
_REMEDIES = {
    "interval": f"whole seconds between polls, at most {LONGEST_INTERVAL} (a day)",
    "timeoutS": "seconds until a request times out, 0 for the default",
    "headers": 'an object of texts, such as {"X-Team": "blue"}',
    "oauth": "an object with tokenUrl, and either clientID and clientSecret or folder",
    "maxMsgSize": "bytes in a message, 0 for the default",
    "maxBytes": "bytes in a document, 0 for the default",
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
        return "OAuthFields(…)"


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
    credentials_folder: str = field(default="", name="credentialsFolder")

    def given(self) -> list[str]:
        """Return the names of the fields that are set."""
        return [each.encode_name for each in fields(self) if getattr(self, each.name) not in (each.default, {}, None)]


class Element(Struct, frozen=True):
    """The fields of one element, and its place in `--sources` for messages."""

    where: str
    fields: Fields

    def error(self, member: str, reason: str) -> UsageError:
        """Make an error that names a field of this element."""
        return UsageError(f"--sources: {self.where}{member}: {reason}")


def read_elements(configured: Any, warn: Warn) -> list[Element]:
    """Read `--sources`: JSON text, or the value from a config file, in which numbers may be text."""
    text = isinstance(configured, str | bytes)
    if not configured or (text and not configured.strip()):
        return []
    try:
        elements = msgspec.json.decode(configured) if text else configured
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"--sources: {error}; write {_EXAMPLE}") from error
    if not isinstance(elements, list):
        raise UsageError(f"--sources: expected an array of objects; write {_EXAMPLE}")
    return [_element(f"$.sources[{n}]", each, warn, strict=text) for n, each in enumerate(elements)]


def _element(where: str, value: Any, warn: Warn, *, strict: bool) -> Element:
    if not isinstance(value, dict):
        raise UsageError(f"--sources: {where}: expected an object; write {_EXAMPLE}")
    known = _known(value, Fields, where, warn)
    if isinstance(known.get("oauth"), dict):
        known["oauth"] = _known(known["oauth"], OAuthFields, f"{where}.oauth", warn)
    try:
        element = Element(where, msgspec.convert(known, Fields, strict=strict))
    except msgspec.ValidationError as error:
        raise UsageError(f"--sources: {_placed(str(error), where)}") from error
    for name in ("uri", "provider"):
        if not getattr(element.fields, name):
            raise element.error("", f"{name} is missing; write {_EXAMPLE[1:-1]}")
    return element


def _known(members: dict[Any, Any], record: type[Struct], where: str, warn: Warn) -> dict[str, Any]:
    """Return the members that are fields, by their proper names. null means not set, as in Go."""
    names = {each.encode_name.lower(): each.encode_name for each in fields(record)}
    known = {}
    for key, value in members.items():
        name = names.get(str(key).lower())
        if name is None:
            close = closest(str(key), names.values())
            hint = f"; did you mean {close}?" if close else ""
            warn(f"--sources: {where}.{key} is not a field and is ignored{hint}")
        elif value is not None:
            known[name] = value
    return known


def _placed(message: str, where: str) -> str:
    """Put the place first and the remedy last."""
    place = _PLACE.search(message)
    path = place[1] if place else ""
    remedy = _REMEDIES.get(path[1:].partition(".")[0].partition("[")[0], "")
    reason = _PLACE.sub("", message)
    return f"{where}{path}: {reason[:1].lower()}{reason[1:]}{f'; it is {remedy}' if remedy else ''}"


def contradictions(given: Fields) -> Iterator[tuple[str, str]]:
    """Yield the fields that make no sense together in a source of any kind, each with the reason."""
    if given.required is not None and given.optional is not None and given.required == given.optional:
        yield "optional", "says the opposite of required; leave one of them out"
    others = given.oauth or given.auth_header or "authorization" in map(str.lower, given.headers)
    if given.token_file and others:
        yield "tokenFile", "is one of several credentials; leave out authHeader, oauth and the header Authorization"
    if given.credentials_folder and (others or given.token_file):
        reason = "is one of several credentials; leave out tokenFile, authHeader, oauth and the header Authorization"
        yield "credentialsFolder", reason
    lines = {"authHeader": given.auth_header, "headers": "".join((*given.headers, *given.headers.values()))}
    for name, text in lines.items():
        if not text.replace("\t", "").isprintable():
            yield name, "has a line break or a control character in it, which no header can have; take it out"
    if any(not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) for name in given.headers):
        yield "headers", "has a name that no header can have; use letters, digits and -"
    if given.oauth:
        yield from _oauth_contradictions(given.oauth)


def _oauth_contradictions(given: OAuthFields) -> Iterator[tuple[str, str]]:
    if not given.token_url:
        yield "oauth.tokenUrl", "is missing; write where tokens are issued, such as https://HOST/token"
    elif not re.match(r"https?://[^/]", given.token_url):
        yield "oauth.tokenUrl", "is not an HTTP URL; write https://HOST/token"
    if not given.folder:
        for name, value in (("clientID", given.client_id), ("clientSecret", given.client_secret)):
            if not value:
                yield f"oauth.{name}", "is missing; write it, or in folder where the file with it is"
