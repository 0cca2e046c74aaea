"""Credentials in files: one word each, read again whenever they are used.

Mounted Secrets and projected service-account tokens are replaced while a process runs, so nothing is cached here. What
a file holds is in no error and in no log.
"""

from __future__ import annotations

from wigwag.errors import UsageError
from wigwag.sources.disk.read import read

_LARGEST = 64 << 10


def read_secret(path: str, remedy: str) -> str:
    """Return what a file holds, without the line break that editors leave; `UsageError` says what is wrong with it."""
    try:
        secret = read(path, _LARGEST).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not text"
        raise UsageError(f"{path}: {reason}; {remedy}") from None
    if not secret:
        raise UsageError(f"{path}: is empty; {remedy}")
    return secret


def read_authorization(path: str) -> str:
    """Return the `Authorization` header for the bearer token in a file."""
    remedy = "tokenFile must be a file that holds one token, such as a mounted service-account token"
    header = f"Bearer {read_secret(path, remedy)}"
    if not header.isascii() or not header.isprintable() or header.count(" ") > 1:
        raise UsageError(f"{path}: holds something that cannot be sent as a token; {remedy}")
    return header
