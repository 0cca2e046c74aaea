"""How a watch behaves in time: the numbers."""

from __future__ import annotations

from dataclasses import dataclass

from wigwag.pipeline.backoff import Backoff


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds, unless something else is said."""

    backoff: Backoff = Backoff(first=0.8, reconnects=4.0)
    """Fewer reconnects than usual: what follows one may be a list of all objects."""
    page: int = 500
    """Objects in a page of a list."""
    shortest: float = 300.0
    longest: float = 600.0
    """Between these lies how long a watch is to last; it is drawn by lot, so that a fleet spreads."""
    margin: float = 15.0
    """How much longer than it is to last a watch may last, before it is taken for dead."""
    silence: float = 150.0
    """How long nothing may come of a server that sends bookmarks, which is usually once a minute."""
    initial: float = 10.0
    """How long nothing may come before all objects that are there have come."""
    quiet: float = 1.0
    """How long a new watch must be open, and nothing come, to confirm what is known."""
    hasty: float = 1.0
    """A watch that ends sooner, and told nothing, has failed."""
    long: float = 30.0
    """After a watch that lasted so long, the next is asked for at once."""
    audit: float = 1800.0
    """After so long without any sign, the list is compared: a restored server may be silent for ever."""
