"""A blob of S3, Google Cloud Storage or Azure, asked for from time to time: its document when that changes.

As for a web address, except that obstore does the talking: it knows the stores' protocols and the many ways to prove
who one is. It would also try again by itself, up to ten times and for three minutes; that is switched off, so that the
number of requests is ours to bound and an outage is seen at once. Whatever a store does is trouble of the moment: the
watcher goes on asking, and a new client is made for each try, because credentials may have been replaced meanwhile.

The hard case are its errors: pages of Rust with the time it took, which differs each time, and a URL that may carry a
signature. Only the status, the store's own code and the cause of a failed connection are passed on.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from wigwag.flags.document import format_of
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.disk.read import read
from wigwag.sources.document import Document
from wigwag.sources.remote.blob_place import locate
from wigwag.sources.remote.polling import Answer, PollTiming, format_of_media, poll
from wigwag.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from obstore import GetResult
    from obstore.store import AzureStore, GCSStore, S3Store

    from wigwag.sources.remote.blob_place import BlobAddress

    Store = S3Store | GCSStore | AzureStore

_CHUNK = 1 << 20
_METADATA = "//169.254."
"""Where clouds tell their own machines who they are: obstore's last resort."""
_LARGEST_BUNDLE = 4 << 20
_STATUS = re.compile(r"status code: (\d{3}(?: [A-Za-z]+)*)")
_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_CAUSE = re.compile(r'message: "([^"]{1,200})"')
_KIND = re.compile(r"kind: (Timeout|Connect|Decode|Interrupted|Redirect)\b")
_NAME = re.compile(r'"failed to lookup address information: ([^"]{1,200})"')
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*([A-Za-z]{1,64}?)(?:Context)?\b")
_REMEDIES = {
    "FileNotFoundError": "there is no such object; check its name",
    "NotFoundError": "there is no such object; check its name",
    "PermissionDeniedError": "the store does not allow it; check the rights of the credentials",
    "UnauthenticatedError": "the store does not know us; check the credentials",
}
_KINDS = {
    "Timeout": "the store took too long",
    "Connect": "cannot connect",
    "Decode": "the answer broke off",
    "Interrupted": "the answer broke off",
    "Redirect": "it redirects without end; check the endpoint and the region",
}


@dataclass(frozen=True, slots=True)
class BlobWatch:
    """The content of an object in a store of blobs."""

    url: str
    interval: float = 5.0
    seed: str = ""
    """What the offset of the polls is made of; empty: it is drawn by lot."""
    most: int = 64 << 20
    """The largest object that is read, in bytes."""
    ca_path: str = ""
    """Trust what this signs, too; empty: for S3, what AWS_CA_BUNDLE names, as in the AWS libraries."""

    def __str__(self) -> str:
        return self.url.partition("?")[0]


