"""The shape of the code: small, and light to import."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles

import pytest

import wigwag
from tools.measure import Measures, measure
from wigwag.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
MODULES = sorted(path for path in (ROOT / "src").rglob("*.py") if "proto" not in path.parts)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_has_at_most_500_lines_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    assert ast.get_docstring(ast.parse(text))


def lengths() -> dict[str, int]:
    """Lines of every function without its docstring."""
    found = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                told = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
                found[f"{path.stem}.{node.name}:{node.lineno}"] = (node.end_lineno or 0) - node.lineno + 1 - told
    return found


def test_functions_are_small_all_the_way_down() -> None:
    found = lengths()
    assert median(found.values()) <= 8
    assert quantiles(found.values(), n=10)[-1] <= 25
    assert {name: lines for name, lines in found.items() if lines > 60} == {}


def test_packages_say_what_may_live_in_them_and_hold_no_code() -> None:
    """But `wigwag`, `wigwag.dflag` and `wigwag.watt` are libraries of others: their names are their attributes."""
    for path in MODULES:
        if path.name == "__init__.py" and path.parent.name not in ("wigwag", "dflag", "watt"):
            assert len(ast.parse(path.read_text()).body) == 1, path


REPEATED_CLASSES = {
    "FlagSet": "public in both packages: the flags of documents, and the dynamic flags of a program",
    "Options": "every command of the CLI declares its options under this name; the CLI looks it up",
    "Snapshot": "public in dflag: the flags of a program at one moment; in serve: the flags that are served",
}
"""The class names that are defined more than once, and why. Only ever take entries out."""
MOST_MODULES = 16
"""The modules of one package, sub-packages not counted; beyond that, it gets sub-packages."""


@pytest.fixture(scope="module")
def measures() -> Measures:
    return measure(ROOT / "src")


def test_modules_do_not_import_each_other_in_a_circle_not_even_for_types(measures: Measures) -> None:
    assert measures.import_cycles == []


def test_a_class_name_means_one_class_unless_there_is_a_reason(measures: Measures) -> None:
    assert sorted(measures.repeated_class_names) == sorted(REPEATED_CLASSES)


def test_no_package_has_more_modules_than_a_reader_can_keep_in_mind(measures: Measures) -> None:
    assert measures.largest_package_modules <= MOST_MODULES, measures.largest_package


def imported_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return set(output.split())


HEAVY = {
    "asyncio",
    "socket",
    "ssl",
    "http.client",
    "urllib.request",
    "httpx",
    "uvloop",
    "logging",
    "subprocess",
    "yaml",
}


@pytest.mark.parametrize("module", ["flags", "flags.flagset", "flags.store", "flags.checks.lint"])
def test_the_engine_alone_imports_no_server_and_no_network(module: str) -> None:
    assert HEAVY & imported_by(f"import wigwag.{module}") == set()


PROVIDER = "import openfeature.contrib.provider.flagd, openfeature.schemas.protobuf.flagd.evaluation.v2.evaluation_pb2"
OURS = "import wigwag.agent.run, wigwag.serve.messages"


@pytest.mark.parametrize("order", [(PROVIDER, OURS), (OURS, PROVIDER)], ids=["provider-first", "wigwag-first"])
def test_the_agent_and_a_flagd_provider_live_in_one_process(order: tuple[str, str]) -> None:
    assert "google.protobuf" in imported_by("\n".join(order))
    assert not any(name.startswith("google.protobuf") for name in imported_by(OURS))


def test_help_is_light() -> None:
    loaded = imported_by(
        "import contextlib, wigwag.cli.main as m\nwith contextlib.suppress(SystemExit): m.main(['--help'])"
    )
    assert (HEAVY - {"logging"}) & loaded == set()


def test_dynamic_flags_load_neither_the_flag_engine_nor_an_event_loop() -> None:
    loaded = imported_by("from wigwag import dflag; dflag.Updater(dflag.FlagSet('x'), '/nowhere')")
    assert "wigwag.dflag.updating.updater" in loaded
    assert [name for name in loaded if name.startswith(("wigwag.flags", "wigwag.library", "asyncio", "mmh3"))] == []


START = """
import logging, os, signal
from wigwag.cli.main import main

