"""scripts/measure: what it counts, on small trees made for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools.measure import Block, main, measure

ROOT = Path(__file__).parent.parent


def tree(root: Path, **files: str) -> Path:
    """Write modules: `a__b="…"` is a/b.py, and every folder gets an `__init__`."""
    for name, text in files.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return root


def lines(first: int, last: int) -> str:
    return "".join(f"x{n} = {n}\n" for n in range(first, last + 1))


def test_modules_and_lines_are_counted_and_the_largest_package_is_named(tmp_path: Path) -> None:
    measures = measure(tree(tmp_path, p__a="x = 1\n\n", p__big__b="# why\ny = 1\n", p__big__c=""))
    assert measures.modules == 5
    assert measures.source_lines == 4
    assert (measures.largest_package, measures.largest_package_modules) == ("p.big", 2)


def test_a_class_name_that_is_defined_twice_is_reported_with_its_places(tmp_path: Path) -> None:
    root = tree(tmp_path, p__a="class A: ...\nclass Twice: ...\n", p__b="class B:\n    class Twice: ...\n")
    assert measure(root).repeated_class_names == {"Twice": ["p.a:2", "p.b:2"]}


@pytest.mark.parametrize(
    "back",
    [
        "import p.a",
        "from p import a",
        "from p.a import name",
        "from . import a",
        "from .a import name",
        "def later() -> None:\n    from p.a import name",
    ],
)
def test_a_cycle_is_found_in_every_form_of_import(tmp_path: Path, back: str) -> None:
    measures = measure(tree(tmp_path, p__a="from p.b import x", p__b=back, p__c="from p.a import name"))
    assert measures.import_cycles == measures.runtime_import_cycles == [["p.a", "p.b"]]


@pytest.mark.parametrize("guard", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_a_cycle_of_typing_imports_counts_but_not_at_run_time(tmp_path: Path, guard: str) -> None:
    typing = f"import typing\nfrom typing import TYPE_CHECKING\nif {guard}:\n    from p.a import A\n"
    measures = measure(tree(tmp_path, p__a="from p.b import x", p__b="from p.c import y", p__c=typing))
    assert measures.import_cycles == [["p.a", "p.b", "p.c"]]
    assert measures.runtime_import_cycles == []


def test_imports_in_the_else_of_a_typing_guard_are_run_time_imports(tmp_path: Path) -> None:
    code = "if TYPE_CHECKING:\n    pass\nelse:\n    from p.a import A\n"
    assert measure(tree(tmp_path, p__a="from p.b import x", p__b=code)).runtime_import_cycles == [["p.a", "p.b"]]


def test_two_separate_cycles_are_two_and_a_chain_is_none(tmp_path: Path) -> None:
    root = tree(
        tmp_path, p__a="import p.b", p__b="import p.a", p__c="import p.d, p.a", p__d="import p.c", p__e="import p.c"
    )
    assert measure(root).import_cycles == [["p.a", "p.b"], ["p.c", "p.d"]]


def test_six_repeated_lines_are_a_block_and_five_are_none(tmp_path: Path) -> None:
    five = measure(tree(tmp_path / "five", p__a=lines(1, 5) + "a = 1\n", p__b="b = 1\n" + lines(1, 5)))
    six = measure(tree(tmp_path / "six", p__a=lines(1, 6) + "a = 1\n", p__b="b = 1\n" + lines(1, 6)))
    assert five.repeated_blocks == []
    assert six.repeated_blocks == [Block(6, ["p.a:1", "p.b:2"])]


def test_a_long_block_counts_once_whatever_its_indentation_comments_and_blank_lines(tmp_path: Path) -> None:
    indented = "if x:\n" + "".join(f"    # why\n\n    {line}\n" for line in lines(1, 9).splitlines())
    measures = measure(tree(tmp_path, p__a=lines(1, 9), p__b=indented))
    assert measures.repeated_blocks == [Block(9, ["p.a:1", "p.b:4"])]


def test_repeated_imports_are_no_block(tmp_path: Path) -> None:
    imports = "from p.x import (\n" + "".join(f"    n{n},\n" for n in range(9)) + ")\n"
    assert measure(tree(tmp_path, p__a=imports, p__b=imports)).repeated_blocks == []


def test_the_table_and_the_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree(
        tmp_path, p__a="import p.b\nclass A: ...\n" + lines(1, 6), p__b="import p.a\nclass A: ...\n" + lines(1, 6)
    )
    assert main([str(root)]) == 0
    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert main([str(root), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {name.strip(): value.strip() for name, value in rows.items()} == {
        "modules": str(found["modules"]),
        "source lines": str(found["source_lines"]),
        "class names defined more than once": str(len(found["repeated_class_names"])),
        "import cycles, with typing imports": "1 (2 modules)",
        "import cycles at run time": "1 (2 modules)",
        "modules in the largest package": f"{found['largest_package_modules']} ({found['largest_package']})",
        "repeated blocks of 6 or more lines": str(len(found["repeated_blocks"])),
    }


def test_a_folder_that_is_not_there_is_an_error_that_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["nowhere"])
    assert error.value.code == 2
    assert "nowhere is not a folder" in capsys.readouterr().err


def test_the_script_measures_the_folder_it_is_given(tmp_path: Path) -> None:
    command = [str(ROOT / "scripts" / "measure"), str(tree(tmp_path, p__a="")), "--json"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(output)["modules"] == 2
