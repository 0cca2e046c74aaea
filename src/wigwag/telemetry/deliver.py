"""Exports batches of one signal, in a thread that may block.

An outage of the collector is logged once when it begins and once when it ends, however many batches fail in between;
each is counted. The certificates are read again at their interval, and after a failure, which may be their fault. If
they have changed, a new exporter takes over; if they cannot be used, the old one stays.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Protocol, Self

from wigwag.errors import StartError, UsageError
from wigwag.telemetry.exporters import PemFiles, read_files

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
        """Send a batch; the result is SUCCESS or FAILURE."""

    def shutdown(self) -> None:
        """Abort whatever is under way."""


class Delivery:
    """Exports one signal. Only one thread at a time may use it."""

    def __init__(
        self,
        signal: str,
        target: OtlpTarget,
        make: Callable[[OtlpTarget, PemFiles], Exporter],
        counter: Counter,
        now: Callable[[], float],
        reload_seconds: float,
    ) -> None:
        self._signal, self._target, self._make, self._counter = signal, target, make, counter
        self._now, self._reload_seconds = now, reload_seconds
        self._files = read_files(target)
        self._exporter, self._read = make(target, self._files), now()
        self._failing = False
        for outcome in ("ok", "failed"):
            counter.add((signal, outcome), 0)  # made here, so that the thread only changes values that exist

    def deliver(self, batch: Any) -> bool:
        """Send a batch; tell whether it arrived."""
        self._reload()
        with SdkLogCapture() as capture:
            arrived = self._export(batch)
        self._counter.add((self._signal, "ok" if arrived else "failed"))
        if arrived == self._failing:
            self._failing = not arrived
            self._log_change(capture.message)
        return arrived

    def close(self) -> None:
        """Abort whatever is under way."""
        self._exporter.shutdown()

    def _export(self, batch: Any) -> bool:
        try:
            return bool(self._exporter.export(batch).name == "SUCCESS")
        except Exception as error:  # noqa: BLE001  the border of a delivery: telemetry never takes the agent down
            _SDK.error("%s", error.__class__.__qualname__)
            return False

    def _log_change(self, reason: str) -> None:
        if self._failing:
            log.warning("%s cannot be pushed to %s: %s", self._signal, self._target.address, self._redacted(reason))
        else:
            log.info("%s are pushed to %s again", self._signal, self._target.address)

    def _redacted(self, reason: str) -> str:
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
            log.warning("certificates of %s not read again, the last ones stay: %s", self._target.address, error)
            return
        if files != self._files:
            old, self._files, self._exporter = self._exporter, files, self._make(self._target, files)
            old.shutdown()
            log.info("certificates of %s loaded", self._target.address)


def silence_sdk() -> None:
    """Keep the SDK's lines out of the log for good: they repeat what we log, and its threads outlive the last export.

    The filters of its exporters drop a line that another signal has just logged; `SdkLogCapture` must see them all.
    """
    _SDK.propagate = False
    if not _SDK.handlers:
        _SDK.addHandler(logging.NullHandler())
    for name in [*logging.root.manager.loggerDict]:
        if name.startswith("opentelemetry.exporter."):
            logging.getLogger(name).filters.clear()


class SdkLogCapture(logging.Handler):
    """Captures the first warning that the SDK logs in this thread: it reports errors in no other way."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread = threading.get_ident()
        self.message = ""

    def __enter__(self) -> Self:
        _SDK.addHandler(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _SDK.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread and not self.message:  # the first says why, the last that it has given up
            self.message = record.getMessage()

    def check(self, variable: str) -> None:
        """Raise `UsageError` if the SDK could not use a variable of the environment."""
        if self.message:
            raise UsageError(f"{variable}: {' '.join(self.message.split())}")
