"""Who may ask for what: the rules of `--auth-tokens`, from the text of a file to a look-up.

    [{"name": "team-a", "tokenFile": "team-a.token", "selectors": ["flagSetId=team-a"]},
     {"name": "ops", "certificates": ["spiffe://example.org/ops"], "selectors": ["*"]}]

A token is known here by its SHA-256 only. A caller is looked up by the digest of its token, so no comparison takes
longer the nearer a guess comes, and nothing that is printed by accident is a secret. The hard case is an error in the
file itself: what says where it is must not quote it, because what is in the wrong place may be a token.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from wigwag.errors import DocumentError, SelectorError
from wigwag.flags.model import Limits
from wigwag.flags.selector import Selector
from wigwag.wire.peer import Identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

K = TypeVar("K")
EVERYTHING = "*"
MOST_RULES = 10_000
MOST_NAMES = 1_000
"""Selectors or certificates of one rule."""
LONGEST_NAME, LONGEST_TOKEN = 128, 4096
_TOKEN = re.compile(rb"[!-~]{1,%d}" % LONGEST_TOKEN)
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_MEMBERS = "name, token, tokenFile, tokenSha256, certificates, selectors"
_LIMITS = Limits(document_bytes=8 << 20, depth=8)


class _Rule(Struct, forbid_unknown_fields=True, rename="camel"):
    """A rule as it stands in the file."""

    name: str
    selectors: list[str]
    token: str | None = None
    token_file: str | None = None
    token_sha256: str | None = None
    certificates: list[str] = []


class UnresolvedRule(Struct, frozen=True):
    """A rule that makes sense, but for the file that its token may be in."""

    name: str
    selectors: frozenset[Selector] | None
    digests: tuple[bytes, ...] = ()
    certificates: tuple[Identity, ...] = ()
    file: str | None = None


class Caller(Struct, frozen=True):
    """A caller that a rule names."""

    name: str
    selectors: frozenset[Selector] | None
    """The selectors that the caller may use; None: any, or no selector at all."""
    only: str = ""
    """The selector of a request that has none: the only one that the caller may use."""


class PresentedCredential(Struct, frozen=True):
    """What a caller presents: the digest of a token, or else the identity in a verified certificate."""

    digest: bytes | None = None
    certificate: Identity | None = None


class Rules(Struct, frozen=True):
    """All known callers, by their credentials."""

    tokens: Mapping[bytes, Caller] = {}
    certificates: Mapping[Identity, Caller] = {}

    def caller(self, credential: PresentedCredential) -> Caller | None:
        """Return the caller. A token counts before a certificate: if one is sent, it must be good."""
        if credential.digest is not None:
            return self.tokens.get(credential.digest)
        return self.certificates.get(credential.certificate) if credential.certificate is not None else None


def digest(token: bytes) -> bytes:
    """Return the digest of a token."""
    return sha256(token).digest()


def read_rules(text: bytes) -> tuple[UnresolvedRule, ...]:
    """Read the rules in JSON or YAML; a `DocumentError` says where the text is wrong, and quotes none of it."""
    rules = _decoded(text)
    if len(rules) > MOST_RULES:
        raise DocumentError(f"{len(rules)} rules are more than the limit of {MOST_RULES}")
    return tuple(_draft(rule, f"$[{index}]") for index, rule in enumerate(rules))


def read_tokens(text: bytes) -> tuple[bytes, ...]:
    """Return the digests of the tokens in a file: one on each line, so that an old and a new one may both hold."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise DocumentError("there is no token in it")
    if not all(map(_TOKEN.fullmatch, lines)):
        raise DocumentError(f"a token is one line of up to {LONGEST_TOKEN} visible ASCII characters")
    return tuple(map(digest, lines))


