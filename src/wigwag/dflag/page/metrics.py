"""The metrics of the flags in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from wigwag.observe import Reading, Registry

if TYPE_CHECKING:
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.page.state import PageState
    from wigwag.dflag.updating.health import UpdaterHealth
    from wigwag.observe import Labels

TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Fixed:
    """An instrument with a fixed reading."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def read(self) -> Reading:
        return self._reading


def rendered(flags: FlagSet, state: PageState, updater: UpdaterHealth | None) -> str:
    """Return all metrics in the text format."""
    readings = [*_of_flags(flags, state), *(_of_updater(updater) if updater is not None else ())]
    return Registry(map(_Fixed, readings)).render()


def _of_flags(flags: FlagSet, state: PageState) -> Iterable[Reading]:
    checksums = {"dynamic": state.checksum_dynamic, "static": state.checksum_static}
    overridden = sum(entry.overridden for entry in state.entries)
    changed = sum(entry.changed for entry in state.entries)
    yield _one(
        "gauge", "dflag_generation", "Changes to the flags; flags that change together count once.", state.generation
    )
    yield _one("gauge", "dflag_flags", "Flags that are defined.", len(state.entries))
    yield _one("gauge", "dflag_changed", "Flags that differ from their defaults.", changed)
    yield _one("gauge", "dflag_overrides", "Flags with an override that was set over HTTP.", overridden)
    yield _one("counter", "dflag_notifier_errors", "Notifiers that raised.", flags.notifier_errors)
    yield Reading(
        "gauge",
        "dflag_checksum",
        "The checksum of the original, as a label.",
        "",
        ("set", "type", "checksum"),
        [((flags.name, which, checksum), 1) for which, checksum in checksums.items()],
    )


def _of_updater(updater: UpdaterHealth) -> Iterable[Reading]:
    levels = [problem.level for problem in updater.problems]
    now: list[tuple[Labels, int]] = [((level,), levels.count(level)) for level in ("error", "warning")]
    yield _one("gauge", "dflag_updater_running", "Whether the updater is running.", int(updater.running))
    yield _one("counter", "dflag_reloads", "Reloads of the directories.", updater.generation)
    yield _one("counter", "dflag_errors", "Errors so far.", updater.errors)
    yield _one("counter", "dflag_warnings", "Warnings so far.", updater.warnings)
    yield Reading("gauge", "dflag_problems", "Current problems.", "", ("level",), now)
    restart = len(updater.restart_required)
    yield _one("gauge", "dflag_restart_required", "Static flags that wait for a restart.", restart)


def _one(kind: Literal["gauge", "counter"], name: str, help: str, value: float) -> Reading:
    return Reading(kind, name, help, "", (), [((), value)])
