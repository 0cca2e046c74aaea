"""Variables that should mean a flag, and do not.

With a prefix of its own, a program can tell which variables are meant for it, and so that one of them is misspelt. What
Kubernetes puts into every container about the services of the namespace may have the same prefix, and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from wigwag.dflag.naming import variable
from wigwag.suggest import closest

_SHOWN = 10
_SHORTEST = 3
_SERVICE = re.compile(r".*_(?:SERVICE_HOST|SERVICE_PORT(?:_.+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)")
_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://")


def strangers(environment: Mapping[str, str], prefix: str, known: Collection[str]) -> list[str]:
    """Return the variables that have the prefix and mean no flag; without a prefix worth the name, none.

    >>> strangers({"SHOP_RATE": "1", "SHOP_RATEE": "2", "SHOP_SERVICE_HOST": "10.0.0.1", "HOME": "/"}, "SHOP_", {"SHOP_RATE"})
    ['SHOP_RATEE']
    """  # noqa: E501 - an environment
    start = variable("", prefix)
    if len(start) < _SHORTEST:
        return []
    ours = (name for name in environment if name.startswith(start) and name not in known)
    return sorted(name for name in ours if not _of_kubernetes(name, environment[name]))


def _of_kubernetes(name: str, value: str) -> bool:
    return _SERVICE.fullmatch(name) is not None or (name.endswith("_PORT") and _ADDRESS.match(value) is not None)


def told(strange: list[str], prefix: str, known: Collection[str], flags: str) -> list[str]:
    """Return what there is to say about variables that mean no flag of a set."""
    lines = [f"{name} names no flag of the set {flags!r}{_hint(name, prefix, known)}" for name in strange[:_SHOWN]]
    more = len(strange) - _SHOWN
    return [*lines, f"and {more} more variables name none"] if more > 0 else lines


def _hint(name: str, prefix: str, known: Collection[str]) -> str:
    """Compare what comes after the prefix: with it, all of them would be much alike."""
    cut = len(prefix)
    close = closest(name[cut:], [each[cut:] for each in known])
    return f"; did you mean {name[:cut]}{close}?" if close else ""