def compile_rules(drafts: Iterable[UnresolvedRule], files: Mapping[str, tuple[bytes, ...]] | None = None) -> Rules:
    """Make the look-up; `files` has the digests that are in token files. Without its file a rule has no such token."""
    tokens: dict[bytes, Caller] = {}
    certificates: dict[Identity, Caller] = {}
    for draft in drafts:
        only = next(iter(draft.selectors)) if draft.selectors is not None and len(draft.selectors) == 1 else Selector()
        caller = Caller(draft.name, draft.selectors, f"{only.key}={only.value}" if only.key else "")
        for each in (*draft.digests, *(files or {}).get(draft.file or "", ())):
            _put(tokens, each, caller, "token")
        for name in draft.certificates:
            _put(certificates, name, caller, "certificate")
    return Rules(tokens, certificates)


def _put(table: dict[K, Caller], key: K, caller: Caller, what: str) -> None:
    """Add an entry. Two callers must not share a credential; a repetition is harmless."""
    before = table.setdefault(key, caller)
    if before != caller:
        raise DocumentError(f"the rules {before.name!r} and {caller.name!r} have the same {what}; give each its own")


def _decoded(text: bytes) -> list[_Rule]:
    from wigwag.flags.document import parse_yaml  # JSON is YAML too

    try:
        value = parse_yaml(text, _LIMITS)
    except DocumentError as error:
        where = re.search(r"line \d+, column \d+", str(error))
        raise DocumentError(f"not valid YAML or JSON{f', at {where[0]}' if where else ''}") from None
    try:
        return msgspec.convert(value, list[_Rule])
    except msgspec.ValidationError as error:
        said, where = str(error), re.search(r" - at `[^`]*`$", str(error))
        if "unknown field" in said:
            said = f"something other than {_MEMBERS}{where[0] if where else ''}"
        raise DocumentError(f"the rules cannot be used: {said[:1].lower()}{said[1:]}") from None


def _draft(rule: _Rule, path: str) -> UnresolvedRule:
    if not 0 < len(rule.name) <= LONGEST_NAME or not rule.name.isprintable():
        raise DocumentError(f"{path}.name: give the rule a name of up to {LONGEST_NAME} printable characters")
    if rule.token_file == "" or "\0" in (rule.token_file or ""):
        raise DocumentError(f"{path}.tokenFile: name a file")
    digests = tuple(_digests(rule, path))
    if not (digests or rule.token_file or rule.certificates):
        raise DocumentError(f"{path}: say who is meant, by token, tokenFile, tokenSha256 or certificates")
    if len(rule.certificates) > MOST_NAMES or not all(rule.certificates):
        raise DocumentError(f"{path}.certificates: list up to {MOST_NAMES} identities, none of them empty")
    identities = tuple(map(Identity.parse, rule.certificates))
    if not all(identity.name for identity in identities):
        raise DocumentError(f"{path}.certificates: say which name, as in CN=NAME or DNS:NAME")
    return UnresolvedRule(rule.name, _selectors(rule.selectors, path), digests, identities, rule.token_file)


def _digests(rule: _Rule, path: str) -> Iterable[bytes]:
    if rule.token is not None:
        token = rule.token.encode("utf-8", "surrogatepass")
        if not _TOKEN.fullmatch(token):
            raise DocumentError(f"{path}.token: up to {LONGEST_TOKEN} visible ASCII characters, without white space")
        yield digest(token)
    if rule.token_sha256 is not None:
        if not _DIGEST.fullmatch(rule.token_sha256):
            raise DocumentError(f"{path}.tokenSha256: 64 hexadecimal digits, as `printf %s TOKEN | sha256sum` prints")
        yield bytes.fromhex(rule.token_sha256)


def _selectors(texts: list[str], path: str) -> frozenset[Selector] | None:
    if EVERYTHING in texts:
        return None
    if not texts or len(texts) > MOST_NAMES or not all(texts):
        raise DocumentError(f'{path}.selectors: list 1 to {MOST_NAMES} of them, or ["{EVERYTHING}"] for everything')
    try:
        return frozenset(map(Selector.parse, texts))
    except SelectorError:
        raise DocumentError(f"{path}.selectors: each is flagSetId=NAME, source=NAME or the name of a source") from None
