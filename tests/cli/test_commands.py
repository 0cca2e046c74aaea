"""The commands as people and scripts use them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wigwag.cli.main import main
from wigwag.cli.prompt import quoted

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
RULE = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}


@pytest.fixture
def document(tmp_path: Path) -> str:
    path = tmp_path / "flags.json"
    path.write_text(
        json.dumps(
            {"flags": {"x": {**FLAG, "targeting": RULE}, "bad": {"variants": 1}, "off": {**FLAG, "state": "DISABLED"}}}
        )
    )
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    output = capsys.readouterr()
    return code, output.out, output.err


class TestEval:
    def test_a_value_is_printed_and_the_exit_code_is_0(self, capsys: Any, document: str) -> None:
        assert run(capsys, "eval", document, "x") == (0, "false   variant off, DEFAULT\n", "")
        code, out, _ = run(capsys, "eval", document, "x", "--context", '{"tier": "gold"}')
        assert (code, out) == (0, "true   variant on, TARGETING_MATCH\n")

    def test_a_disabled_flag_is_no_error(self, capsys: Any, document: str) -> None:
        assert run(capsys, "eval", document, "off")[:2] == (0, "no value: the caller's default applies   DISABLED\n")

    def test_json_is_one_object(self, capsys: Any, document: str) -> None:
        code, out, _ = run(capsys, "eval", document, "x", "--json")
        assert (code, json.loads(out)) == (
            0,
            {"key": "x", "value": False, "variant": "off", "reason": "DEFAULT", "metadata": {}},
        )
        code, out, err = run(capsys, "eval", document, "nope", "--json")
        assert (code, json.loads(out)["error"], err) == (1, "FLAG_NOT_FOUND", "")

    def test_an_evaluation_error_is_1_and_says_what_to_do(self, capsys: Any, document: str) -> None:
        code, out, err = run(capsys, "eval", document, "x", "--type", "string")
        assert (code, out) == (1, "")
        assert err.startswith("TYPE_MISMATCH: variant 'off' of 'x' is not of type string")
        assert "$.flags.bad.variants" in run(capsys, "eval", document, "bad")[2]
        assert "did you mean off?" in run(capsys, "eval", document, "of")[2]

    def test_the_context_may_come_from_a_file(self, capsys: Any, document: str, tmp_path: Path) -> None:
        (tmp_path / "user.json").write_text('{"tier": "gold"}')
        assert run(capsys, "eval", document, "x", "-c", f"@{tmp_path / 'user.json'}")[1].startswith("true")

    def test_explain_prints_the_tree_or_its_json(self, capsys: Any, document: str) -> None:
        out = run(capsys, "eval", document, "x", "--explain")[1]
        assert "var tier → null   missing from the context" in out
        told = json.loads(run(capsys, "eval", document, "x", "--explain", "--json")[1])
        assert told["targeting"]["operator"] == "if"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["no-such-file", "x"], "cannot read no-such-file: no such file or directory"),
            (["demo", "checkout", "-c", "{"], "the context is not valid JSON"),
            (["demo", "checkout", "-c", "[]"], "must be a JSON object"),
            (["demo", "checkout", "-c", "@no-such-file"], "cannot read the context no-such-file: no such file"),
            (["demo", "checkout", "--now", "noon"], "Unix seconds"),
            (["demo", "checkout", "--now", "nan"], "Unix seconds"),
            (["demo", "checkout", "--now=-inf"], "Unix seconds"),
            (["demo", "checkout", "--now", "1e999"], "Unix seconds"),
            (["demo", "checkout", "-c", "[" * 100_000], "the context is nested too deeply"),
            (["demo", "checkout", "-c", '{"a": ' + "1" * 5000 + "}"], "the context is not valid JSON"),
            (["demo", "checkout", "-c", "@/dev/zero"], "the context in /dev/zero is not valid JSON"),
            (["demo", "checkout", "--selector", "colour=red"], "invalid selector key"),
            (["demo", "checkout", "--type", "number"], "invalid choice"),
            (["demo", "checkout", "--slector", "x"], "unknown option --slector; did you mean --selector?"),
            (["demo", "checkout", "--zzz=1"], "unknown option --zzz; see `wigwag eval --help`"),
            (["demo", "checkout", "more"], "unexpected argument 'more'"),
            ([], "required"),
        ],
    )
    def test_bad_usage_is_2_with_one_line_and_no_traceback(
        self, capsys: Any, arguments: list[str], message: str
    ) -> None:
        code, out, err = run(capsys, "eval", *arguments)
        assert (code, out) == (2, "")
        assert message in err
        assert "Traceback" not in err
        assert err.count("\n") == 1

    def test_a_broken_document_is_2_and_named(self, capsys: Any, tmp_path: Path) -> None:
        (tmp_path / "broken.yaml").write_text("flags: [")
        code, _, err = run(capsys, "eval", str(tmp_path / "broken.yaml"), "x")
        assert code == 2
        assert f"{tmp_path}/broken.yaml: not valid YAML" in err

    def test_the_demo_and_the_prompt_work_in_a_pipe(self, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        lines = [
            'new-welcome-banner {"email": "fay@example.com"}',
            "why checkout",
            'context {"tier": "gold"}',
            "requests-per-second",
            "context",
            "list",
            "problems",
            "help",
            "checkout {",
            "checkout []",
            "nope",
            "quit",
            "never reached",
        ]
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
        code, out, _ = run(capsys, "eval", "demo")
        assert code == 1
        assert out.startswith("true   variant on, TARGETING_MATCH\n")
        assert "sem_ver → null" in out
        assert "100   variant high, TARGETING_MATCH" in out
        assert out.count("not a context") == 2
        assert out.endswith("FLAG_NOT_FOUND: flag 'nope' does not exist\n")

    def test_a_document_from_standard_input(self) -> None:
        text = json.dumps({"flags": {"x": {**FLAG, "defaultVariant": "on"}}})
        command = [sys.executable, "-m", "wigwag", "eval", "-", "x"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        assert done.stdout == "true   variant on, STATIC\n"


class TestLint:
    def test_findings_are_listed_with_hints_and_errors_are_1(self, capsys: Any, document: str) -> None:
        code, out, err = run(capsys, "lint", document)
        assert code == 1
        assert f"{document}:1:176: error: $.flags.bad.variants: must be an object, not a number" in out
        assert err == "1 file checked: 1 error\n"

    def test_warnings_are_1_only_when_strict(self, capsys: Any, tmp_path: Path) -> None:
        path = tmp_path / "flags.yml"
        path.write_text("flags: {x: {state: ENABLED, variants: {a: 1, b: text}, defaultVariant: a}}")
        assert run(capsys, "lint", str(path))[0] == 0
        assert run(capsys, "lint", "--strict", str(path))[0] == 1

    def test_clean_files_are_0(self, capsys: Any) -> None:
        code, out, err = run(capsys, "lint", "demo")
        assert (code, out, err) == (0, "", "1 file checked: no problems\n")

    def test_json_is_an_array_of_findings(self, capsys: Any, document: str, tmp_path: Path) -> None:
        (tmp_path / "broken.yaml").write_text("flags: [")
        code, out, err = run(capsys, "lint", "--json", document, str(tmp_path / "broken.yaml"))
        assert (code, err) == (1, "")
        assert {finding["code"] for finding in json.loads(out)} == {"flag-shape", "document-rejected"}

    def test_several_files_are_independent_unless_they_are_merged(
        self, capsys: Any, document: str, tmp_path: Path
    ) -> None:
        above = tmp_path / "above.json"
        above.write_text(json.dumps({"flags": {"x": FLAG}}))
        assert "flag-shadowed" not in run(capsys, "lint", document, str(above))[1]
        assert f"flag 'x' is hidden by the one of {above}" in run(capsys, "lint", "--merge", document, str(above))[1]

    def test_directories_and_patterns_are_expanded(self, capsys: Any, tmp_path: Path) -> None:
        (tmp_path / "teams" / "..data").mkdir(parents=True)
        for name in ("a.json", "teams/b.yaml", "teams/notes.txt", "teams/..data/c.json"):
            (tmp_path / name).write_text('{"flags": {}}')
        assert run(capsys, "lint", str(tmp_path))[2] == "2 files checked: no problems\n"
        assert run(capsys, "lint", f"{tmp_path}/**/*.yaml", f"{tmp_path}/teams/")[2].startswith("1 file checked")
        for name in (f"{tmp_path}/*.toml", str(tmp_path / "empty")):
            (tmp_path / "empty").mkdir(exist_ok=True)
            code, _, err = run(capsys, "lint", name)
            assert (code, name in err) == (2, True)

    def test_a_file_that_cannot_be_read_is_2(self, capsys: Any) -> None:
        assert run(capsys, "lint", "no-such-file")[0] == 2


def test_an_unknown_command_is_one_line_with_a_suggestion(capsys: Any) -> None:
    assert run(capsys, "lnt", "x") == (2, "", "wigwag: unknown command 'lnt'; did you mean `wigwag lint`?\n")
    code, out, err = run(capsys, "zzz")
    assert (code, out, err.startswith("wigwag: unknown command 'zzz'; the commands are start, ")) == (2, "", True)
    assert run(capsys, "--zzz")[2].count("\n") == 1


@pytest.mark.parametrize(("command", "old"), [("eval demo checkout", "--json"), ("lint demo", "--json")])
def test_output_is_chosen_by_one_option_and_the_old_name_still_works(capsys: Any, command: str, old: str) -> None:
    expected = run(capsys, *command.split(), "-o", "json")
    json.loads(expected[1])
    assert run(capsys, *command.split(), "--output=json") == expected
    assert run(capsys, *command.split(), old) == expected
    assert old not in run(capsys, command.split(maxsplit=1)[0], "--help")[1].replace("--json-", "")


def test_without_a_command_the_help_is_printed(capsys: Any) -> None:
    code, out, _ = run(capsys)
    assert code == 0
    assert "wigwag eval demo" in out


def test_the_version_is_printed(capsys: Any) -> None:
    assert run(capsys, "--version")[1].startswith("wigwag 0.")


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m wigwag lint --json demo demo | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_output_has_colours_only_in_a_terminal() -> None:
    import pty

    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "wigwag", "eval", "demo", "sampling-rate"]
    subprocess.run(command, stdout=child, env=environment, check=True)
    assert b"\x1b[1m0.01" in os.read(parent, 1000)


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash, in which `wigwag` is this one."""
    script = f'wigwag() {{ "{sys.executable}" -m wigwag "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def write(path: Path, flags: Any) -> str:
    path.write_text(json.dumps({"flags": flags}))
    return str(path)


