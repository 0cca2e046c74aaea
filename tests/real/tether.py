"""Becomes another program that dies with the one that started it, however that one ends.

`python tether.py PARENT PROGRAM ARGUMENT…`. Linux sends the signal when the parent is gone, so that no server survives
a test run that was killed. Elsewhere the program runs untethered.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
