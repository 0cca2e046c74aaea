"""An evaluation as a tree: the operands of each operator, its result, and why.

The rule is compiled once more with a wrapper around every piece, so the operators are the same, only slower, and
`resolve` pays nothing for it. Constants are wrapped too, which disables every shortcut.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wigwag.errors import RuleError
from wigwag.flags.evaluate import conclude, tabulate
from wigwag.flags.model import Resolution, render
from wigwag.flags.rules.coerce import describe
from wigwag.flags.rules.cost import deep_cost
from wigwag.flags.rules.operators.fractional import examine
from wigwag.flags.rules.refs import REF

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wigwag.flags.flag import Flag
    from wigwag.flags.model import Json
    from wigwag.flags.rules.scope import Fn, Run, Scope
    from wigwag.flags.rules.site import RuleSite

MOST_STEPS = 10_000
MOST_ELEMENTS = 20
_MORE_STEPS = 4
_WIDEST = 100
_LARGEST = 1_000
"""Steps to write down a result; a larger one is described."""
_ARRAYS = frozenset(("map", "filter", "reduce", "all", "some", "none"))


class Step(Struct, eq=False):
    """One piece of the rule as it was evaluated. Operands that were never reached have no step."""

    path: str
    node: Json
    inputs: list[Step] = []
    result: Json = None
    error: str = ""
    note: str = ""
    details: dict[str, Json] = {}
    omitted: int = 0
    """How many elements of an array were evaluated but are left out."""

    @property
    def operator(self) -> str | None:
        """The operator's name, or None for plain data."""
        return next(iter(self.node)) if self.node.__class__ is dict and len(self.node) == 1 else None

    def to_dict(self) -> dict[str, Json]:
        """Return the step as plain JSON."""
        fields: dict[str, Json] = {"path": self.path, "result": _bounded(self.result)}
        if self.operator is not None:
            fields |= {"operator": self.operator, "inputs": [step.to_dict() for step in self.inputs]}
        return fields | {
            name: value for name in ("error", "note", "details", "omitted") if (value := getattr(self, name))
        }


class Explanation(Struct, eq=False):
    """The resolution of a flag of any type, and the tree that led to it; printable.

    >>> import wigwag
    >>> flags = wigwag.load({"flags": {"a": {"state": "DISABLED", "variants": {"on": True}}}})
    >>> print(flags.explain("a"))
    a: no value, the caller's default applies (DISABLED)
    >>> flags.explain("a").to_dict()["reason"]
    'DISABLED'
    """

    key: str
    resolution: Resolution
    root: Step | None = None

    def to_dict(self) -> dict[str, Json]:
        """Return the explanation as plain JSON."""
        resolution = self.resolution
        fields = {
            name: getattr(resolution, name) for name in ("value", "variant", "reason", "error", "message", "metadata")
        }
        return {"key": self.key, **fields, "targeting": self.root.to_dict() if self.root else None}

    def __str__(self) -> str:
        return "\n".join([_headline(self), *(_lines(self.root, "", last=True) if self.root else ())])


def explain(flag: Flag, type: str | None, context: Mapping[str, Json] | None, now: float) -> Explanation:
    """Evaluate a flag and record every step."""
    table = flag.tables.get(type) or tabulate(flag, type)
    if table.program is None:
        return Explanation(flag.key, table.settled or conclude(table, None, context, now, lambda: now))
    trace = _Trace()
    program = flag.compiled(trace.watch)
    # Without shortcuts the same rule takes more steps, which must not make another answer of it.
    watched = replace(table, program=replace(program, steps=_MORE_STEPS * program.steps))
    conclude(watched, None, context, now, lambda: now)
    return Explanation(flag.key, conclude(table, None, context, now, lambda: now), trace.root)


class _Trace:
    """Records every piece as it is evaluated, under the piece that evaluates it."""

    def __init__(self) -> None:
        self._open: list[Step] = []
        self._count = 0
        self.root: Step | None = None

    def watch(self, fn: Fn, site: RuleSite, node: Json) -> Fn:
        path = render(site.path)

        def watched(data: Json, run: Run | None) -> Json:
            step = self._enter(Step(path, node, []))
            try:
                step.result = fn(data, run)
            except RuleError as error:
                step.error = str(error)
                raise
            finally:
                self._open.pop()
            _annotate(step, site, data, run)
            return step.result

        return watched

    def _enter(self, step: Step) -> Step:
        """Put the step under the one that asked for it. Of an array's elements only the first few are kept."""
        self._count += 1
        if not self._open:
            self.root = step
        else:
            parent = self._open[-1]
            most = MOST_ELEMENTS if self._count < MOST_STEPS else 1
            if parent.operator in _ARRAYS and len(parent.inputs) > most:
                parent.omitted += 1
            else:
                parent.inputs.append(step)
        self._open.append(step)
        return step


