"""Whom we believe to be the API server, and what we show it: certificates from files, or from a kubeconfig itself.

Python reads a client's certificate and key from files only. What a kubeconfig or a plugin gives as text is put into a
file in memory for that moment, so it works where nothing can be written, and no key is left on a disk.
"""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from wigwag.wire.client.tls import Trust, empty_context

if TYPE_CHECKING:
    from collections.abc import Iterator


class NamedServerContext(ssl.SSLContext):
    """A context for a server whose certificate is for another name than the one it is reached by."""

    expected: str = ""

    def wrap_bio(self, *given: Any, **options: Any) -> ssl.SSLObject:
        options["server_hostname"] = self.expected
        return super().wrap_bio(*given, **options)


@dataclass(frozen=True, slots=True)
class ClusterTrust(Trust):
    """Files as in `Trust`; text, where there is some, goes before files."""

    authority_data: str = ""
    certificate_data: str = field(default="", repr=False)
    key_data: str = field(default="", repr=False)
    server_name: str = ""
    """The name that the server's certificate is for; empty: that of its address."""
    insecure: bool = False
    """Believe anybody."""

    def context(self, protocol: str = "http/1.1") -> ssl.SSLContext:
        made = empty_context(protocol, NamedServerContext if self.server_name else ssl.SSLContext)
        if isinstance(made, NamedServerContext):
            made.expected = self.server_name
        self._believe(made)
        self._show(made)
        return made

    def files(self) -> tuple[str, ...]:
        found = "" if self.authority_data or self.insecure else self.authority
        own = () if self.certificate_data else (self.certificate,)
        keys = () if self.key_data else (self.key,)
        return tuple(path for path in (found, *own, *keys) if path)

    def _believe(self, context: ssl.SSLContext) -> None:
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.authority_data:
            context.load_verify_locations(cadata=self.authority_data)
        elif self.authority:
            context.load_verify_locations(self.authority)
        else:
            context.load_default_certs()

    def _show(self, context: ssl.SSLContext) -> None:
        if not (self.certificate_data or self.certificate):
            return
        with _file(self.certificate_data, self.certificate) as certificate, _file(self.key_data, self.key) as key:
            context.load_cert_chain(certificate, key or None)


@contextmanager
def _file(text: str, path: str) -> Iterator[str]:
    """Yield the path of a file with this text, or the given path if there is no text."""
    if not text:
        yield path
        return
    memory = getattr(os, "memfd_create", None)
    if memory is None:  # not Linux
        with NamedTemporaryFile() as file:  # for its owner alone
            file.write(text.encode())
            file.flush()
            yield file.name
        return
    with open(memory("pem"), "wb") as file:  # noqa: PTH123 - there is no path to it
        file.write(text.encode())
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
