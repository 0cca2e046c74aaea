"""How long a bystander waits while another client attacks: one attack after the other, each on a fresh server.

    scripts/bench abuse                        all attacks, 5 s each
    scripts/bench abuse --only lists resets    some of them
    scripts/bench abuse --peer 'flagd start -f file:{flags} -p {port} -m {management} -g {sync} -r {ofrep}'

The bystander asks for a flag every 20 ms on a connection of its own and notes how long the answer takes; first while
the server is idle, then during the attack. Attacks run in a process of their own (`bench/attacks.py`), and end by
themselves. The table has the median, the 99th percentile and the longest wait, the longest as a ratio to idle, and the
memory of the server. Exits 1 if one wait under an attack is longer than 50 ms and than three times the longest one on
an idle machine of the same run, which tells how busy the machine itself is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.attacks import ATTACKS, Attack, post
from bench.process import ServerProcess, free_ports
from tests.flags.adversarial import CASES

OURS = (
    f"{sys.executable} -m wigwag start --bind 127.0.0.1 -f file:{{flags}} -p {{port}} -m {{management}}"
    " -g {sync} -r {ofrep}"
)
ROLES = {"evaluation": "port", "management": "management", "sync": "sync", "ofrep": "ofrep"}
EVERY, WORST_MS, NOISE = 0.02, 50.0, 3.0
RULES = "adversarial-rules"
SWITCH = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
QUESTION = json.dumps({"flagKey": "static", "context": {"targetingKey": "bystander"}}).encode()


@dataclass(frozen=True)
class Waits:
    """What a bystander saw, in milliseconds."""

    median: float
    late: float
    """The 99th percentile."""
    longest: float
    lost: int
    """Requests without an answer."""


class Server(ServerProcess):
    """A server under attack, with flags whose rules cost as much as they may."""

    def __init__(self, command: str, folder: Path) -> None:
        names = ("port", "management", "sync", "ofrep")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        flags = folder / "flags.json"
        flags.write_text(json.dumps({"flags": documents()}))
        super().__init__(command.format(flags=flags, **self.ports), self.ports["management"])


def documents() -> dict[str, Any]:
    """Return the flags: plain ones, those that attacks name, and the costliest rules that are known."""
    fillers = {f"filler-{number}": {**SWITCH, "metadata": {"text": "x" * 200}} for number in range(2_000)}
    targeted = {"if": [{"and": [{">=": [{"var": "tier"}, 18]}, {"in": [{"var": "email"}, {"var": "tier"}]}]}, "on"]}
    rules = {f"rule-{number}": {**SWITCH, "targeting": case.rule} for number, case in enumerate(CASES)}
    return {"static": SWITCH, "targeted": {**SWITCH, "targeting": targeted}, **fillers, **rules}


class Bystander:
    """A client that asks again and again, on one connection, or on a new one if that is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        path = "/flagd.evaluation.v1.Service/ResolveBoolean"
        self._request = post(path, QUESTION, "content-type: application/json\r\n")
        self._socket: socket.socket | None = None

    def watch(self, seconds: float) -> Waits:
        """Ask for so long, and return how long the answers took."""
        waits, lost, end = [], 0, time.monotonic() + seconds
        while (start := time.monotonic()) < end:
            if self._ask():
                waits.append((time.monotonic() - start) * 1000)
            else:
                lost += 1
            time.sleep(max(0.0, start + EVERY - time.monotonic()))
        ordered = sorted(waits) or [float("inf")]
        return Waits(statistics.median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1], lost)

    def _ask(self) -> bool:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), 10)
            self._socket.sendall(self._request)
            answer = b""
            while b"\r\n\r\n" not in answer or not answer.rstrip().endswith(b"}"):
                piece = self._socket.recv(65536)
                if not piece:
                    raise ConnectionError
                answer += piece
        except OSError:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            return False
        return b" 200 " in answer[:20]


async def costly_rules(host: str, port: int, seconds: float) -> None:
    """Ask for every costly rule with the context that makes it costly, on four connections."""
    requests = []
    for number, case in enumerate(CASES):
        body = json.dumps({"context": case.context}).encode()
        if len(body) < 1_000_000:
            requests.append(post(f"/ofrep/v1/evaluate/flags/rule-{number}", body))
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for start in range(4):
            group.create_task(_one_after_another(host, port, requests[start:] + requests[:start], end))


async def _one_after_another(host: str, port: int, requests: list[bytes], end: float) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    while time.monotonic() < end:
        for request in requests:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(
                next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")).split()[1]
            )
            await reader.readexactly(size)
    writer.close()


def measure(command: str, attack: Attack, seconds: float) -> tuple[Waits, Waits, float, float]:
    """Return what a bystander saw while the server was idle and while it was attacked, and its memory in MB."""
    with tempfile.TemporaryDirectory() as folder, Server(command, Path(folder)) as server:
        bystander, port = Bystander(server.ports["port"]), server.ports[ROLES[attack.role]]
        bystander.watch(0.5)
        idle, before = bystander.watch(seconds / 2), server.rss()
        module = ["bench.abuse", "--attack"] if attack.name == RULES else ["bench.attacks", attack.name]
        run = [sys.executable, "-m", *module, str(port), "--seconds", str(seconds)]
        with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as attacker:
            time.sleep(0.3)
            attacked = bystander.watch(seconds)
            after = server.rss()
            attacker.wait(seconds + 20)
    return idle, attacked, before, after


def row(name: str, idle: Waits, seen: Waits, memory: str) -> str:
    """Return a row of the table."""
    waits = "".join(f"{each:>8.1f}" for each in (idle.longest, seen.median, seen.late, seen.longest))
    return f"{name:26}{waits}{seen.longest / idle.longest:>7.1f}{seen.lost:>6}   {memory}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each attack lasts")
    parser.add_argument("--only", nargs="*", help="names of attacks")
    parser.add_argument("--peer", help="a command with {flags}, {port}, {management}, {sync} and {ofrep}")
    parser.add_argument("--attack", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        asyncio.run(costly_rules("127.0.0.1", options.attack, options.seconds))
        return
    attacks = [*ATTACKS, Attack(RULES, "ofrep", costly_rules)]
    met = True
    print(
        f"{'waits of a bystander, ms':26}{'idle max':>9}{'p50':>8}{'p99':>8}{'max':>8}{'ratio':>7}{'lost':>6}{'MB':>12}"
    )
    for attack in attacks:
        if options.only and attack.name not in options.only:
            continue
        for name, command in (("", OURS), ("  peer", options.peer)):
            if command:
                idle, seen, before, after = measure(command, attack, options.seconds)
                missed = not name and seen.longest > max(WORST_MS, NOISE * idle.longest)
                met &= not missed
                print(row(attack.name + name, idle, seen, f"{before:.0f} → {after:.0f}"), "missed" * missed, flush=True)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
