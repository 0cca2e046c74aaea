"""What can go wrong with a request of ours, as one branch of the tree in `wigwag.errors`.

    FetchError              an HTTP request failed
    ├── UnreachableError    no address, no connection, or a proxy that does not let us through
    ├── UntrustedError      TLS: a certificate that proves nothing, or no TLS at all
    ├── SlowError           a limit of time was reached
    ├── BrokenError         what came back is no HTTP, or breaks off
    ├── OversizeError       what came back is larger than the caller takes
    └── ForbiddenError      we will not go where we are sent: another scheme, a link-local address, in circles

A message names the host, what happened and what to do. It is shown and logged, so it never holds a credential: hosts
are named by `Url`, which leaves them out, and nothing that a server says is quoted but its status.
"""

from __future__ import annotations

import os
import socket
import ssl

from wigwag.errors import WigwagError


class FetchError(WigwagError):
    """An HTTP request failed."""

    def __init__(self, host: object, reason: str) -> None:
        super().__init__(f"{host}: {reason}")


class UnreachableError(FetchError):
    """There is no connection."""


class UntrustedError(FetchError):
    """TLS failed."""


class SlowError(FetchError):
    """A limit of time was reached."""


class BrokenError(FetchError):
    """What came back is no HTTP, or breaks off."""


class OversizeError(FetchError):
    """What came back is too large."""


class ForbiddenError(FetchError):
    """We will not go there."""


_TRUST = "trust its authority: add it to the system's, or name its file as this source's CA"
_REMEDIES = (
    ("expired", "renew the server's certificate, or set this machine's clock"),
    ("not yet valid", "set this machine's clock, or the server's"),
    ("mismatch", "use a name that the certificate is for"),
    ("not valid for", "use a name that the certificate is for"),
    ("issuer", _TRUST),
    ("self-signed", _TRUST),
    ("self signed", _TRUST),
    ("signature failure", _TRUST),
)


def untrusted(host: object, error: ssl.SSLError) -> UntrustedError:
    """Put an error of TLS into words.

    >>> print(untrusted("h:443", ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")))
    h:443: TLS failed: wrong version number; see whether the server speaks TLS 1.2 or newer on this port
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message or "the certificate cannot be verified"
        remedy = next((remedy for part, remedy in _REMEDIES if part in reason.lower()), "look at its certificate")
        return UntrustedError(host, f"not trusted: {reason.rstrip('.')}; {remedy}")
    reason = str(error.strerror or error.reason or error).rpartition("] ")[2].partition(" (_ssl")[0]
    return UntrustedError(host, f"TLS failed: {reason}; see whether the server speaks TLS 1.2 or newer on this port")


def unreachable(host: object, error: OSError) -> UnreachableError:
    """Put a connection that did not come about into words.

    >>> print(unreachable("h:80", ConnectionRefusedError(111, "Connection refused")))
    h:80: no connection: Connection refused; see that the server is up and the port is right
    """
    if isinstance(error, socket.gaierror):
        return UnreachableError(host, f"no address: {error.strerror}; check the name and this machine's DNS")
    return UnreachableError(host, f"no connection: {_said(error)}; see that the server is up and the port is right")


def broken(host: object, error: OSError) -> FetchError:
    """Put a connection that broke while it was in use into words."""
    if isinstance(error, ssl.SSLError):
        return untrusted(host, error)
    return BrokenError(host, f"the connection broke: {_said(error)}; try again")


def _said(error: OSError) -> str:
    """Return the system's words for an error, which say no more than its number."""
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
