"""What the metrics of an agent say about its clients."""

from __future__ import annotations

import re

from tests.agent.process import AgentProcess

_COUNT = rb'^rpc_server_duration_milliseconds_count\{[^}]*rpc_method="ResolveBoolean"[^}]*\} (\d+)$'


def boolean_calls(agent: AgentProcess) -> int:
    """Return how many boolean evaluations the agent has answered over gRPC and Connect."""
    _, text = agent.fetch("management", "/metrics")
    return sum(map(int, re.findall(_COUNT, text, re.MULTILINE)))
