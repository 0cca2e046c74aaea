"""An object of S3, Google Cloud Storage or Azure, polled: its document when that changes.

obstore is the client: it knows the protocols of the stores and their many kinds of credentials. Its own retries (up to
ten, for three minutes) are switched off, so that our schedule bounds the requests and an outage shows at once. A new
client is made after each failure, because credentials may have been replaced.

URLs have the options of the Go library that flagd uses (`?region=…&use_path_style=true`), and the environment the
variables of its Azure driver (`AZURE_STORAGE_ACCOUNT`, …); both mean the same here. Options without effect are returned
as `unused`, so that `prepare` can warn. Everything else in the environment (`AWS_*`, `GOOGLE_*`, other `AZURE_*`) is
left to obstore.

The hard case are the errors of obstore: pages of Rust with a duration that differs each time, and a URL that may carry
a signature. Only the status, the store's own code and the cause of a failed connection are passed on.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from wigwag.errors import UsageError
from wigwag.flags.document import format_of
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.credentials import AUTHORITY
from wigwag.sources.disk.read import read
from wigwag.sources.document import Document
from wigwag.sources.remote.polling import PollResult, PollTiming, format_of_media, poll
from wigwag.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from obstore import GetResult
    from obstore.store import AzureStore, GCSStore, S3Store

    from wigwag.sources.credentials import CredentialsFolder

    Store = S3Store | GCSStore | AzureStore
    Query = dict[str, str]
    Options = dict[str, Any]

_CHUNK = 1 << 20
_METADATA = "//169.254."
"""The metadata service of a cloud machine: obstore's last resort for credentials."""
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
    "PermissionDeniedError": "the store denies access; check the permissions of the credentials",
    "UnauthenticatedError": "the store refuses the credentials; check them",
}
_KINDS = {
    "Timeout": "the store took too long",
    "Connect": "cannot connect",
    "Decode": "the response broke off",
    "Interrupted": "the response broke off",
    "Redirect": "it redirects without end; check the endpoint and the region",
}
_TRUE = ("1", "t", "true")
_IDLE = {
    "s3": "awssdk hostname_immutable rate_limiter_capacity request_checksum_calculation response_checksum_validation"
    " ssetype kmskeyid use_legacy_list use_path_style s3forcepathstyle",
    "gs": "access_id private_key_path",
    "azblob": "",
}
"""Options for writing, listing or the Go library: reading one object needs none of them."""
_CREDENTIALS = {
    "s3": {
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
    },
    "gs": {"GOOGLE_SERVICE_ACCOUNT_KEY": "service_account_key"},
    "azblob": {
        "AZURE_STORAGE_KEY": "account_key",
        "AZURE_STORAGE_SAS_TOKEN": "sas_key",
        "AZURE_CLIENT_ID": "client_id",
        "AZURE_TENANT_ID": "tenant_id",
        "AZURE_CLIENT_SECRET": "client_secret",
    },
}
"""Files of a directory with credentials, and the options of obstore that they are."""
_PROFILE = "; profiles are not read: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"


@dataclass(frozen=True, slots=True)
class BlobWatch:
    """The content of an object in a blob store."""

    url: str
    interval: float = 5.0
    seed: str = ""
    """Decides the offset of the polls; empty: random."""
    most: int = 64 << 20
    """The largest object that is read, in bytes."""
    ca_path: str = ""
    """A CA bundle to trust, too; empty: for S3, that of AWS_CA_BUNDLE, as in the AWS libraries."""
    credentials: CredentialsFolder | None = None
    """Holds credentials by the names of their variables, instead of the environment; read for each request."""

    def __str__(self) -> str:
        return self.url.partition("?")[0]


