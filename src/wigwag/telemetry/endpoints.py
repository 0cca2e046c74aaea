"""What an endpoint means: `HOST:PORT` or a URL, encrypted or not, for gRPC or for HTTP."""

from __future__ import annotations

from urllib.parse import urlsplit

from wigwag.errors import UsageError
from wigwag.wire.client.shown import shown

GRPC_PORT, HTTP_PORT = 4317, 4318
_WEB = ("http", "https")


def is_secure(endpoint: str, files: bool, insecure: bool | None) -> bool:
    """Tell whether to encrypt: the scheme says so; without one the environment does, or that there are certificates.

    >>> is_secure("collector:4317", False, None), is_secure("collector:4317", True, None)
    (False, True)
    """
    scheme = _scheme(endpoint)
    if scheme in _WEB:
        return scheme == "https"
    return files if insecure is None else not insecure


def address(endpoint: str) -> str:
    """Return what gRPC connects to: a host and a port, or a target of its own kind.

    >>> address("http://collector"), address("collector:1"), address("unix:///run/otel.sock")
    ('collector:4317', 'collector:1', 'unix:///run/otel.sock')
    """
    if not endpoint:
        return f"localhost:{GRPC_PORT}"
    if _scheme(endpoint) not in _WEB:
        return endpoint
    host, port = _parts(endpoint)
    return host if port else f"{host}:{GRPC_PORT}"


def url(endpoint: str, path: str, *, secure: bool) -> str:
    """Return the URL of a signal below an endpoint.

    >>> url("collector:4318", "v1/traces", secure=False)
    'http://collector:4318/v1/traces'
    """
    base = endpoint or f"localhost:{HTTP_PORT}"
    if not _scheme(base):
        base = f"{'https' if secure else 'http'}://{base}"
    _parts(base)
    return f"{base.rstrip('/')}/{path}" if path else base


def hidden(endpoint: str) -> tuple[str, str]:
    """Return what is not for everybody to see: who logs in, and the query.

    >>> hidden("https://user:pass@collector:4318/v1/traces?token=x")
    ('user:pass', 'token=x')
    """
    rest, _, query = endpoint.partition("?")
    return rest.rpartition("@")[0].rpartition("/")[2], query


def _scheme(endpoint: str) -> str:
    """Return the scheme of an endpoint, which may have none: `localhost:4317` is a host, not a scheme."""
    scheme, separator, _ = endpoint.partition("://")
    return scheme.lower() if separator else ""


def _parts(endpoint: str) -> tuple[str, int | None]:
    """Return the host, with its port if it has one, and the port."""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.netloc.rpartition("@")[2], parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in _WEB:
        raise UsageError(f"{shown(endpoint)!r} is no place to push telemetry to; write HOST:PORT or http://HOST:PORT")
    return host, port
