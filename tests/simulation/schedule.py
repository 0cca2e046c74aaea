"""What happens, in which order: drawn from a seed, before anything runs.

Each step carries its own luck, so that a schedule can be shortened, and what is left of it means what it meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.simulation.links import FAULTS
from tests.simulation.subscribers import KINDS

STEPS = 20
_WEIGHTS = {
    "push": 22,  # change a document and deliver it
    "drip": 4,  # the same, several times, some seconds apart
    "change": 6,
    "deliver": 6,
    "confirm": 6,
    "fail": 11,
    "restore": 10,
    "advance": 20,
    "join": 10,
    "stall": 6,
    "resume": 6,
    "lag": 6,  # stall through several changes
    "leave": 4,
    "disk": 4,
    "kill": 4,
    "restart": 3,
    "wall": 1,
    "burst": 4,  # several changes, with only a few turns of the loop between them
}
_ADVANCES = ((0.001, 0.05), (0.05, 1.0), (0.05, 1.0), (1.0, 6.0), (1.0, 6.0), (6.0, 40.0), (40.0, 400.0))
_HOURS = (3600.0, 4 * 3600.0)


@dataclass(frozen=True)
class Step:
    """One thing that happens."""

    name: str
    where: int
    """Which source or subscriber."""
    how: str
    amount: float
    luck: int

    def __str__(self) -> str:
        return f"{self.name} {self.where} {self.how} {self.amount:g}".replace("  ", " ")


@dataclass(frozen=True)
class Setting:
    """How the agent of a schedule is set up."""

    sources: int
    required: tuple[bool, ...]
    strict: bool
    stale_after: float
    only_fresh: bool
    told: bool
    """Whether answers tell the snapshot and its age."""
    snapshots: int
    deadline: float
    keeps: bool
    """Whether there is a directory for the last good flags."""
    in_threads: bool
    """Whether documents are large enough to be read in a thread."""


def setting(seed: int) -> Setting:
    """Return the set-up of a seed."""
    random = Random(f"{seed} setting")
    sources = random.choice((1, 2, 2, 3))
    return Setting(
        sources,
        tuple(random.random() < 0.8 for _ in range(sources)),
        random.random() < 0.15,
        random.choice((0.0, 0.0, 5.0, 60.0)),
        random.random() < 0.3,
        random.random() < 0.15,
        random.choice((1, 2, 10)),
        random.choice((0.0, 0.0, 0.0, 90.0)),
        random.random() < 0.8,
        random.random() < 0.3,
    )


def steps(seed: int, length: int = STEPS) -> list[Step]:
    """Return the schedule of a seed."""
    random = Random(f"{seed} steps")
    names = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=length)
    return [_step(random, name) for name in names]


def _step(random: Random, name: str) -> Step:
    how, amount = "", random.random()
    if name == "fail":
        how = random.choice(FAULTS)
    elif name == "join":
        how = random.choice(KINDS)
    elif name == "advance":
        span = _HOURS if random.random() < 0.004 else random.choice(_ADVANCES)
        amount = random.uniform(*span)
    elif name in ("kill", "restart"):
        how = random.choice(("alive", "dead", "dead"))
    return Step(name, random.randrange(6), how, amount, random.randrange(1 << 30))
