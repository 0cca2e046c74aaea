"""Pushing what the agent tells about itself over OTLP: metrics on a timer, spans in batches.

Nothing here decides about flags, and nothing waits for a collector: requests leave a note, threads deliver it. The
OpenTelemetry packages are imported by `spans`, `convert`, `exporters` and `resource` alone, and those only when asked.
"""
