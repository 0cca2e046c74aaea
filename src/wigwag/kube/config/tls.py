"""TLS settings of an API server: CA and client certificate, from files or as text from a kubeconfig or a plugin.

Python reads a client's certificate and key from files only. Text is therefore written to a file in memory (memfd) for
that moment, so it works on a read-only file system, and no key is left on a disk.
"""

from __future__ import annotations

import ssl
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wigwag.wire.client.tls import Trust
from wigwag.wire.tls import hardened, pem_file

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class NamedServerContext(ssl.SSLContext):
    """A context for a server whose certificate may be for another name than that of its address."""

    expected: str = ""
    """That name; empty: that of the address."""

    def wrap_bio(self, *given: Any, **options: Any) -> ssl.SSLObject:
        options["server_hostname"] = self.expected or options.get("server_hostname")
        return super().wrap_bio(*given, **options)


@dataclass(frozen=True, slots=True)
class ClusterTrust(Trust):
    """Files as in `Trust`; text takes precedence over files."""

    authority_data: str = ""
    certificate_data: str = field(default="", repr=False)
    key_data: str = field(default="", repr=False)
    server_name: str = ""
    """The name that the server's certificate is for; empty: that of its address."""
    insecure: bool = False
    """Do not verify the server's certificate."""

    def context(self, protocol: str = "http/1.1") -> ssl.SSLContext:
        made = NamedServerContext(ssl.PROTOCOL_TLS_CLIENT)
        made.expected = self.server_name
        hardened(made, protocol)
        if self.insecure:
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        elif self.authority_data:
            made.load_verify_locations(cadata=self.authority_data)
        elif self.authority:
            made.load_verify_locations(self.authority)
        else:
            made.load_default_certs()
        if self.certificate_data or self.certificate:
            with _file(self.certificate_data, self.certificate) as certificate, _file(self.key_data, self.key) as key:
                made.load_cert_chain(certificate, key or None)
        return made

    def files(self) -> tuple[str, ...]:
        ca = "" if self.authority_data or self.insecure else self.authority
        certificate = "" if self.certificate_data else self.certificate
        key = "" if self.key_data else self.key
        return tuple(path for path in (ca, certificate, key) if path)


def _file(text: str, path: str) -> AbstractContextManager[str]:
    """Return the path of a file with this text, or the given path if there is no text."""
    return pem_file(text) if text else nullcontext(path)