def _annotate(step: Step, site: RuleSite, data: Json, run: Run | None) -> None:
    operator = step.operator
    if operator in ("if", "?:"):
        step.note, step.details = _branch(step)
    elif operator == "var":
        step.note, step.details = _attribute(step, site, data, run)
    elif operator == "fractional":
        step.note, step.details = _bucket(step, site, data, run)


def _branch(step: Step) -> tuple[str, dict[str, Json]]:
    operands = step.node[step.operator]
    taken = _index(step.inputs[-1]) if step.inputs else None
    if taken is None or (taken % 2 == 0 and taken < len(operands) - 1) or (taken % 2 == 0 and len(operands) % 2 == 0):
        return "no branch taken", {"branch": None}
    if taken % 2 == 0:
        return "else branch taken", {"branch": "else"}
    return f"branch {taken // 2 + 1} taken", {"branch": taken // 2 + 1}


def _index(step: Step) -> int | None:
    digits = step.path.rpartition("[")[2].rstrip("]")
    return int(digits) if digits.isdigit() else None


def _attribute(step: Step, site: RuleSite, data: Json, run: Run | None) -> tuple[str, dict[str, Json]]:
    name, default = _named(step.inputs[0].result if step.inputs else None)
    if step.result is None:
        return "missing from the context", {"attribute": name, "missing": True}
    if default is not None and name.__class__ is str and _absent(site, data, run, name):
        return "missing from the context, so its default", {"attribute": name, "missing": True, "default": default}
    return "", {"attribute": name}


def _absent(site: RuleSite, data: Json, run: Run | None, name: str) -> bool:
    """Return whether an attribute is missing from everything that is visible here."""
    scope: Scope | None = site.scope
    while scope is not None:
        view, item = scope.innermost(data)
        if view.read(item, run, name, None) is not None:
            return False
        outer = scope.outer
        scope, data = outer, data[0] if outer is not None else None
    return True


def _named(argument: Json) -> tuple[Json, Json]:
    if argument.__class__ is list:
        return (argument[0] if argument else ""), (argument[1] if len(argument) > 1 else None)
    return argument, None


def _bucket(step: Step, site: RuleSite, data: Json, run: Run | None) -> tuple[str, dict[str, Json]]:
    values: Any = [inner.result for inner in step.inputs]
    if step.node["fractional"].__class__ is not list:
        values = values[0]
    bucket = examine(site.scope, values, data, run, site.compilation.fractional)
    details = {"hash": bucket.hash, "position": bucket.position, "boundaries": list(bucket.bounds)}
    if bucket.position is None:
        return ("no valid shares" if bucket.hash is not None else "nothing to bucket by"), details
    return f"hash {bucket.hash} → {bucket.position} of {bucket.bounds[-1]}, boundaries {list(bucket.bounds)}", details


def _headline(explanation: Explanation) -> str:
    resolution = explanation.resolution
    if resolution.error:
        return f"{explanation.key}: {resolution.error}: {resolution.message}"
    if resolution.variant is None:
        return f"{explanation.key}: no value, the caller's default applies ({resolution.reason})"
    return f"{explanation.key} = {_text(resolution.value)} (variant {resolution.variant}, {resolution.reason})"


def _lines(step: Step, indent: str, *, last: bool) -> Iterator[str]:
    yield f"{indent}{'└─' if last else '├─'} {_label(step)}"
    indent += "   " if last else "│  "
    inputs = [] if step.operator == "var" or (step.operator is None and not step.error) else step.inputs
    for position, inner in enumerate(inputs, 1):
        yield from _lines(inner, indent, last=position == len(inputs) and not step.omitted)
    if step.omitted:
        yield f"{indent}└─ … and {step.omitted} more elements"


def _label(step: Step) -> str:
    operator = step.operator
    if operator is None:
        return step.error or _text(step.result)
    subject = ""
    if operator in ("var", REF):
        subject = f" {step.details.get('attribute', step.node[operator])}"
    outcome = f"failed: {step.error}" if step.error else _text(step.result)
    return f"{operator}{subject} → {outcome}" + (f"   {step.note}" if step.note else "")


def _bounded(value: Json) -> Json:
    """Return a value to show: one that is large, or holds one part many times, is only described."""
    if deep_cost(value, _LARGEST) <= _LARGEST:
        return value
    if value.__class__ is str:
        return f"{value[:_WIDEST]}…"
    return f"{describe(value)} with {len(value)} elements"


def _text(value: Json) -> str:
    text = json.dumps(_bounded(value), ensure_ascii=False, default=str)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
