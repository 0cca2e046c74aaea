"""A watch hook: for each Service with the annotation example.com/consul-service, watch that service in Consul.

It reads a snapshot from standard input and prints a watch set. It prints all that it wants watched, each time: what it
leaves out is no longer watched.
"""

import json
import sys
from typing import Any

ANNOTATION = "example.com/consul-service"


def watch_set(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return what else to watch."""
    services = snapshot["Kubernetes"].get("services", [])
    annotations = [service["metadata"].get("annotations", {}) for service in services]
    names = sorted({each[ANNOTATION] for each in annotations if ANNOTATION in each})
    return {"watches": [{"source": "consul", "service": name} for name in names]}


if __name__ == "__main__":
    json.dump(watch_set(json.load(sys.stdin)), sys.stdout)
