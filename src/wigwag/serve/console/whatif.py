"""What a flag document would change: findings, the difference from what is served, and who gets another answer.

Nothing is written. The document takes the place of one source, or comes on top of all; the flags of other sources stay,
so the answer is what clients would get, not what the document says alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wigwag.errors import DocumentError
from wigwag.flags import store
from wigwag.flags.checks.lint import lint_documents
from wigwag.flags.diff.compare import Comparing
from wigwag.flags.diff.shares import flag_moves
from wigwag.flags.flag import LoadSettings
from wigwag.flags.flagset import FlagSet
from wigwag.serve.slices import MOST_EVALUATIONS, in_slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.model import Json
    from wigwag.serve.snapshot import Snapshot

_PASTED = "the pasted document"


async def what_if(
    snapshot: Snapshot,
    selector: str,
    document: str,
    source: str,
    contexts: list[dict[str, Json]],
    now: float,
) -> dict[str, Any]:
    """Return what changes if a document takes the place of a source; of none, if the source has no such name."""
    flags = snapshot.select(selector)
    settings = flags.layers[0].setting.options if flags.layers else LoadSettings()
    findings = [each.to_dict() for each in lint_documents([(source or _PASTED, document, None)], settings.limits)]
    try:
        proposed = store.load(document, source=source or _PASTED, options=settings, clock=flags.clock)
    except DocumentError:
        return {"findings": findings, "usable": False}
    after = FlagSet(_replaced(flags, proposed), flags.clock)
    comparing = Comparing(flags, after, contexts, now=now, work=MOST_EVALUATIONS, sources=False)
    await in_slices(comparing.steps())
    comparison = comparing.result()
    moved = list(_moved(flags, after))
    return {
        "findings": findings,
        "usable": True,
        "comparison": comparison.to_dict(),
        "text": str(comparison),
        "shares": moved,
    }


def _replaced(flags: FlagSet, proposed: FlagSet) -> Iterator[Any]:
    """Yield the layers with the proposed one in the place of its source, or on top."""
    (new,) = proposed.layers
    there = False
    for layer in flags.layers:
        if layer.setting.source == new.setting.source:
            there = True
            yield new
        else:
            yield layer
    if not there:
        yield new


def _moved(before: FlagSet, after: FlagSet) -> Iterator[dict[str, Json]]:
    """Yield the shares of users that other weights move."""
    for flag in after.flags():
        for place, moves in flag_moves(before.sets.get(flag.set_id, {}).get(flag.key), flag).items():
            for move in moves:
                share = {"before": move.before, "after": move.after, "share": float(move.share)}
                yield {"key": flag.key, "place": place, "text": str(move)} | share
