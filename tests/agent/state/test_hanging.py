"""A disk that never answers: the agent serves all the same, and stops when it is told to."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, ClassVar

from tests.agent.process import TIMEOUT, AgentProcess, write
from wigwag.agent.state.keeper import SaveTiming

if TYPE_CHECKING:
    from pathlib import Path

HANG = """
import logging, sys, threading
from wigwag.agent.state.directory import Folder
from wigwag.cli.main import main

def write(folder, name, data):
    logging.getLogger("disk").warning("the disk hangs")
    threading.Event().wait()

Folder.write = write
sys.exit(main())
"""


class OnHangingDisk(AgentProcess):
    program: ClassVar[tuple[str, ...]] = (sys.executable, "-c", HANG)


def hanging(folder: Path) -> OnHangingDisk:
    write(folder / "flags.json", {"flags": {}})
    return OnHangingDisk(f"--uri=file:{folder / 'flags.json'}", f"--state-dir={folder / 'state'}")


def test_the_agent_stops_within_its_patience(tmp_path: Path) -> None:
    with hanging(tmp_path) as agent:
        agent.wait_for_log(lambda line: line["msg"] == "the disk hangs")
        assert agent.fetch("management", "/readyz")[0] == 200
        began = time.monotonic()
        assert agent.stop() == 0
        assert SaveTiming().patience - 0.1 < time.monotonic() - began  # and `stop` does not wait for ever
        agent.wait_for_log(lambda line: "the disk has not answered" in line["msg"])
        assert "Traceback" not in str(agent.lines)


def test_a_second_signal_ends_it(tmp_path: Path) -> None:
    with hanging(tmp_path) as agent:
        agent.wait_for_log(lambda line: line["msg"] == "the disk hangs")
        agent.process.send_signal(signal.SIGINT)
        agent.wait_for_log(lambda line: line["msg"] == "stopping")
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(TIMEOUT) == 130
        assert "Traceback" not in str(agent.lines)
