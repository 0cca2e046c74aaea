"""TLS of a server: its certificate, and which clients it accepts.

Certificates are replaced while we run (cert-manager, a mounted Secret), so the files are checked when a client says
hello: if they have changed, a whole new context is built and used from then on. If that fails, because a file is half
written or key and certificate do not belong together yet, the last good context stays in force. Connections keep what
they began with. A certificate that is in memory (`MemoryCertificate`) is replaced by whoever has a new one.
"""

from __future__ import annotations

import logging
import os
import ssl
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from wigwag.errors import StartError
from wigwag.loglimit import LogLimiter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from ssl import SSLContext, SSLObject

log = logging.getLogger("wigwag.wire")
FileStamp = tuple[tuple[int, int, int], ...]


class Tls(Struct, frozen=True, kw_only=True):
    """The files of one listener's certificate, and what clients have to show."""

    certificate: str
    key: str
    authority: str | None = None
    """The CA of client certificates."""
    clients: Literal["none", "optional", "required"] = "none"
    http2: bool = True
    """Whether clients are offered HTTP/2."""

    def files(self) -> tuple[str, ...]:
        """Return the files that it depends on."""
        return tuple(path for path in (self.certificate, self.key, self.authority) if path)


class Certificates:
    """A context that follows its files."""

    def __init__(self, tls: Tls) -> None:
        self._tls, self._stamp = tls, file_stamp(tls.files())
        self._limited = LogLimiter(log)
        self._current = context(tls)
        self.front = context(tls)
        """Give this to the listener."""
        self.front.sni_callback = self._hello

    def _hello(self, connection: SSLObject, _name: str | None, _context: SSLContext) -> None:
        self._refresh()
        connection.context = self._current

    def _refresh(self) -> None:
        try:
            stamp = file_stamp(self._tls.files())
            if stamp != self._stamp:
                self._current, self._stamp = context(self._tls), stamp
                log.info("certificate loaded: %s", self._tls.certificate)
        except (OSError, StartError) as error:  # at every handshake, until the files are mended
            message = "certificate not loaded, the last one stays: %s: %s"
            self._limited.log(logging.WARNING, monotonic(), message, self._tls.certificate, error)


class MemoryCertificate:
    """A certificate and its key as text in PEM, for clients that show none. `replace` has new connections use another.

    Without a certificate, every handshake fails until there is one. Python reads certificates from files only. They are
    in a file in memory for that moment, and never on a disk.
    """

    clients: Literal["none"] = "none"

    def __init__(self, certificate: str = "", key: str = "", *, http2: bool = True) -> None:
        self._http2 = http2
        self._current = _memory_context(certificate, key, http2=http2)
        self.front = _memory_context(certificate, key, http2=http2)
        """Give this to the listener."""
        self.front.sni_callback = self._hello

    def replace(self, certificate: str, key: str) -> None:
        """Use another one from now on; `StartError` if it cannot be used, and the last one stays."""
        self._current = _memory_context(certificate, key, http2=self._http2)

    def _hello(self, connection: SSLObject, _name: str | None, _context: SSLContext) -> None:
        connection.context = self._current


def front(tls: Tls | MemoryCertificate) -> SSLContext:
    """Return the context for a listener, which follows the certificate."""
    return tls.front if isinstance(tls, MemoryCertificate) else Certificates(tls).front


def file_stamp(paths: Iterable[str]) -> FileStamp:
    """Return what changes when a file is replaced."""
    return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in (Path(path).stat() for path in paths))


def hardened(context: SSLContext, *protocols: str) -> SSLContext:
    """Return a context that takes TLS 1.2 or newer only, and offers these protocols."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(protocols)
    return context


def _server_context(*, http2: bool) -> SSLContext:
    return hardened(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *["h2"] * http2, "http/1.1")


def context(tls: Tls) -> SSLContext:
    """Return a server's context with what is in the files now."""
    ssl_context = _server_context(http2=tls.http2)
    try:
        ssl_context.load_cert_chain(tls.certificate, tls.key)
    except ssl.SSLError as error:
        raise StartError(_unusable(error, tls.certificate, tls.key)) from error
    if tls.clients != "none":
        if tls.authority is None:
            raise ValueError("client certificates need an authority that signs them")
        try:
            ssl_context.load_verify_locations(tls.authority)
        except ssl.SSLError as error:
            raise StartError(_unusable(error, tls.authority)) from error
        ssl_context.verify_mode = ssl.CERT_REQUIRED if tls.clients == "required" else ssl.CERT_OPTIONAL
    return ssl_context


@contextmanager
def pem_file(text: str) -> Iterator[str]:
    """Yield the path of a file with this text, which is gone afterwards. On Linux it is in memory."""
    memory = getattr(os, "memfd_create", None)
    if memory is None:  # not Linux
        from tempfile import NamedTemporaryFile

        with NamedTemporaryFile() as file:  # for its owner alone
            file.write(text.encode())
            file.flush()
            yield file.name
        return
    with open(memory("pem"), "wb") as file:  # noqa: PTH123 - there is no path to it
        file.write(text.encode())
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _memory_context(certificate: str, key: str, *, http2: bool) -> SSLContext:
    ssl_context = _server_context(http2=http2)
    if not certificate:
        return ssl_context
    try:
        with pem_file(f"{certificate}\n{key}") as path:
            ssl_context.load_cert_chain(path)
    except ssl.SSLError as error:
        reason = error.reason.replace("_", " ").lower() if error.reason else "it is not in PEM"
        raise StartError(f"the certificate with its key cannot be used: {reason}") from error
    return ssl_context


def _unusable(error: ssl.SSLError, certificate: str, key: str = "") -> str:
    """Say which file is to blame: OpenSSL does not."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the private key in {key} does not belong to the certificate in {certificate}"
    for path, what, mark in (
        (certificate, "certificate", b"CERTIFICATE-----"),
        (key, "private key", b"PRIVATE KEY-----"),
    ):
        if path and mark not in Path(path).read_bytes():
            return f"{path} holds no {what} in PEM"
    reason = error.reason.replace("_", " ").lower() if error.reason else "it is not in PEM"
    return f"{' or '.join(filter(None, (certificate, key)))} cannot be used: {reason}"
