"""What the agent pushes, from its options and the environment. What OTEL_* variables mean is in `wigwag.telemetry`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wigwag.telemetry.settings import TelemetryOptions, decide
from wigwag.telemetry.start import Telemetry, start

if TYPE_CHECKING:
    from wigwag.agent.options import AgentOptions
    from wigwag.serve.management.metrics import Metrics
    from wigwag.telemetry.settings import TelemetrySettings


def telemetry(options: AgentOptions, metrics: Metrics) -> Telemetry:
    """Start the telemetry that the options enable."""
    return start(settings_of(options), metrics.registry, metrics)


def settings_of(options: AgentOptions) -> TelemetrySettings:
    """Return the telemetry that the options enable."""
    asked = TelemetryOptions(
        metrics_exporter=options.metrics_exporter,
        collector=options.otel_collector_uri,
        certificate=options.otel_cert_path,
        key=options.otel_key_path,
        authority=options.otel_ca_path,
        reload_seconds=options.otel_reload_interval,
    )
    return decide(asked, os.environ)
