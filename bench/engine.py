"""Our `resolve` and `load` beside those of openfeature-flagd-core, in the same run.

    scripts/bench engine            the whole table
    scripts/bench engine --quick    a tenth of the rounds

CPU time per call, from the turn with the median ratio: the steadiest number on a shared machine.
Exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from openfeature.contrib.tools.flagd.core import FlagdCore
from openfeature.evaluation_context import EvaluationContext

import wigwag

Document = dict[str, Any]
ON_OFF = {"on": True, "off": False}
TARGET_RESOLVE, TARGET_LOAD = 10, 2


def flag(targeting: Any = None, variants: Document | None = None, default: str = "off") -> Document:
    definition = {"state": "ENABLED", "variants": variants or ON_OFF, "defaultVariant": default}
    return definition | ({"targeting": targeting} if targeting else {})


def chain(branches: int) -> Any:
    """Return the rule of `branches` else-ifs in one `if`, the last of which holds."""
    tests = [({"==": [{"var": "country"}, f"c{n}"]}, f"v{n}") for n in range(branches)]
    return {"if": [part for test in tests for part in test]}


CONTEXT: dict[str, Any] = {
    "tier": "gold",
    "country": "c19",
    "email": "fay@example.com",
    "version": "1.10.3",
    "age": 42,
    "zip": "12345",
    "customer": False,
    "beta": True,
    "since": 1_600_000_000,
    "groups": ["staff", "beta"],
    "user": {"role": "admin"},
}
SHARES = [["red", 25], ["blue", 25], ["green", 25], ["grey", 25]]
COLOURS = {"red": "#f00", "blue": "#00f", "green": "#0f0", "grey": "#888"}
CASES: dict[str, tuple[str, Document]] = {
    "static": ("boolean", flag()),
    "simple targeting": ("boolean", flag({"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]})),
    "20-branch targeting": ("string", flag(chain(20), {f"v{n}": f"value {n}" for n in range(20)}, "v0")),
    "fractional": ("string", flag({"fractional": [{"var": "email"}, *SHARES]}, COLOURS, "red")),
    "fractional shorthand": ("string", flag({"fractional": SHARES}, COLOURS, "red")),
    "sem_ver": ("boolean", flag({"if": [{"sem_ver": [{"var": "version"}, ">=", "1.2.0"]}, "on", "off"]})),
    "object value": ("object", flag(variants={"on": {"a": 1, "b": [1, 2]}, "off": {}}, default="on")),
}
EMAIL: Any = {"var": ["email"]}
CONDITIONS: dict[str, Any] = {
    "in: text in text": {"in": ["@example.com", EMAIL]},
    "in: constant array": {"in": [{"var": "country"}, ["c17", "c18", "c19"]]},
    "in: numbers": {"in": [{"var": "age"}, [41, 42, 43]]},
    "in: attribute's array": {"in": ["beta", {"var": "groups"}]},
    "== text": {"==": ["fay@example.com", EMAIL]},
    "!= text": {"!=": [{"var": "tier"}, "silver"]},
    "=== text": {"===": [{"var": "tier"}, "gold"]},
    "== number": {"==": [{"var": ["age"]}, 42]},
    "== boolean": {"==": [{"var": ["customer"]}, False]},
    "== number as text": {"==": [{"var": "zip"}, "12345"]},
    ">= number": {">=": [{"var": "age"}, 18]},
    "between": {"<=": [18, {"var": "age"}, 65]},
    "var with default": {"==": [{"var": ["tier", "free"]}, "gold"]},
    "var: path": {"==": [{"var": "user.role"}, "admin"]},
    "var alone": {"var": ["beta"]},
    "starts_with": {"starts_with": [EMAIL, "fay"]},
    "ends_with": {"ends_with": [EMAIL, "@example.com"]},
    "sem_ver ^": {"sem_ver": [{"var": "version"}, "^", "1.2.0"]},
    "!": {"!": [{"var": "absent"}]},
    "! of ==": {"!": {"==": [EMAIL, "x"]}},
    "and": {"and": [{"in": ["@example.com", EMAIL]}, {"!=": [{"var": "tier"}, "silver"]}]},
    "and of 4": {"and": [{"==": [{"var": [name]}, CONTEXT[name]]} for name in ("email", "country", "age", "customer")]},
    "or": {"or": [{"ends_with": [EMAIL, "@a.org"]}, {"in": ["@example.com", EMAIL]}]},
    "timestamp": {">=": [{"var": "$flagd.timestamp"}, 1_700_000_000]},
    "timestamp, attribute": {">": [{"var": "$flagd.timestamp"}, {"var": "since"}]},
}
"""The forms of the rules in flagd's samples, documentation and test-beds."""
SEEDS: dict[str, Any] = {
    "cat flagKey, email": {"cat": [{"var": "$flagd.flagKey"}, EMAIL]},
    "cat flagKey, path": {"cat": [{"var": "$flagd.flagKey"}, {"var": "user.role"}]},
    "cat text, targetingKey": {"cat": ["shared-seed", {"var": "targetingKey"}]},
}
CHAIN = {
    "if": [
        {"starts_with": [{"var": "country"}, "x"]},
        "red",
        {"if": [{"ends_with": [{"var": "country"}, "x"]}, "blue", {"if": [{"in": ["c1", EMAIL]}, "grey", "green"]}]},
    ]
}
CASES |= {name: ("boolean", flag({"if": [condition, "on", "off"]})) for name, condition in CONDITIONS.items()}
CASES |= {
    f"fractional {name}": ("string", flag({"fractional": [by, *SHARES]}, COLOURS, "red")) for name, by in SEEDS.items()
}
CASES["if in if"] = ("string", flag(CHAIN, COLOURS, "red"))
BY_TIER = {"if": [{"==": [{"var": "tier"}, "gold"]}, 90, 0]}
CASES["shares computed"] = ("string", flag({"fractional": [EMAIL, ["red", BY_TIER], ["blue", 10]]}, COLOURS, "red"))
DEFAULTS: dict[str, Any] = {"boolean": False, "string": "", "object": {}}


