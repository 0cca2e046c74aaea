"""Handing batches to an exporter, in whatever thread that may take its time.

A collector that is away is told of once when it goes and once when it is back, however many batches fail in between;
each is counted. The certificates are read again at their interval, and after a failure, which may be their fault; if
they have changed, a new exporter takes over. If they cannot be used, the exporter stays.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Protocol, Self

from wigwag.errors import StartError
from wigwag.telemetry.files import Files, read_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.observe import Counter
    from wigwag.telemetry.settings import OtlpTarget

log = logging.getLogger("wigwag.telemetry")
LONGEST_REASON = 300
_SDK = logging.getLogger("opentelemetry")


class Exporter(Protocol):
    """What the exporters of spans and of metrics have in common."""

    def export(self, batch: Any, /) -> Any:
        """Send a batch; the result says SUCCESS or FAILURE."""

    def shutdown(self) -> None:
        """Give up whatever is under way."""


class Delivery:
    """Delivers one signal. Only one thread at a time may use it."""

    def __init__(
        self,
        signal: str,
        target: OtlpTarget,
        make: Callable[[OtlpTarget, Files], Exporter],
        counter: Counter,
        now: Callable[[], float],
        reload_seconds: float,
    ) -> None:
        self._signal, self._target, self._make, self._counter = signal, target, make, counter
        self._now, self._reload_seconds = now, reload_seconds
        self._files = read_files(target) if target.secure else Files()
        self._exporter, self._read = make(target, self._files), now()
        self._failing = False
        for outcome in ("ok", "failed"):
            counter.add((signal, outcome), 0)  # made here, so that the thread only changes what is there

    def deliver(self, batch: Any) -> bool:
        """Send a batch; tell whether it arrived."""
        self._reload()
        with SdkLogCapture() as overheard:
            arrived = self._export(batch)
        self._counter.add((self._signal, "ok" if arrived else "failed"))
        if arrived == self._failing:
            self._failing = not arrived
            self._tell(overheard.reason)
        return arrived

    def close(self) -> None:
        """Give up whatever is under way."""
        self._exporter.shutdown()

    def _export(self, batch: Any) -> bool:
        try:
            return bool(self._exporter.export(batch).name == "SUCCESS")
        except Exception as error:  # noqa: BLE001  the border of a delivery: telemetry never takes the agent down
            _SDK.error("%s", error.__class__.__qualname__)
            return False

    def _tell(self, reason: str) -> None:
        if self._failing:
            log.warning("%s cannot be pushed to %s: %s", self._signal, self._target.place, self._clean(reason))
        else:
            log.info("%s are pushed to %s again", self._signal, self._target.place)

    def _clean(self, reason: str) -> str:
        for secret in self._target.secrets:
            reason = reason.replace(secret, "…")
        return " ".join(reason.split())[:LONGEST_REASON] or "no reason given"

    def _reload(self) -> None:
        if not self._target.secure or not (self._failing or self._now() - self._read >= self._reload_seconds):
            return
        self._read = self._now()
        try:
            files = read_files(self._target)
        except StartError as error:
            log.warning("certificates of %s not read again, the last ones stay: %s", self._target.place, error)
            return
        if files != self._files:
            old, self._files, self._exporter = self._exporter, files, self._make(self._target, files)
            old.shutdown()
            log.info("certificates of %s loaded", self._target.place)


def hush() -> None:
    """Keep what the SDK says from the log, where it would repeat itself, for good: its threads outlive the last push.

    Its exporters keep to themselves what they have just said, of another signal, too; `SdkLogCapture` must see it all.
    """
    _SDK.propagate = False
    if not _SDK.handlers:
        _SDK.addHandler(logging.NullHandler())
    for name in [*logging.root.manager.loggerDict]:
        if name.startswith("opentelemetry.exporter."):
            logging.getLogger(name).filters.clear()


class SdkLogCapture(logging.Handler):
    """What the SDK says while it exports: its exporters return no reason, they only log it."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self.reason = ""

    def __enter__(self) -> Self:
        _SDK.addHandler(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _SDK.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and not self.reason:  # the first says why, the last that it has given up
            self.reason = record.getMessage()
