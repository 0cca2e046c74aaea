"""Credentials in files: one token each, read again for every use.

Mounted Secrets and projected service-account tokens are replaced while a process runs, so nothing is cached here. The
content of a file is in no error and in no log.
"""

from __future__ import annotations

from wigwag.errors import UsageError
from wigwag.sources.disk.read import read

_LARGEST = 64 << 10


def read_secret(path: str, remedy: str) -> str:
    """Return the text of a file without blanks around it; `UsageError` if it is empty or no text."""
    try:
        secret = read(path, _LARGEST).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not text"
        raise UsageError(f"{path}: {reason}; {remedy}") from None
    if not secret:
        raise UsageError(f"{path}: is empty; {remedy}")
    return secret


def read_token(path: str, remedy: str) -> str:
    """Return the token in a file; `UsageError` also if it cannot be sent in a header."""
    token = read_secret(path, remedy)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{path}: holds text that cannot be sent as a token; {remedy}")
    return token


def read_authorization(path: str) -> str:
    """Return the `Authorization` header for the bearer token in a file."""
    remedy = "tokenFile must be a file that holds one token, such as a mounted service-account token"
    return f"Bearer {read_token(path, remedy)}"
