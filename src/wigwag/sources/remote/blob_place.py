"""Where a blob is: its store, its bucket, its name, and how the store is to be talked to.

flagd's users have URLs with the options of the Go library beneath it (`?region=…&use_path_style=true`) and variables
that its Azure driver reads (`AZURE_STORAGE_ACCOUNT`, …). They mean the same here. What has no meaning here is handed
back, so that whoever starts the source can say so. Everything that the store's own libraries take from the environment
(`AWS_*`, `GOOGLE_*`, other `AZURE_*`) is left to obstore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from wigwag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Query = dict[str, str]
    Options = dict[str, Any]

_TRUE = ("1", "t", "true")
_IDLE = {
    "s3": "awssdk hostname_immutable rate_limiter_capacity request_checksum_calculation response_checksum_validation"
    " ssetype kmskeyid use_legacy_list use_path_style s3forcepathstyle",
    "gs": "access_id private_key_path",
    "azblob": "",
}
"""Options that are about writing, listing or the Go library: for reading one object nothing is lost without them."""
_PROFILE = "; profiles are not read: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"


class BlobAddress(NamedTuple):
    """Where a blob is, in obstore's words."""

    scheme: str
    bucket: str
    name: str
    config: Options
    """What the store is told beyond what it reads from the environment."""
    insecure: bool
    """Whether plain HTTP is meant."""
    unused: tuple[tuple[str, str], ...]
    """Options of the URL that have no effect, and what to do about it."""


def locate(url: str, environment: Mapping[str, str]) -> BlobAddress:
    """Read the URL of a blob.

    >>> locate("s3://flags/team/a.json?region=eu-west-1&use_path_style=true", {})[:4]
    ('s3', 'flags', 'team/a.json', {'region': 'eu-west-1'})
    """
    parts = urlsplit(url)
    if parts.scheme not in _STORES or not parts.netloc or not parts.path.strip("/"):
        raise UsageError("this does not name an object of a store; write s3://BUCKET/OBJECT, gs://… or azblob://…")
    query = {name.lower(): value for name, value in parse_qsl(parts.query, keep_blank_values=True)}
    name = query.pop("prefix", "") + unquote(parts.path.lstrip("/"))
    config = _STORES[parts.scheme](query, environment)
    idle = _IDLE[parts.scheme].split()
    unused = tuple((name, _PROFILE if name == "profile" else "") for name in query if name not in idle)
    endpoint = str(config.get("endpoint", config.get("base_url", "")))
    return BlobAddress(parts.scheme, parts.netloc, name, config, endpoint.startswith("http:"), unused)


def _s3(query: Query, environment: Mapping[str, str]) -> Options:
    found = _present(region=query.pop("region", ""))
    plain = _said(query, "disable_https") or _said(query, "disablessl")
    endpoint = query.pop("endpoint", "") or environment.get("AWS_ENDPOINT_URL_S3", "")
    endpoint = endpoint or environment.get("AWS_ENDPOINT_URL", "") or environment.get("AWS_ENDPOINT", "")
    if plain and not endpoint:
        region = found.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        endpoint = f"s3.{region or 'us-east-1'}.amazonaws.com"
    found |= _present(endpoint=_with_scheme(endpoint, "http" if plain else "https"))
    return found | _anonymous(query)


def _gcs(query: Query, environment: Mapping[str, str]) -> Options:
    emulator, universe = environment.get("STORAGE_EMULATOR_HOST", ""), query.pop("universe_domain", "")
    if emulator:
        return {"base_url": _with_scheme(emulator, "http"), "skip_signature": True}
    return _present(base_url=universe and f"https://storage.{universe}") | _anonymous(query)


def _azure(query: Query, environment: Mapping[str, str]) -> Options:
    """Read what Go's driver reads; a connection string says it all."""
    said = _connection(environment.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    account = query.pop("storage_account", "") or environment.get("AZURE_STORAGE_ACCOUNT", "") or said["AccountName"]
    account = account or environment.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    if not account:
        raise UsageError("the storage account is missing; set AZURE_STORAGE_ACCOUNT")
    token = environment.get("AZURE_STORAGE_SAS_TOKEN", "") or said["SharedAccessSignature"]
    return _present(
        account_name=account,
        account_key=environment.get("AZURE_STORAGE_KEY", "") or said["AccountKey"],
        sas_key=token.removeprefix("?"),
        endpoint=said["BlobEndpoint"] or _azure_endpoint(account, query, environment, said),
    )


def _azure_endpoint(account: str, query: Query, environment: Mapping[str, str], said: Mapping[str, str]) -> str:
    """Return where an account is, if not at the usual place."""
    suffix = said["EndpointSuffix"]
    domain = query.pop("domain", "") or environment.get("AZURE_STORAGE_DOMAIN", "") or (suffix and f"blob.{suffix}")
    protocol = query.pop("protocol", "") or environment.get("AZURE_STORAGE_PROTOCOL", "")
    protocol = protocol or said["DefaultEndpointsProtocol"]
    local = _said(query, "localemu") or environment.get("AZURE_STORAGE_IS_LOCAL_EMULATOR", "").lower() in _TRUE
    if local:
        return f"{protocol or 'http'}://{domain or '127.0.0.1:10000'}/{account}"
    if not domain and protocol in ("", "https"):
        return ""
    return f"{protocol or 'https'}://{account}.{domain or 'blob.core.windows.net'}"


def _connection(text: str) -> Mapping[str, str]:
    """Take apart a connection string, `AccountName=…;AccountKey=…`."""
    names = (
        "AccountName",
        "AccountKey",
        "SharedAccessSignature",
        "BlobEndpoint",
        "EndpointSuffix",
        "DefaultEndpointsProtocol",
    )
    found = {name: value for name, _, value in (part.partition("=") for part in text.split(";"))}
    return {name: found.get(name, "").rstrip("/" if name == "BlobEndpoint" else "") for name in names}


def _with_scheme(endpoint: str, scheme: str) -> str:
    return endpoint if not endpoint or "://" in endpoint else f"{scheme}://{endpoint}"


def _anonymous(query: Query) -> Options:
    return {"skip_signature": True} if _said(query, "anonymous") else {}


def _said(query: Query, name: str) -> bool:
    return query.pop(name, "").lower() in _TRUE


def _present(**options: str) -> Options:
    return {name: value for name, value in options.items() if value}


_STORES: Mapping[str, Callable[[Query, Mapping[str, str]], Options]] = {"s3": _s3, "gs": _gcs, "azblob": _azure}