class TestStreams:
    """Whatever is at the other end: one line and an exit code, never a traceback."""

    def test_what_cannot_be_encoded_is_escaped(self, tmp_path: Path) -> None:
        path = write(tmp_path / "f.json", {"x": {**FLAG, "variants": {"é": "😀"}, "defaultVariant": "é"}})
        done = shell(f"wigwag eval {path} x", PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stdout) == (0, '"\\U0001f600"   variant \\xe9, STATIC\n')
        done = shell(f"wigwag eval {path} é", PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (1, "FLAG_NOT_FOUND: flag '\\xe9' does not exist in this document\n")

    @pytest.mark.parametrize("command", ["eval demo checkout", "eval demo <<< list", "lint --json demo demo"])
    def test_output_that_cannot_be_written_is_1_with_one_line(self, command: str) -> None:
        done = shell(f"wigwag {command} >&-")
        assert (done.returncode, done.stderr) == (1, "wigwag: standard output is closed\n")
        done = shell(f"wigwag {command} >/dev/full")
        assert (done.returncode, done.stderr) == (1, "wigwag: no space left on device\n")

    def test_errors_that_cannot_be_told_keep_their_exit_code(self) -> None:
        for redirection in ("2>/dev/full", "2>&-", ">&- 2>&-"):
            assert shell(f"wigwag eval demo nope {redirection}").returncode == 1
            assert shell(f"wigwag eval no-such-file x {redirection}").returncode == 2

    def test_help_where_nothing_can_be_written_is_no_traceback(self) -> None:
        assert shell("wigwag --help >/dev/full").stderr in ("", "wigwag: no space left on device\n")
        assert shell("wigwag --help >&-").stderr in ("", "wigwag: standard output is closed\n")

    def test_a_closed_standard_input_is_empty(self) -> None:
        assert shell("wigwag eval demo <&-").stdout.startswith("6 flags: ")
        done = shell("wigwag eval - x <&-")
        assert (done.returncode, "the document is empty" in done.stderr) == (2, True)

    def test_a_reader_that_goes_away_does_not_make_errors_a_success(self, tmp_path: Path) -> None:
        path = write(tmp_path / "f.json", {f"flag-{n}": {"variants": 1} for n in range(5000)})
        done = shell(f"wigwag lint {path} | head -n 1 >/dev/null; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (141, "")

    @pytest.mark.parametrize("command", ["eval /dev/zero x", "eval - x < /dev/zero", "lint /dev/zero"])
    def test_input_without_end_is_not_read_to_the_end(self, command: str) -> None:
        done = shell(f"ulimit -v 2000000; wigwag {command}")
        assert done.returncode == (1 if "lint" in command else 2)
        assert "the document has 67108865 bytes, more than the limit" in done.stdout + done.stderr


class TestPrompt:
    def ask(self, capsys: Any, monkeypatch: pytest.MonkeyPatch, source: str, *lines: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
        return run(capsys, "eval", source)[:2]

    def test_it_suggests_the_flags_that_there_are(
        self, capsys: Any, monkeypatch: pytest.MonkeyPatch, document: str, tmp_path: Path
    ) -> None:
        out = self.ask(capsys, monkeypatch, document)[1]
        assert out.startswith("2 flags: off, x\n\n  try  off ")
        assert '       why x {"targetingKey": "user-1"}  the same, explained\n' in out
        assert "banner" not in out
        assert "new-welcome-banner" in self.ask(capsys, monkeypatch, "demo")[1]
        assert "try  help" in self.ask(capsys, monkeypatch, write(tmp_path / "none.json", {}))[1]
        assert '1 flag: a b\n\n  try  "a b" ' in self.ask(capsys, monkeypatch, write(tmp_path / "f", {"a b": FLAG}))[1]

    def test_quotes_reach_flags_with_any_name(
        self, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        names = ["list", "quit", "why", "a b", "", "'", '"', 'say "hi" {}', "back\\slash", "a\tb"]
        path = write(tmp_path / "f.json", {name: {**FLAG, "targeting": RULE} for name in names})
        lines = [line for name in names for line in (f'{quoted(name)} {{"tier": "gold"}}', f"why {quoted(name)}")]
        code, out = self.ask(capsys, monkeypatch, path, *lines, "'a b'")
        assert (code, out.count("true   variant on, TARGETING_MATCH\n")) == (0, 9)  # no flag has an empty name
        assert out.count("= false (variant off, DEFAULT)") == 9
        assert out.endswith("false   variant off, DEFAULT\n")

    def test_an_open_quote_is_part_of_the_name(
        self, capsys: Any, monkeypatch: pytest.MonkeyPatch, document: str
    ) -> None:
        assert "flag '\"x' does not exist" in self.ask(capsys, monkeypatch, document, '"x')[1]

    @pytest.mark.parametrize("before", ["x", "why x", "context"])
    def test_a_very_deep_context_is_a_message(
        self, capsys: Any, monkeypatch: pytest.MonkeyPatch, document: str, before: str
    ) -> None:
        line = f'{before} {{"a": {"[" * 100_000}'
        assert self.ask(capsys, monkeypatch, document, line) == (1, "not a context: it is nested too deeply\n")


class TestRemedy:
    def test_the_reason_is_that_of_the_flag_itself(self, capsys: Any, tmp_path: Path) -> None:
        flags = {"a": {**FLAG, "variants": {"b": 1}, "defaultVariant": "c"}, "a.b": {"variants": 1}, "c": FLAG}
        path = write(tmp_path / "f.json", flags)
        assert "is not one of the variants" in run(capsys, "eval", path, "a")[2]
        assert '$.flags["a.b"].variants' in run(capsys, "eval", path, "a.b")[2]
        for name in ("defaultVariant", "variants", "flags", "b"):
            assert "$.flags" not in run(capsys, "eval", path, name)[2]

    def test_flags_in_arrays_are_known_by_their_key(self, capsys: Any, tmp_path: Path) -> None:
        path = write(tmp_path / "f.json", [{"key": "good", **FLAG}, {"key": "bad", "variants": 1}, {"key": 5}, 5])
        assert "$.flags[1].variants" in run(capsys, "eval", path, "bad")[2]
        assert "$.flags" not in run(capsys, "eval", path, "good1")[2]


def test_explain_asks_for_the_type_too(capsys: Any, document: str) -> None:
    code, out, err = run(capsys, "eval", document, "x", "--type", "string", "--explain")
    assert (code, out.splitlines()[0]) == (1, "x: TYPE_MISMATCH: variant 'off' of 'x' is not of type string")
    assert err.startswith("TYPE_MISMATCH: ")
    code, out, _ = run(capsys, "eval", document, "x", "--type", "string", "--explain", "--json")
    assert (code, json.loads(out)["error"]) == (1, "TYPE_MISMATCH")
    assert run(capsys, "eval", document, "x", "--type", "boolean", "--explain")[0] == 0


def test_a_file_that_cannot_be_read_hides_no_findings_of_the_others(capsys: Any, document: str, tmp_path: Path) -> None:
    code, out, err = run(capsys, "lint", document, str(tmp_path / "none.json"))
    assert (code, err) == (2, "2 files checked: 2 errors\n")
    assert f"{document}:1:176: error: $.flags.bad.variants" in out
    missing = f"{tmp_path}/none.json"
    assert f"{missing}: error: $: cannot read {missing}: no such file or directory (document-rejected)" in out
    code, out, _ = run(capsys, "lint", "--json", str(tmp_path / "none.json"))
    assert (code, [finding["code"] for finding in json.loads(out)]) == (2, ["document-rejected"])
