"""Which question to put to Consul next: the rules of blocking queries, as decisions without a connection.

A blocking query waits until an index has passed the one that it names, or until its time is up. So an answer is no
change: only its content can tell. And an index is no clock: it goes back when a snapshot is restored, a server is
replaced or another one answers. Whoever then goes on to wait for the old one sleeps through every change.

    answer, index ahead      wait for the next                  answer, index behind    ask at once, from the beginning
    answer, index 0 or none  wait for 1: never without limit    failure                 the same again, but in short

The hard case is the first question after a failure. A long one would leave the agent without word for a minute, though
all is well again; and if the server has begun to count anew, it would wait for an index that is far away. So it is a
short one, and from the beginning if the failure was a refusal or went on for long.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wigwag.pipeline.limit import Burst, Limiter

WAIT = 60.0
"""Consul's own default is 5 minutes; but this is how old flags look while nothing changes, and how long a dead
connection goes unnoticed."""
LONGEST_WAIT = 600.0
SHORT_WAIT = 1.0
LONG_OUTAGE = 60.0
_MARGIN = 10.0


@dataclass(frozen=True, slots=True)
class BlockingQuery:
    """What to ask for."""

    index: int = 0
    """Answer when there is something newer than this; 0: at once."""
    wait: float = 0.0
    """Or after so many seconds."""

    @property
    def patience(self) -> float:
        """How long the answer may take, in seconds. Consul adds up to a sixteenth by lot.

        >>> BlockingQuery(7, 60.0).patience, BlockingQuery().patience
        (73.75, 10.0)
        """
        return self.wait * 17 / 16 + _MARGIN

    def parameters(self) -> dict[str, str]:
        """Return it as parameters of a request.

        >>> BlockingQuery(7, 60.0).parameters(), BlockingQuery().parameters()
        ({'index': '7', 'wait': '60000ms'}, {})
        """
        return {"index": str(self.index), "wait": f"{round(self.wait * 1000)}ms"} if self.index else {}


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the answers have come, and how it has gone since.

    >>> Cursor().answered(40).question(60.0)
    Question(index=40, wait=60.0)
    >>> Cursor(40).answered(12).question(60.0), Cursor(40).answered(0).question(60.0).index
    (Question(index=0, wait=0.0), 1)
    >>> Cursor(40).failed(now=0.0, forget=False).question(60.0)
    Question(index=40, wait=1.0)
    """

    index: int = 0
    failing_since: float | None = None
    """When the first of the failures in a row was."""

    def question(self, wait: float) -> BlockingQuery:
        """Return the next question, which may wait so many seconds if all is well."""
        if not self.index:
            return BlockingQuery()
        return BlockingQuery(self.index, wait if self.failing_since is None else min(wait, SHORT_WAIT))

    def answered(self, index: int) -> Cursor:
        """An answer came; 0 if it names no index."""
        if index < 1:
            return Cursor(1)
        return Cursor(index if index >= self.index else 0)

    def failed(self, now: float, *, forget: bool) -> Cursor:
        """No answer came; `forget` if the index may mean nothing any more."""
        since = now if self.failing_since is None else self.failing_since
        lost = forget or now - since >= LONG_OUTAGE
        return Cursor(0 if lost else self.index, since)


@dataclass(frozen=True, slots=True)
class QueryTiming:
    """How often it may be asked, however often it answers.

    Answers that bring nothing come from neighbours' changes, and are no reason to hurry. Those that bring news are what
    the watch is there for: somebody who turns a flag on, off and on again must see it each time.
    """

    idle: Limiter = field(default_factory=lambda: Burst(2, 15.0))
    news: Limiter = field(default_factory=lambda: Burst(10, 5.0))

    def pause(self, now: float, *, news: bool) -> float:
        """Return how long to wait before the next question; 0: not at all. Whoever has waited asks again."""
        return max(0.0, (self.news if news else self.idle)(now))
