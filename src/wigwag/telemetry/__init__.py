"""Telemetry of the agent over OTLP: metrics on a timer, spans in batches.

Nothing here decides about flags, and no request waits for a collector: a background thread exports. `settings` and
`start` load without the OpenTelemetry packages; the other modules import them, and are loaded only when telemetry is
asked for.
"""
