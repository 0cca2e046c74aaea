"""What clients and operators see of an agent, over its ports: answers on every surface, the state of its sources.

Whoever has addresses can be looked at: an agent in a process of its own, or one in this process.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any, Protocol

from tests.agent.process import fetch

PROMPT = 10.0
"""Seconds within which each answer must be there: far more than one takes, far less than any wait for a source."""
SYNC = "/flagd.sync.v1.FlagSyncService/FetchAllFlags"
_SAMPLE = re.compile(r'^wigwag_source_(\w+)\{source="(.*)",priority="(\d+)"\} (.*)$', re.MULTILINE)


class Addressed(Protocol):
    """Something that serves."""

    def address(self, name: str) -> str:
        """Return `host:port` of evaluation, management, sync or OFREP."""
        ...


def flags(revision: int, *keys: str, **more: Any) -> str:
    """A document whose flags tell its revision."""
    variants = {f"r{revision}": f"revision {revision}"}
    flag = {"state": "ENABLED", "variants": variants, "defaultVariant": f"r{revision}", **more}
    return json.dumps({"flags": dict.fromkeys(keys, flag)})


def evaluations(agent: Addressed, key: str, selector: str = "", *, whole: bool = True) -> dict[str, Any]:
    """Evaluate a flag on every surface; each must answer at once. Documents wait until they would be `whole`."""
    found: dict[str, Any] = {}
    header = {"flagd_selector": selector} if selector else {}
    body = {"flagKey": key}
    for version in ("v1", "v2"):
        path = f"/flagd.evaluation.{version}.Service/ResolveString"
        found[version] = _told(_prompt(agent, "evaluation", path, body, content_type="application/json", **header))
    found["OFREP"] = _told(_prompt(agent, "OFREP", f"/ofrep/v1/evaluate/flags/{key}", {}, **header))
    if not whole:
        return found
    document = _prompt(agent, "sync", SYNC, {}, content_type="application/json", **header)
    found["sync"] = json.loads(json.loads(document[1])["flagConfiguration"])["flags"].get(key)
    return found


def value(agent: Addressed, key: str, selector: str = "") -> str:
    """Return what a flag is, or the code of the error."""
    header = {"flagd_selector": selector} if selector else {}
    path = "/flagd.evaluation.v1.Service/ResolveString"
    _, body = _prompt(agent, "evaluation", path, {"flagKey": key}, content_type="application/json", **header)
    told = json.loads(body)
    return str(told.get("value") or told.get("code"))


def source(agent: Addressed, priority: int = 0) -> dict[str, Any]:
    """Return what the page says of a source, with what the metrics say beside it."""
    pages = json.loads(_prompt(agent, "management", "/debug/sources")[1])
    text = _prompt(agent, "management", "/metrics")[1].decode()
    found = next(page for page in pages if page["priority"] == priority)
    metrics = {name: float(told) for name, _, at, told in _SAMPLE.findall(text) if int(at) == priority}
    return {**found, "metrics": metrics, "text": json.dumps(found) + text}


def ready(agent: Addressed) -> int:
    """Return the status of the readiness probe."""
    return _prompt(agent, "management", "/readyz")[0]


def _prompt(agent: Addressed, name: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    began = time.monotonic()
    found = fetch(agent.address(name), path, body, **headers)
    took = time.monotonic() - began
    assert took < PROMPT, f"{name} {path} took {took:.1f} s"
    return found


def _told(answer: tuple[int, bytes]) -> tuple[int, dict[str, Any]]:
    return answer[0], json.loads(answer[1])
