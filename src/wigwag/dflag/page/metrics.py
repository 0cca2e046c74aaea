"""The metrics of the flags in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

from wigwag.observe import Reading, render

if TYPE_CHECKING:
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.page.state import PageState
    from wigwag.dflag.updating.health import UpdaterHealth
    from wigwag.observe import Labels

    Metric: TypeAlias = tuple[Literal["gauge", "counter"], str, str, float]
TYPE = "text/plain; version=0.0.4; charset=utf-8"


def rendered(flags: FlagSet, state: PageState, updater: UpdaterHealth | None) -> str:
    """Return all metrics in the text format."""
    checksums = [("dynamic", state.checksum_dynamic), ("static", state.checksum_static)]
    text, names = "The checksum of the original, as a label.", ("set", "type", "checksum")
    samples: list[tuple[Labels, int]] = [((flags.name, *checksum), 1) for checksum in checksums]
    readings = [*map(_reading, _of_flags(flags, state)), Reading("gauge", "dflag_checksum", text, "", names, samples)]
    if updater is not None:
        levels = [problem.level for problem in updater.problems]
        now: list[tuple[Labels, int]] = [((level,), levels.count(level)) for level in ("error", "warning")]
        readings += map(_reading, _of_updater(updater))
        readings.append(Reading("gauge", "dflag_problems", "Current problems.", "", ("level",), now))
    return render(readings)


def _reading(metric: Metric) -> Reading:
    kind, name, text, value = metric
    return Reading(kind, name, text, "", (), [((), value)])


def _of_flags(flags: FlagSet, state: PageState) -> Iterator[Metric]:
    overridden = sum(entry.overridden for entry in state.entries)
    changed = sum(entry.changed for entry in state.entries)
    changes = "Changes to the flags; flags that change together count once."
    yield "gauge", "dflag_generation", changes, state.snapshot.generation
    yield "gauge", "dflag_flags", "Flags that are defined.", len(state.entries)
    yield "gauge", "dflag_changed", "Flags that differ from their defaults.", changed
    yield "gauge", "dflag_overrides", "Flags with an override that was set over HTTP.", overridden
    yield "counter", "dflag_notifier_errors", "Notifiers that raised.", flags.notifier_errors


def _of_updater(updater: UpdaterHealth) -> Iterator[Metric]:
    yield "gauge", "dflag_updater_running", "Whether the updater is running.", int(updater.running)
    yield "counter", "dflag_reloads", "Reloads of the directories.", updater.generation
    yield "counter", "dflag_errors", "Errors so far.", updater.errors
    yield "counter", "dflag_warnings", "Warnings so far.", updater.warnings
    yield "gauge", "dflag_restart_required", "Static flags that wait for a restart.", len(updater.restart_required)
