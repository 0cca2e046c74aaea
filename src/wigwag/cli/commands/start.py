"""`wigwag start`: the agent, with the command line of `flagd start`."""

from __future__ import annotations

from wigwag.agent.options import AgentOptions
from wigwag.cli.main import without_gc

Options = AgentOptions

HELP = "start the agent: a drop-in for flagd"
DESCRIPTION = """\
Start the agent: read flags from their sources, follow changes, and serve evaluations.

  wigwag start                            the demo flags, on loopback
  wigwag start --uri file:flags.yaml      a file; edit it, and clients see the change at once
  wigwag start -f file:a.json -f file:b.json --port 9000   the last source wins

Every option of `flagd start` works under the same name, also as FLAGD_NAME in the environment and as a key of a config
file.
"""
ENVIRONMENT = "FLAGD_"
CONFIG = True


def run(options: AgentOptions) -> int:
    """Run the agent until a signal stops it."""
    with without_gc():
        from wigwag.agent.run import run_agent  # the server is imported only where it is started

    return run_agent(options)