def microseconds(call: Callable[[], object], calls: int, rounds: int = 5) -> float:
    """Return the CPU time of one call, the best of several rounds."""
    gc.collect()
    gc.disable()
    best = min(one_round(call, calls) for _ in range(rounds))
    gc.enable()
    return best


def one_round(call: Callable[[], object], calls: int) -> float:
    start = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - start) / calls / 1000


def both(fast: Callable[[], object], slow: Callable[[], object], calls: int, turns: int = 25) -> tuple[float, float]:
    """Return the CPU time of one call of each, in the turn with the median ratio.

    The speed of a shared machine changes within seconds, so short rounds of the two follow each other.
    """
    gc.collect()
    gc.disable()
    pairs = [(one_round(fast, calls // turns), one_round(slow, max(calls // turns // 10, 1))) for _ in range(turns)]
    gc.enable()
    return sorted(pairs, key=lambda pair: pair[1] / pair[0])[turns // 2]


def core_with(document: str) -> FlagdCore:
    core = FlagdCore()
    core.set_flags(document)
    return core


def compare_resolve(calls: int) -> bool:
    met = True
    document = {"flags": {name: definition for name, (_, definition) in CASES.items()}}
    text = json.dumps(document)  # as text: the core changes the objects it is given
    core = core_with(text)
    context = CONTEXT | {"targetingKey": "user-1"}
    core_context = EvaluationContext("user-1", CONTEXT)
    print(f"{'resolve':40}{'wigwag':>10}{'core':>10}{'ratio':>9}   µs of CPU per evaluation")
    for fractional in ("v2", "v3"):
        ours = wigwag.load(text, fractional=fractional)
        for name, (kind, _) in CASES.items():
            if fractional == "v3" and "fractional" not in name:
                continue
            type: Any = kind
            default, theirs = DEFAULTS[type], getattr(core, f"resolve_{type}_value")
            fast, slow = both(
                lambda: ours.resolve(name, type, default, context), lambda: theirs(name, default, core_context), calls
            )
            met &= report(f"{name} ({fractional})" if "fractional" in name else name, fast, slow, TARGET_RESOLVE)
    return met


def compare_sizes(calls: int) -> bool:
    """Print the cost of one evaluation among ever more flags: it must not grow."""
    print(f"\n{'flags in the set':40}{'wigwag':>10}")
    costs = []
    for size in (10, 1_000, 100_000):
        ours = wigwag.load(many(size))
        costs.append(microseconds(lambda: ours.resolve("flag-7", "boolean", False, CONTEXT), calls))
        print(f"{size:<40,}{costs[-1]:>10.3f}")
    return costs[-1] < 1.5 * costs[0]


def many(size: int, changed: int | None = None) -> str:
    definitions = {f"flag-{n}": flag(rule(n), metadata_of(n)) for n in range(size)}
    if changed is not None:
        definitions[f"flag-{changed}"]["defaultVariant"] = "on"
    return json.dumps({"flags": definitions})


def rule(number: int) -> Any:
    return (
        {"if": [{"ends_with": [{"var": "email"}, f"@team-{number}.example.com"]}, "on", "off"]} if number % 2 else None
    )


def metadata_of(number: int) -> Document:
    return ON_OFF if number % 3 else {"on": "yes", "off": "no"}


def compare_load(size: int = 10_000) -> bool:
    text, edited = many(size), many(size, changed=size // 2)
    core = FlagdCore()
    loaded = wigwag.load(text)
    print(f"\n{f'load {size:,} flags':40}{'wigwag':>10}{'core':>10}{'ratio':>9}   ms of CPU, {len(text) / 1e6:.1f} MB")
    full, slow = both(lambda: wigwag.load(text), lambda: core.set_flags(text), 7, 7)
    met = report("from nothing", full / 1000, slow / 1000, TARGET_LOAD)
    changed, slow = both(lambda: wigwag.load(edited, previous=loaded), lambda: core.set_flags(text), 7, 7)
    met &= report("one flag changed", changed / 1000, slow / 1000, TARGET_LOAD) and changed < full
    report("and every rule checked", microseconds(lambda: wigwag.load(text).problems, 1, 3) / 1000, slow / 1000)
    report("and every rule compiled", microseconds(lambda: resolve_all(wigwag.load(text)), 1, 3) / 1000, slow / 1000)
    return met


def resolve_all(flags: wigwag.FlagSet) -> None:
    for key in flags:
        flags.resolve(key, "boolean", False, CONTEXT)


def report(name: str, ours: float, theirs: float, target: float = 0) -> bool:
    ratio = theirs / ours
    verdict = "" if ratio >= target else f"   below the target of {target}×"
    print(f"{name:40}{ours:>10.3f}{theirs:>10.3f}{ratio:>8.1f}×{verdict}")
    return ratio >= target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    calls = 20_000 if parser.parse_args().quick else 200_000
    results = [compare_resolve(calls), compare_sizes(calls), compare_load()]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