@dataclass(frozen=True, slots=True)
class BlobDeps(PollTiming):
    """Where time, chance and what is known about the stores come from."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    connect: float = 10.0
    """Seconds to connect."""
    total: float = 60.0
    """Seconds for one request, to its last byte."""


async def watch_blob(
    spec: BlobWatch,
    deps: BlobDeps = BlobDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[Answer]:
    """Yield the document when it changes, that it has not, or why that cannot be told at present."""
    async with closing(poll(BlobPoller(spec, deps).ask, spec.interval, spec.seed, deps)) as answers:
        async for answer in answers:
            yield answer


class BlobPoller:
    """Asks for one object, and remembers what came last."""

    def __init__(self, spec: BlobWatch, deps: BlobDeps) -> None:
        self._spec, self._deps = spec, deps
        self._place = locate(spec.url, deps.environment)
        self._store: Store | None = None
        self._tag: str | None = None
        self._digest = b""

    async def ask(self) -> tuple[Answer, None]:
        """Ask once. No store tells for how long to leave it alone, or obstore does not."""
        from obstore.exceptions import BaseError, NotModifiedError

        try:
            return await self._fetch(), None
        except NotModifiedError:
            return UNCHANGED, None
        except (BaseError, OSError) as error:
            self._store = None
            return Unavailable(f"{self._spec}: {told(error)}"), None

    async def _fetch(self) -> Answer:
        from obstore import get_async

        self._store = self._store or store(self._place, self._deps, self._spec.ca_path)
        found = await get_async(
            self._store, self._place.name, options={"if_none_match": self._tag} if self._tag else {}
        )
        if self._tag and found.meta["e_tag"] == self._tag:
            return UNCHANGED  # a store that does not know the question has answered it nevertheless
        content = await self._content(found)
        if content is None:
            return Unavailable(f"{self._spec}: larger than the limit of {self._spec.most} bytes; raise maxBytes")
        media = found.attributes.get("Content-Type", "")
        document = Document(content, format_of(self._place.name) or format_of_media(media))
        digest = sha256(repr(document.format).encode() + content).digest()
        before, self._digest, self._tag = self._digest, digest, found.meta["e_tag"]
        return UNCHANGED if digest == before else document

    async def _content(self, found: GetResult) -> bytes | None:
        """Read to the end; None if that is too far."""
        most = self._spec.most
        if found.meta["size"] > most:
            return None
        chunks, size = [], 0
        async for chunk in found.stream(min_chunk_size=_CHUNK):
            size += len(chunk)
            if size > most:
                return None
            chunks.append(bytes(chunk))
        return b"".join(chunks)


def store(place: BlobAddress, deps: BlobDeps, ca_path: str) -> Store:
    """Make a client of the store. It gets no second try and a limited time."""
    from obstore.store import AzureStore, GCSStore, S3Store

    kinds: dict[str, Callable[..., Store]] = {"s3": S3Store, "gs": GCSStore, "azblob": AzureStore}
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=deps.connect),
        "timeout": timedelta(seconds=deps.total),
        "user_agent": f"wigwag/{__version__}",
    }
    if place.insecure:
        client["allow_http"] = True
    authority = ca_path or (deps.environment.get("AWS_CA_BUNDLE", "") if place.scheme == "s3" else "")
    if authority:
        client["root_certificate"] = read(authority, _LARGEST_BUNDLE)
    return kinds[place.scheme](
        place.bucket,
        config=place.config,
        client_options=client,
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=deps.total)},
    )


def told(error: Exception) -> str:
    """Put an error of obstore into words that are the same each time and hold no secret."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = str(error)
    if _METADATA in text.partition("\n")[0]:
        return "no credentials: none are in the environment, and the metadata service of the machine gave none"
    status, code, cause, kind = (pattern.search(text) for pattern in (_STATUS, _CODE, _CAUSE, _KIND))
    said = _REMEDIES.get(type(error).__name__) or (status and "the store failed") or (kind and _KINDS[kind[1]])
    detail = ", ".join(found[1] for found in (status, code, None if status else cause) if found) or _unmet(text)
    if not said and not detail:
        words = " ".join(word for word in text.partition("\n")[0].split() if "://" not in word)
        said = re.sub(r" in [0-9.]+[nµm]?s\b", "", words)
        return f"the store cannot be asked: {said[:200]}"
    return f"{said or 'the store cannot be asked'}{f' ({detail})' if detail else ''}"


def _unmet(text: str) -> str:
    """Return why there is no connection, if the network is not to blame.

    >>> _unmet("error: InvalidCertificate(\\n    ExpiredContext {")
    'its certificate is not accepted: expired'
    """
    name, certificate = _NAME.search(text), _CERTIFICATE.search(text)
    if name:
        return f"no address: {name[1]}"
    return f"its certificate is not accepted: {_words(certificate[1])}" if certificate else ""


def _words(name: str) -> str:
    """Take the name of a value of Rust apart: UnknownIssuer is an unknown issuer."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
