"""Names of flags, and the names that follow from them: of files, options and variables."""

from __future__ import annotations

import re
from collections.abc import Collection

from wigwag.errors import UsageError
from wigwag.suggest import closest

_LONGEST = 253
_BAD = re.compile(r"[\s=/\x00-\x1f\x7f\ud800-\udfff]")


def check_name(name: str) -> None:
    """Raise if no file or option could have this name.

    >>> check_name("a=b")
    Traceback (most recent call last):
    wigwag.errors.UsageError: 'a=b' cannot be the name of a flag: it has a '=' in it
    """
    bad = _BAD.search(name)
    if bad is not None:
        raise UsageError(f"{name!r} cannot be the name of a flag: it has a {bad[0]!r} in it")
    if not name or name.startswith(("-", "..")) or len(name) > _LONGEST:
        raise UsageError(
            f"{name[:_LONGEST]!r} cannot be the name of a flag: it takes 1 to {_LONGEST} characters, "
            "and must not begin with '-' or '..'"
        )


def path_name(name: str) -> str:
    """Return the name of the flag that names the file of another."""
    return f"{name}_path"


def variable(name: str, prefix: str = "") -> str:
    """Return the environment variable of a flag.

    >>> variable("db.pool-size", "app_")
    'APP_DB_POOL_SIZE'
    """
    return re.sub(r"[^A-Z0-9]", "_", (prefix + name).upper())


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return a hint at the name that is most like a wrong one, to be put after a message; or nothing.

    >>> did_you_mean("ratee", ["name", "rate"]), did_you_mean("zebra", ["rate"])
    ("; did you mean 'rate'?", '')
    """
    close = closest(name, known)
    return f"; did you mean {close!r}?" if close else ""
