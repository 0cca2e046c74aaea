"""The management port: probes, metrics, health, snapshots and debug pages."""
