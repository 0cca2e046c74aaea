"""How a watch behaves in time: the numbers."""

from __future__ import annotations

from dataclasses import dataclass

from wigwag.pipeline.backoff import Backoff


@dataclass(frozen=True, slots=True)
class WatchTiming:
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
    silence: float = 100.0
    """How long nothing may come of a server that sends bookmarks: kube-apiserver sends one every 60 to 77 s."""
    probe: float = 20.0
    """After so long a silence, or up to a quarter less, the server is asked whether it is there."""
    answer: float = 8.0
    """How long the answer to that may take. A dead connection is found within the sum of the two."""
    compare: float = 180.0
    """Every so often, give or take a third, all objects are compared with the server's."""
    verify: float = 3.0
    """Up to so long after a reconnect they are compared; a random time, so that a fleet spreads."""
    settle: float = 5.0
    """How long an event may take that a comparison has been faster than."""
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
