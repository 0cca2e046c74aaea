"""TLS of our clients: which servers they trust, and the certificate that they show. All client contexts are made here.

Files are replaced while we run, so a new context is made when they have changed. If that fails, the request fails and
says which file: stale trust is worse than a failed request.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from wigwag.errors import UsageError
from wigwag.wire.tls import FileStamp, file_stamp, hardened


@dataclass(frozen=True, slots=True)
class Trust:
    """Files in PEM."""

    authority: str = ""
    """Trust what these sign; empty: what the system trusts."""
    certificate: str = ""
    """Our own certificate, for servers that ask for one."""
    key: str = ""
    """Its key; empty: in the same file."""

    def context(self, protocol: str = "http/1.1") -> ssl.SSLContext:
        """Return a client's context with what is in the files now, for a protocol of ALPN."""
        context = hardened(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), protocol)  # checks certificates and host names
        if self.authority:
            context.load_verify_locations(self.authority)
        else:
            context.load_default_certs()
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key or None)
        return context

    def files(self) -> tuple[str, ...]:
        """Return the files that it depends on."""
        return tuple(path for path in (self.authority, self.certificate, self.key) if path)


def current_context(trust: Trust) -> Callable[[], ssl.SSLContext]:
    """Return what gives the context of a trust: made when it is first needed, and whenever its files have changed."""

    @lru_cache(maxsize=1)
    def made(_stamp: FileStamp) -> ssl.SSLContext:
        return trust.context()

    def current() -> ssl.SSLContext:
        try:
            return made(file_stamp(trust.files()))
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(trust.files()) or "the system's authorities"
            reason = error.strerror or error
            raise UsageError(f"{files}: cannot be used for TLS: {reason}; give files in PEM") from error

    return current