@dataclass(frozen=True, slots=True)
class BlobDeps(PollTiming):
    """What tests replace: clocks, random numbers, the environment and timeouts."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    connect: float = 10.0
    """Seconds to connect."""
    total: float = 60.0
    """Seconds for one request, to its last byte."""


def watch_blob(
    spec: BlobWatch,
    deps: BlobDeps = BlobDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[PollResult]:
    """Yield the document when it changes, `UNCHANGED` when it has not, or `Unavailable`."""
    return poll(BlobPoller(spec, deps).fetch, spec.interval, spec.seed, deps)


class BlobPoller:
    """Fetches one object, and remembers the last response."""

    def __init__(self, spec: BlobWatch, deps: BlobDeps) -> None:
        self._spec, self._deps = spec, deps
        self._address = locate(spec.url, deps.environment)
        self._store: Store | None = None
        self._made_for: tuple[Options, str] = {}, ""
        """The credentials and the CA bundle of the client."""
        self._tag: str | None = None
        self._digest = b""

    async def fetch(self) -> tuple[PollResult, None]:
        """Fetch once. obstore passes no Retry-After on."""
        from obstore.exceptions import BaseError, NotModifiedError

        try:
            return await self._fetch(), None
        except NotModifiedError:
            return UNCHANGED, None
        except (BaseError, OSError) as error:
            self._store = None
            return Unavailable(f"{self._spec}: {describe(error)}"), None
        except UsageError as error:  # the credentials are not there
            return Unavailable(str(error)), None

    async def _fetch(self) -> PollResult:
        from obstore import get_async

        client = self._client()
        options: Any = {"if_none_match": self._tag} if self._tag else {}
        response = await get_async(client, self._address.name, options=options)
        if self._tag and response.meta["e_tag"] == self._tag:
            return UNCHANGED  # from a store that does not know If-None-Match
        content = await self._content(response)
        if content is None:
            return Unavailable(f"{self._spec}: larger than the limit of {self._spec.most} bytes; raise maxBytes")
        media = response.attributes.get("Content-Type", "")
        document = Document(content, format_of(self._address.name) or format_of_media(media))
        digest = sha256(repr(document.format).encode() + content).digest()
        before, self._digest, self._tag = self._digest, digest, response.meta["e_tag"]
        return UNCHANGED if digest == before else document

    def _client(self) -> Store:
        """Return the client of the store; a new one if the credentials were replaced."""
        folder = self._spec.credentials
        bundle = folder.trust(self._spec.ca_path).authority if folder else self._spec.ca_path
        wanted = (_credentials(self._address.scheme, folder) if folder else {}, bundle)
        if self._store is None or wanted != self._made_for:
            self._made_for = wanted
            address = self._address._replace(config=self._address.config | wanted[0])
            self._store = store(address, self._deps, bundle)
        return self._store

    async def _content(self, response: GetResult) -> bytes | None:
        """Read the body; None if it is too large."""
        most = self._spec.most
        if response.meta["size"] > most:
            return None
        chunks, size = [], 0
        async for chunk in response.stream(min_chunk_size=_CHUNK):
            size += len(chunk)
            if size > most:
                return None
            chunks.append(bytes(chunk))
        return b"".join(chunks)


def _credentials(scheme: str, folder: CredentialsFolder) -> Options:
    """Return the credentials for a store as options of obstore."""
    names = _CREDENTIALS[scheme]
    return {names[key]: folder.secret(key) for key in folder.present((*names, AUTHORITY)) if key in names}


def store(address: BlobAddress, deps: BlobDeps, ca_path: str) -> Store:
    """Make a client of the store, without retries and with timeouts."""
    from obstore.store import AzureStore, GCSStore, S3Store

    kinds: dict[str, Callable[..., Store]] = {"s3": S3Store, "gs": GCSStore, "azblob": AzureStore}
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=deps.connect),
        "timeout": timedelta(seconds=deps.total),
        "user_agent": f"wigwag/{__version__}",
    }
    if address.insecure:
        client["allow_http"] = True
    bundle = ca_path or (deps.environment.get("AWS_CA_BUNDLE", "") if address.scheme == "s3" else "")
    if bundle:
        client["root_certificate"] = read(bundle, _LARGEST_BUNDLE)
    return kinds[address.scheme](
        address.bucket,
        config=address.config,
        client_options=client,
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=deps.total)},
    )


def describe(error: Exception) -> str:
    """Return a text for an error of obstore that is the same each time and holds no secret."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = str(error)
    if _METADATA in text.partition("\n")[0]:
        return "no credentials: none are in the environment, and the metadata service of the machine returned none"
    status, code, cause, kind = (pattern.search(text) for pattern in (_STATUS, _CODE, _CAUSE, _KIND))
    reason = _REMEDIES.get(type(error).__name__) or (status and "the store failed") or (kind and _KINDS[kind[1]])
    detail = ", ".join(match[1] for match in (status, code, None if status else cause) if match) or _connect_error(text)
    if not reason and not detail:
        words = " ".join(word for word in text.partition("\n")[0].split() if "://" not in word)
        words = re.sub(r" in [0-9.]+[nµm]?s\b", "", words)
        return f"the request failed: {words[:200]}"
    return f"{reason or 'the request failed'}{f' ({detail})' if detail else ''}"


def _connect_error(text: str) -> str:
    """Return why there is no connection, if it is the name or the certificate.

    >>> _connect_error("error: InvalidCertificate(\\n    ExpiredContext {")
    'its certificate is not accepted: expired'
    """
    name, certificate = _NAME.search(text), _CERTIFICATE.search(text)
    if name:
        return f"no address: {name[1]}"
    if not certificate:
        return ""
    reason = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", certificate[1]).lower()  # UnknownIssuer, a name of Rust
    return f"its certificate is not accepted: {reason}"


class BlobAddress(NamedTuple):
    """An object of a store, and the options of obstore."""

    scheme: str
    bucket: str
    name: str
    config: Options
    """Options beyond those that obstore reads from the environment."""
    insecure: bool
    """Whether the endpoint is plain HTTP."""
    unused: tuple[tuple[str, str], ...]
    """Options of the URL without effect, each with a remedy."""