class Ready(logging.Filter):
    def filter(self, record):
        if record.getMessage().startswith("ready"):
            os.kill(os.getpid(), signal.SIGTERM)
        return True

logging.getLogger("wigwag.agent").addFilter(Ready())
assert main(["start", "--uri=file:{path}", "--bind=127.0.0.1", "-p0", "-m0", "-g0", "-r0"]) == 0
"""
UNUSED = (
    "difflib",
    "importlib.resources",
    "multiprocessing",
    "obstore",
    "opentelemetry",
    "shutil",
    "tempfile",
    "tomllib",
    "urllib.request",
    "wigwag.agent.check",
    "wigwag.agent.ownpod",
    "wigwag.agent.state.directory",
    "wigwag.agent.state.keeper",
    "wigwag.cli.commands.check_config",
    "wigwag.cli.commands.completion",
    "wigwag.cli.commands.diff",
    "wigwag.cli.commands.eval",
    "wigwag.cli.commands.help",
    "wigwag.cli.commands.lint",
    "wigwag.cli.commands.proxy",
    "wigwag.dflag",
    "wigwag.flags.diff.compare",
    "wigwag.flags.dump",
    "wigwag.flags.explain",
    "wigwag.flags.checks.lint",
    "wigwag.kube.client",
    "wigwag.kube.watch.reflector",
    "wigwag.proxy",
    "wigwag.serve.access.access",
    "wigwag.serve.access.tokens",
    "wigwag.sources.remote.blob",
    "wigwag.sources.consul",
    "wigwag.sources.remote.grpc",
    "wigwag.sources.remote.http",
    "wigwag.sources.kubernetes.objects",
    "wigwag.sources.merge",
    "wigwag.sources.remote.oauth",
    "wigwag.telemetry.deliver",
    "wigwag.telemetry.exporters",
    "wigwag.watched",
    "wigwag.wire.client.client",
    "wigwag.yaml",
    "yaml",
)
"""What an agent does not need that serves a JSON file and is asked for nothing else."""


def test_an_agent_with_a_file_loads_only_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "flags.json"
    path.write_text('{"flags": {"a": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "on"}}}')
    assert all(find_spec(name) for name in UNUSED if name.startswith("wigwag."))
    loaded = imported_by(START.replace("{path}", str(path)))
    assert "wigwag.sources.disk.file" in loaded
    assert sorted(loaded.intersection(UNUSED)) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_parsed_without_the_others(command: str) -> None:
    loaded = imported_by(f"import wigwag.cli.main as m; m.command_parser({command!r})")
    modules = {f"wigwag.cli.commands.{name.replace('-', '_')}" for name in COMMANDS}
    assert loaded & modules == {f"wigwag.cli.commands.{command.replace('-', '_')}"}


def test_the_package_alone_loads_nothing_but_itself_and_a_name_its_module() -> None:
    assert [name for name in imported_by("import wigwag") if name.startswith("wigwag")] == ["wigwag"]
    assert "wigwag.flags.flagset" in imported_by("from wigwag import FlagSet")
    assert "wigwag.library" in imported_by("import wigwag; wigwag.load({'flags': {}})")


def test_a_public_name_is_looked_up_once() -> None:
    code = "import wigwag; wigwag.load; print('load' in vars(wigwag), set(wigwag.__all__) <= set(dir(wigwag)))"
    assert {"True", "False"} & imported_by(code) == {"True"}
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        wigwag.nope  # noqa: B018


def test_the_public_names_are_few_documented_and_with_an_example() -> None:
    assert len(wigwag.__all__) <= 40
    for name in wigwag.__all__:
        value = getattr(wigwag, name)
        if name == "__version__" or (isinstance(value, type) and issubclass(value, Exception)):
            continue
        assert ">>> " in (value.__doc__ or ""), name


@pytest.mark.parametrize("name", ["run", "test", "check", "bench", "measure"])
def test_the_scripts_are_there_and_can_be_run(name: str) -> None:
    script = ROOT / "scripts" / name
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!/usr/bin/env bash\n# ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_one_file_with_options_and_help(name: str) -> None:
    module = importlib.import_module(f"wigwag.cli.commands.{name.replace('-', '_')}")
    assert module.HELP[0].islower()
    assert f"wigwag {name}" in module.DESCRIPTION
    assert module.Options.__dataclass_params__.frozen
