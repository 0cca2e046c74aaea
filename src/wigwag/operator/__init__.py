"""The Kubernetes operator: custom resources to workloads, webhooks, certificates. Decisions here are pure functions."""
