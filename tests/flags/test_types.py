"""What a type checker says about programs that use the engine, and what the typed getters return."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import wigwag

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """\
import wigwag

flags = wigwag.load({"flags": {}})
reveal_type(flags.resolve("a", "boolean", False).value)
reveal_type(flags.resolve("a", "string", "").value)
reveal_type(flags.resolve("a", "integer", 0).value)
reveal_type(flags.resolve("a", "float", 0.5).value)
reveal_type(flags.resolve("a", "string", None).value)
reveal_type(flags.resolve("a"))
reveal_type(flags.boolean("a", False))
reveal_type(flags.string("a", ""))
reveal_type(flags.integer("a", 0))
reveal_type(flags.float("a", 0.5))
reveal_type(flags.object("a", {}))


def plain(resolution: wigwag.Resolution) -> str:  # without a parameter it is of any type, under --strict, too
    return resolution.reason


flags.resolve("a", "bool", False)
flags.explain("a", type="int")
flags.boolean("a", "no")
"""


def test_a_type_checker_knows_the_types_of_values_and_refuses_a_type_that_is_none(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={tmp_path}", str(program)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    revealed = re.findall(r'Revealed type is "([^"]+)"', told)
    assert [name.replace("builtins.", "") for name in revealed] == [
        "bool",
        "str",
        "int",
        "float",
        "str | None",
        "wigwag.flags.model.Resolution[Any]",
        "bool",
        "str",
        "int",
        "float",
        "typing.Mapping[str, Any]",
    ]
    wrong = [int(line) for line in re.findall(r"program\.py:(\d+): error", told)]
    assert wrong == [len(PROGRAM.splitlines()) - back for back in (2, 1, 0)]


FLAGS = wigwag.load(
    {
        "flags": {
            name: {"state": "ENABLED", "variants": {"a": value}, "defaultVariant": "a"}
            for name, value in {"b": True, "s": "x", "i": 3, "f": 2.5, "o": {"k": [1]}}.items()
        }
    }
)


def test_each_type_has_a_method_that_returns_the_value() -> None:
    assert FLAGS.boolean("b", False) is True
    assert FLAGS.string("s", "") == "x"
    assert FLAGS.integer("i", 0) == 3
    assert FLAGS.float("f", 0.0) == 2.5
    assert FLAGS.object("o", {}) == {"k": [1]}


def test_a_value_of_another_type_and_a_flag_that_is_not_there_give_the_default() -> None:
    default = {"mine": 1}
    assert FLAGS.boolean("s", True) is True
    assert FLAGS.string("b", "d") == "d"
    assert FLAGS.integer("s", 7) == 7
    assert FLAGS.float("none", 0.5) == 0.5
    assert FLAGS.object("i", default) is default


def test_the_context_reaches_the_rule() -> None:
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]}
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off", "targeting": rule}
    flags = wigwag.load({"flags": {"new": flag}})
    assert flags.boolean("new", False, {"tier": "gold"})
    assert not flags.boolean("new", True, {"tier": "iron"})
