"""Whether the process that answers is one of several with the same flags.

An override lives in one process. Where a program forks, as gunicorn does to make its workers, the page reaches one of
them: its own, or the one that happens to get the request. The others keep what they have, and whoever has set a flag
must not be told that it is in force everywhere. What reaches all of them is a ConfigMap.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wigwag.dflag import fork

if TYPE_CHECKING:
    from wigwag.dflag.page.messages import PageRequest


class Division:
    """Knows whether this process was forked, as a parent or a child, since there is a page."""

    fork_order = 3

    def __init__(self) -> None:
        self._forked = False
        fork.remember(self)

    def warning(self, request: PageRequest) -> str | None:
        """Return what whoever looks at flags here, or sets one, must know."""
        fork.catch_up()
        if not (self._forked or request.multiprocess):
            return None
        others = "the program has others, with flags of their own; to change all of them, use the ConfigMap"
        return f"this is about process {os.getpid()} only: {others}"

    def before_fork(self) -> None:
        """There is nothing that would have to rest."""

    def after_fork_in_parent(self) -> None:
        self._forked = True

    def after_fork_in_child(self) -> None:
        self._forked = True

    def go_on_in_child(self) -> None:
        """There is nothing to go on with."""