def locate(url: str, environment: Mapping[str, str]) -> BlobAddress:
    """Parse the URL of an object.

    >>> locate("s3://flags/team/a.json?region=eu-west-1&use_path_style=true", {})[:4]
    ('s3', 'flags', 'team/a.json', {'region': 'eu-west-1'})
    """
    parts = urlsplit(url)
    query = {name.lower(): value for name, value in parse_qsl(parts.query, keep_blank_values=True)}
    name = query.pop("prefix", "") + unquote(parts.path.lstrip("/"))
    config = _STORES[parts.scheme](query, environment)
    idle = _IDLE[parts.scheme].split()
    unused = tuple((name, _PROFILE if name == "profile" else "") for name in query if name not in idle)
    endpoint = str(config.get("endpoint", config.get("base_url", "")))
    return BlobAddress(parts.scheme, parts.netloc, name, config, endpoint.startswith("http:"), unused)


def _s3(query: Query, environment: Mapping[str, str]) -> Options:
    options = _present(region=query.pop("region", ""))
    plain = _is_true(query, "disable_https") or _is_true(query, "disablessl")
    endpoint = query.pop("endpoint", "") or environment.get("AWS_ENDPOINT_URL_S3", "")
    endpoint = endpoint or environment.get("AWS_ENDPOINT_URL", "") or environment.get("AWS_ENDPOINT", "")
    if plain and not endpoint:
        region = options.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        endpoint = f"s3.{region or 'us-east-1'}.amazonaws.com"
    options |= _present(endpoint=_with_scheme(endpoint, "http" if plain else "https"))
    return options | _anonymous(query)


def _gcs(query: Query, environment: Mapping[str, str]) -> Options:
    emulator, universe = environment.get("STORAGE_EMULATOR_HOST", ""), query.pop("universe_domain", "")
    if emulator:
        return {"base_url": _with_scheme(emulator, "http"), "skip_signature": True}
    return _present(base_url=universe and f"https://storage.{universe}") | _anonymous(query)


def _azure(query: Query, environment: Mapping[str, str]) -> Options:
    """Read the variables of Go's driver; a connection string may have them all."""
    connection = _connection(environment.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    account = (
        query.pop("storage_account", "") or environment.get("AZURE_STORAGE_ACCOUNT", "") or connection["AccountName"]
    )
    account = account or environment.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    if not account:
        raise UsageError("the storage account is missing; set AZURE_STORAGE_ACCOUNT")
    token = environment.get("AZURE_STORAGE_SAS_TOKEN", "") or connection["SharedAccessSignature"]
    return _present(
        account_name=account,
        account_key=environment.get("AZURE_STORAGE_KEY", "") or connection["AccountKey"],
        sas_key=token.removeprefix("?"),
        endpoint=connection["BlobEndpoint"].rstrip("/") or _azure_endpoint(account, query, environment, connection),
    )


def _azure_endpoint(account: str, query: Query, environment: Mapping[str, str], connection: Mapping[str, str]) -> str:
    """Return the endpoint of an account, if it is not the default."""
    suffix = connection["EndpointSuffix"]
    domain = query.pop("domain", "") or environment.get("AZURE_STORAGE_DOMAIN", "") or (suffix and f"blob.{suffix}")
    protocol = query.pop("protocol", "") or environment.get("AZURE_STORAGE_PROTOCOL", "")
    protocol = protocol or connection["DefaultEndpointsProtocol"]
    local = _is_true(query, "localemu") or environment.get("AZURE_STORAGE_IS_LOCAL_EMULATOR", "").lower() in _TRUE
    if local:
        return f"{protocol or 'http'}://{domain or '127.0.0.1:10000'}/{account}"
    if not domain and protocol in ("", "https"):
        return ""
    return f"{protocol or 'https'}://{account}.{domain or 'blob.core.windows.net'}"


def _connection(text: str) -> Mapping[str, str]:
    """Parse a connection string, `AccountName=…;AccountKey=…`; what it does not have is empty."""
    return defaultdict(str, ((name, value) for name, _, value in (part.partition("=") for part in text.split(";"))))


def _with_scheme(endpoint: str, scheme: str) -> str:
    return endpoint if not endpoint or "://" in endpoint else f"{scheme}://{endpoint}"


def _anonymous(query: Query) -> Options:
    return {"skip_signature": True} if _is_true(query, "anonymous") else {}


def _is_true(query: Query, name: str) -> bool:
    return query.pop(name, "").lower() in _TRUE


def _present(**options: str) -> Options:
    return {name: value for name, value in options.items() if value}


_STORES: Mapping[str, Callable[[Query, Mapping[str, str]], Options]] = {"s3": _s3, "gs": _gcs, "azblob": _azure}
