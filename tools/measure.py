"""What `scripts/measure` prints: the size and the shape of a source tree, read from its syntax trees.

Nothing is imported and nothing is executed, so imports under `if TYPE_CHECKING:` and in functions are seen like all
others. An import of a submodule counts as an import of that module only, not of the packages above it: the root package
exports names from below, and each import would close a cycle.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BLOCK = 6
"""The fewest lines that count as a repeated block."""

Graph = dict[str, set[str]]


class Line(NamedTuple):
    """A line of code without its indentation, and where it is."""

    text: str
    module: str
    number: int


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, its text and its syntax tree."""

    name: str
    is_package: bool
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Block:
    """Consecutive lines that occur in more than one place."""

    lines: int
    places: list[str]


@dataclass(frozen=True)
class Measures:
    """What was counted."""

    modules: int
    source_lines: int
    repeated_class_names: dict[str, list[str]]
    import_cycles: list[list[str]]
    runtime_import_cycles: list[list[str]]
    largest_package: str
    largest_package_modules: int
    repeated_blocks: list[Block]


def read(root: Path) -> list[Module]:
    """Read all modules below `root`, the folder that is on the import path."""
    modules = []
    for path in sorted(root.rglob("*.py")):
        *parents, stem = path.relative_to(root).with_suffix("").parts
        parts = parents if stem == "__init__" else [*parents, stem]
        text = path.read_text(encoding="utf-8")
        modules.append(Module(".".join(parts), stem == "__init__", text, ast.parse(text, str(path))))
    return modules


def class_names(modules: Sequence[Module]) -> dict[str, list[str]]:
    """The class names that are defined more than once, and where."""
    places = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{module.name}:{node.lineno}")
    return {name: places[name] for name in sorted(places) if len(places[name]) > 1}


def import_statements(node: ast.AST, typing: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports in a syntax tree; with `typing`, those that only a type checker sees, too."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    children = ast.iter_child_nodes(node)
    if not typing and isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        children = iter(node.orelse)
    for child in children:
        yield from import_statements(child, typing)


def imported_names(module: Module, typing: bool) -> Iterator[tuple[str, str]]:
    """Each import as (module, name in it); the name is empty for `import module`."""
    for node in import_statements(module.tree, typing):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
            continue
        base = node.module or ""
        if node.level:
            package = module.package.split(".")
            base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
        yield from ((base, alias.name) for alias in node.names)


def import_graph(modules: Sequence[Module], typing: bool) -> Graph:
    """Which module imports which, among these."""
    names = {module.name for module in modules}
    graph: Graph = {name: set() for name in names}
    for module in modules:
        for base, name in imported_names(module, typing):
            target = f"{base}.{name}" if f"{base}.{name}" in names else base
            if target in names:
                graph[module.name].add(target)
    return graph


def cycles(graph: Graph) -> list[list[str]]:
    """The sets of modules that import each other, directly or not (strongly connected components of two or more)."""
    reach = {name: reachable(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def reachable(graph: Graph, start: str) -> set[str]:
    """All modules that `start` imports, directly or not; itself only if it is in a cycle."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting.extend(new)
    return seen


def largest_package(modules: Sequence[Module]) -> tuple[str, int]:
    """The package with the most modules of its own, sub-packages and `__init__` not counted."""
    sizes = Counter(module.package for module in modules if not module.is_package)
    return min(sizes.items(), key=lambda item: (-item[1], item[0]), default=("", 0))


def code_lines(module: Module) -> list[Line]:
    """The lines that can be part of a repeated block: no blank lines, comments or imports."""
    imports: set[int] = set()
    for node in import_statements(module.tree, typing=True):
        imports.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = enumerate(map(str.strip, module.text.splitlines()), start=1)
    return [Line(text, module.name, at) for at, text in numbered if text and text[0] != "#" and at not in imports]


def repeated_blocks(modules: Sequence[Module]) -> list[Block]:
    """Blocks of six or more lines that occur more than once, each as long as all its places agree."""
    files = [code_lines(module) for module in modules]
    windows: defaultdict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for file, lines in enumerate(files):
        for start in range(len(lines) - BLOCK + 1):
            windows[tuple(line.text for line in lines[start : start + BLOCK])].append((file, start))
    repeated = {tuple(places) for places in windows.values() if len(places) > 1}
    blocks = []
    for places in repeated:
        if shifted(places, -1) in repeated:
            continue  # the rest of a block that starts earlier
        length = BLOCK
        while shifted(places, length - BLOCK + 1) in repeated:
            length += 1
        blocks.append(Block(length, [place(files[file][start]) for file, start in places]))
    return sorted(blocks, key=lambda block: (-block.lines, block.places))


def shifted(places: tuple[tuple[int, int], ...], by: int) -> tuple[tuple[int, int], ...]:
    """The same places, some lines further on."""
    return tuple((file, start + by) for file, start in places)


def place(line: Line) -> str:
    """Where a line is, for people."""
    return f"{line.module}:{line.number}"


def measure(root: Path) -> Measures:
    """Measure the modules below `root`."""
    modules = read(root)
    package, size = largest_package(modules)
    return Measures(
        modules=len(modules),
        source_lines=sum(len(module.text.splitlines()) for module in modules),
        repeated_class_names=class_names(modules),
        import_cycles=cycles(import_graph(modules, typing=True)),
        runtime_import_cycles=cycles(import_graph(modules, typing=False)),
        largest_package=package,
        largest_package_modules=size,
        repeated_blocks=repeated_blocks(modules),
    )


def table(measures: Measures) -> str:
    """A row for each measure."""
    rows: Mapping[str, object] = {
        "modules": measures.modules,
        "source lines": measures.source_lines,
        "class names defined more than once": len(measures.repeated_class_names),
        "import cycles, with typing imports": cycle_counts(measures.import_cycles),
        "import cycles at run time": cycle_counts(measures.runtime_import_cycles),
        "modules in the largest package": f"{measures.largest_package_modules} ({measures.largest_package})",
        f"repeated blocks of {BLOCK} or more lines": len(measures.repeated_blocks),
    }
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def cycle_counts(groups: list[list[str]]) -> str:
    """How many cycles, and how many modules are in them."""
    return f"{len(groups)} ({sum(map(len, groups))} modules)" if groups else "0"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the measures of a source tree."""
    parser = argparse.ArgumentParser(prog="scripts/measure", description=main.__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path("src"), help="the folder with the packages (src)")
    parser.add_argument("--json", action="store_true", help="print JSON, with the place of everything that was counted")
    options = parser.parse_args(arguments)
    if not options.root.is_dir():
        parser.error(f"{options.root} is not a folder: name the folder that holds the packages")
    measures = measure(options.root)
    sys.stdout.write((json.dumps(asdict(measures), indent=2) if options.json else table(measures)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
