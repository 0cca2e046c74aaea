"""TLS of our clients: which servers they trust, and the certificate that they show. All client contexts are made here.

Files are replaced while we run, so a context is made again when its files have changed. If that fails, the request
fails and the error names the file: stale trust is worse than a late response.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from wigwag.errors import UsageError


def empty_context(protocol: str, kind: type[ssl.SSLContext] = ssl.SSLContext) -> ssl.SSLContext:
    """Return a client's context that checks certificates and host names, and trusts nobody yet."""
    made = kind(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    made.set_alpn_protocols([protocol])
    return made


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
        made = empty_context(protocol)
        if self.authority:
            made.load_verify_locations(self.authority)
        else:
            made.load_default_certs()
        if self.certificate:
            made.load_cert_chain(self.certificate, self.key or None)
        return made

    def files(self) -> tuple[str, ...]:
        """Return the files that it depends on."""
        return tuple(path for path in (self.authority, self.certificate, self.key) if path)


class Contexts:
    """The context of a trust, made when it is first needed and whenever its files have changed."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._made: ssl.SSLContext | None = None
        self._stamp: tuple[tuple[int, int, int], ...] = ()

    def current(self) -> ssl.SSLContext:
        """Return the context for a connection that begins now."""
        try:
            stamp = tuple(map(_stamp, self._trust.files()))
            if self._made is None or stamp != self._stamp:
                self._made, self._stamp = self._trust.context(), stamp
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(self._trust.files()) or "the system's authorities"
            raise UsageError(
                f"{files}: cannot be used for TLS: {error.strerror or error}; give files in PEM"
            ) from error
        return self._made


def _stamp(path: str) -> tuple[int, int, int]:
    found = Path(path).stat()
    return found.st_mtime_ns, found.st_ino, found.st_size
