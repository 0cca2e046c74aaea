"""The certificates of a connection to a collector, read as a whole and looked at before they are used.

gRPC notices a broken certificate only when it shakes hands, and then goes on failing; so the files are tried with the
standard library first. A half-written pair never replaces one that works.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from wigwag.errors import StartError

if TYPE_CHECKING:
    from wigwag.telemetry.settings import OtlpTarget

LARGEST = 1 << 20
_SEE = "see --otel-ca-path, --otel-cert-path and --otel-key-path, or their OTEL_EXPORTER_OTLP_* variables"


class Files(Struct, frozen=True):
    """What is in the files; empty where none is named."""

    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""


def read_files(target: OtlpTarget) -> Files:
    """Return what is in the files now, if it can be used; otherwise raise `StartError`."""
    files = Files(_read(target.authority), _read(target.certificate), _read(target.key))
    _try(target, files)
    return files


def _read(path: str) -> bytes:
    if not path:
        return b""
    try:
        with Path(path).open("rb") as file:
            found = file.read(LARGEST + 1)
    except OSError as error:
        raise StartError(f"cannot read {path}, a file for the collector: {error.strerror}; {_SEE}") from None
    if len(found) > LARGEST:
        raise StartError(f"{path} is too large to be a certificate; {_SEE}")
    return found


def _try(target: OtlpTarget, files: Files) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    path = target.authority
    try:
        if files.authority:
            context.load_verify_locations(cadata=files.authority.decode("ascii"))
        path = target.certificate
        if files.certificate:
            context.load_cert_chain(target.certificate, target.key)
    except (ssl.SSLError, OSError, ValueError):
        raise StartError(f"{path} is not a certificate in PEM, or its key does not belong to it; {_SEE}") from None
