"""`wigwag diff`, on files, on sources, and on a running agent; and the examples of its page."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.agent.process import AgentProcess, write
from tests.sources.grpc_server import SyncServer
from wigwag.cli.main import main

PAGE = Path(__file__).parent.parent.parent / "docs" / "guides" / "snapshots.md"
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
GOLDEN = {**FLAG, "targeting": {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}}
USERS = [{"targetingKey": "fay", "tier": "gold"}, {"targetingKey": "bo"}]
TOLD = "~ x   targeting added\n"
WHO = "\n1 of 2 contexts get another answer:\n  x   off → on   1: fay\n"


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["diff", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    output = capsys.readouterr()
    return code, output.out, output.err


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two documents and some users."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps({"flags": {"x": FLAG}}))
    (tmp_path / "b.json").write_text(json.dumps({"flags": {"x": GOLDEN}}))
    (tmp_path / "users.json").write_text(json.dumps(USERS))
    return tmp_path


class TestFiles:
    def test_what_differs_is_told_and_1_is_the_exit_code(self, capsys: Any, here: Path) -> None:
        assert run(capsys, "a.json", "file:b.json") == (1, TOLD, "")
        assert run(capsys, "a.json", "a.json") == (0, "no flag differs\n", "")

    def test_json_and_yaml_may_say_the_same(self, capsys: Any, here: Path) -> None:
        (here / "a.yaml").write_text(
            "flags: {x: {defaultVariant: off, variants: {off: false, on: true}, state: ENABLED}}"
        )
        assert run(capsys, "a.json", "a.yaml")[0] == 0

    def test_who_gets_another_answer(self, capsys: Any, here: Path) -> None:
        assert run(capsys, "a.json", "b.json", "--contexts", "users.json") == (1, TOLD + WHO, "")

    def test_json_is_for_programs(self, capsys: Any, here: Path) -> None:
        code, out, _ = run(capsys, "a.json", "b.json", "-c", "users.json", "-o", "json")
        told = json.loads(out)
        assert (code, told["affected"], told["changed"][0]["key"]) == (1, 1, "x")
        assert [one["name"] for one in told["outcomes"]] == ["fay", "bo"]
        code, out, _ = run(capsys, "a.json", "a.json", "--output", "json")
        assert (code, json.loads(out)["same"]) == (0, True)

    def test_standard_input_is_either_side_or_the_contexts(
        self, capsys: Any, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def given(name: str) -> None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((here / name).read_bytes())))

        given("a.json")
        assert run(capsys, "-", "b.json")[:2] == (1, TOLD)
        given("users.json")
        assert run(capsys, "a.json", "b.json", "-c", "-")[1] == TOLD + WHO
        assert run(capsys, "-", "b.json", "-c", "-")[2] == (
            "wigwag: standard input can be read only once; use a file for the other\n"
        )

    def test_a_selection_of_flags(self, capsys: Any, here: Path) -> None:
        red, blue = ({"key": "x", **FLAG, "metadata": {"flagSetId": name}} for name in ("red", "blue"))
        write(here / "a.json", {"flags": [red, blue]})
        write(here / "b.json", {"flags": [{**red, "defaultVariant": "on"}, blue]})
        assert (
            run(capsys, "a.json", "b.json", "--selector", "flagSetId=red")[1] == "~ x (red)   defaultVariant off → on\n"
        )
        assert run(capsys, "a.json", "b.json", "--selector", "flagSetId=blue")[0] == 0

    def test_the_hashing_version(self, capsys: Any, here: Path) -> None:
        """The same rule gives users other variants by another version."""
        split = {**FLAG, "targeting": {"fractional": [["on", 50], ["off", 50]]}}
        write(here / "a.json", {"flags": {"x": split}})
        write(here / "b.json", {"flags": {"x": {**split, "defaultVariant": "on"}}})
        write(here / "users.json", [{"targetingKey": f"u{n}"} for n in range(50)])
        found = {
            version: json.loads(run(capsys, "a.json", "b.json", "-c", "users.json", "-o", "json", *option)[1])
            for version, option in (("", ()), ("v2", ("--fractional", "v2")), ("v3", ("--fractional", "v3")))
        }
        assert found[""] == found["v2"]
        assert found["v3"]["changed"] == found["v2"]["changed"]
        assert found["v3"]["before"] != found["v2"]["before"]

    def test_a_bad_flag_is_named_since_it_looks_removed(self, capsys: Any, here: Path) -> None:
        write(here / "b.json", {"flags": {"x": {"variants": 5}}})
        code, out, err = run(capsys, "a.json", "b.json")
        assert (code, out) == (1, "- x\n")
        assert err.startswith("b.json: $.flags.x.variants: error: ")

    def test_colours_are_for_terminals(self, capsys: Any, here: Path) -> None:
        shell = f"{sys.executable} -m wigwag diff a.json b.json"
        script = shutil.which("script")
        assert "\x1b[" not in run(capsys, "a.json", "b.json")[1]
        if script is None:
            pytest.skip("there is no script(1) to make a terminal with")
        shown = subprocess.run([script, "-qec", shell, "/dev/null"], capture_output=True, text=True, check=False)
        assert shown.returncode == 1
        assert "\x1b[33m~ x\x1b[0m" in shown.stdout

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["a.json"], "required: B"),
            (["a.json", "none.json"], "cannot read none.json: no such file or directory"),
            (["a.json", "broken.json"], "broken.json: not valid JSON"),
            (["a.json", "b.json", "-c", "none.json"], "cannot read none.json"),
            (["a.json", "b.json", "--selector", "colour=red"], "invalid selector key"),
            (["a.json", "b.json", "--output", "xml"], "invalid choice"),
            (["a.json", "b.json", "--fractional", "v1"], "invalid choice"),
            (["a.json", "ftp://host/x"], "cannot tell what 'ftp://host/x' is"),
            (["a.json", "agent://"], "agent://HOST:PORT/SNAPSHOT"),
            (["a.json", "agent://h:port"], "is not the address of an agent"),
            (["a.json", "agent://127.0.0.1:1"], "no connection"),
            (["a.json", "http://127.0.0.1:1/flags.json"], "cannot read http://127.0.0.1:1/flags.json: "),
        ],
    )
    def test_what_cannot_be_used_is_2_and_one_line(
        self, capsys: Any, here: Path, arguments: list[str], message: str
    ) -> None:
        (here / "broken.json").write_text('{"flags"')
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        assert message in err
        assert "Traceback" not in err


class TestContexts:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("users.json", json.dumps(USERS)),
            ("users.json", json.dumps({"contexts": USERS}, indent=1)),
            ("users.jsonl", "\n".join(map(json.dumps, USERS)) + "\n\n"),
            ("users.txt", "\ufeff" + "\r\n".join(map(json.dumps, USERS))),
            ("users.yaml", "- {targetingKey: fay, tier: gold}\n- targetingKey: bo\n"),
            ("users.yml", "[{targetingKey: fay, tier: gold}, {targetingKey: bo}]"),
            ("users", "contexts:\n- {targetingKey: fay, tier: gold}\n- targetingKey: bo\n"),
        ],
    )
    def test_forms(self, capsys: Any, here: Path, name: str, text: str) -> None:
        (here / name).write_text(text)
        assert run(capsys, "a.json", "b.json", "-c", name)[1] == TOLD + WHO

    def test_one_context_needs_no_list(self, capsys: Any, here: Path) -> None:
        (here / "user.json").write_text(json.dumps(USERS[0], indent=2))
        assert run(capsys, "a.json", "b.json", "-c", "user.json")[1].splitlines()[2:] == [
            "the context gets other answers:",
            "  x   off → on   1: fay",
        ]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (b"", "it is empty"),
            (b"[{", "not valid JSON"),
            (b'{"a": 1}\n{"b"\n', "line 2 is not valid JSON"),
            (b'{"a": 1}\n5\n', "line 2 must be a JSON object"),
            (b'{"a": 1}\n{"\xff": 1}\n', "line 2 is not UTF-8"),
            (b"[1]", "context #1 must be an object"),
            (b"just text", "must be a list of contexts"),
            (b"[" * 100_000, "nested too deeply"),
            (b"a: [", "not valid YAML"),
        ],
    )
    def test_what_is_wrong_is_told_with_the_place(self, capsys: Any, here: Path, text: bytes, message: str) -> None:
        (here / "users").write_bytes(text)
        code, out, err = run(capsys, "a.json", "b.json", "-c", "users")
        assert (code, out) == (2, "")
        assert err.startswith("wigwag: users cannot be used as contexts: ")
        assert message in err

    def test_a_file_without_end_is_refused(self, capsys: Any, here: Path) -> None:
        assert "has more than" in run(capsys, "a.json", "b.json", "-c", "/dev/zero")[2]


class _Document(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = (404, b"nothing here") if self.path.startswith("/debug") else (200, self.server.body)  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    """A web server with a document."""
    server = HTTPServer(("127.0.0.1", 0), _Document)
    server.body = json.dumps({"flags": {"x": GOLDEN}}).encode()  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TestSources:
    def test_a_web_address_is_read_once(self, capsys: Any, here: Path, web: str) -> None:
        assert run(capsys, "a.json", f"http://{web}/flags.json") == (1, TOLD, "")
        assert run(capsys, f"http://{web}/flags.json", "b.json")[0] == 0

    def test_a_grpc_server_is_read_by_whatever_names_it(self, capsys: Any, here: Path) -> None:
        with SyncServer(json.dumps({"flags": {"x": GOLDEN}})) as server:
            for form in ("grpc://127.0.0.1:{}", "dns:127.0.0.1:{}", "dns:///localhost:{}", "ipv4:127.0.0.1:{}"):
                assert run(capsys, "a.json", form.format(server.port)) == (1, TOLD, "")

    @pytest.mark.parametrize("name", ["unix:none.sock", "uds:none.sock", "unix-abstract:none", "dns:me@host"])
    def test_what_names_a_server_is_no_path(self, capsys: Any, here: Path, name: str) -> None:
        code, _, err = run(capsys, "a.json", name)
        assert code == 2
        assert ("cannot connect" if "none" in name else "has credentials") in err

    @pytest.mark.parametrize("name", ["core.openfeature.dev/a", "configmap/a"])
    def test_what_names_objects_is_no_path(self, capsys: Any, here: Path, name: str) -> None:
        assert "write " + name.partition("/")[0] in run(capsys, "a.json", name)[2]
        assert run(capsys, "a.json", f"./{name}")[2] == f"wigwag: cannot read {name}: no such file or directory\n"

    def test_secrets_are_not_shown(self, capsys: Any, here: Path) -> None:
        code, _, err = run(capsys, "a.json", "http://me:hunter2@127.0.0.1:1/flags.json?sig=hunter2")
        assert code == 2
        assert "hunter2" not in err

    def test_what_is_no_agent_is_told_so(self, capsys: Any, here: Path, web: str) -> None:
        code, _, err = run(capsys, "a.json", f"agent://{web}")
        assert (code, err) == (
            2,
            f"wigwag: agent://{web}: the answer is not that of a wigwag agent; is this its management port?\n",
        )


def test_a_running_agent_is_compared_with_files_and_with_its_past(capsys: Any, here: Path) -> None:
    shared: dict[str, Any] = {
        "metadata": {"flagSetId": "shop", "version": "7"},
        "$evaluators": {"vip": {"==": [{"var": "tier"}, "gold"]}},
        "flags": {"x": {**FLAG, "targeting": {"if": [{"$ref": "vip"}, "on"]}}, "y": FLAG},
    }
    before = {**shared, "flags": {**shared["flags"], "y": {**FLAG, "defaultVariant": "on"}}}
    write(here / "flags.json", before)
    write(here / "before.json", before)
    with AgentProcess("--uri", f"file:{here / 'flags.json'}", "--snapshots", "2", "--fractional", "v3") as agent:
        place = f"agent://{agent.address('management')}"
        assert run(capsys, place, "flags.json") == (0, "no flag differs\n", "")
        write(here / "flags.json", shared)
        agent.wait_for_log(lambda line: line["msg"] == "snapshot published" and line["number"] == 2)
        assert run(capsys, place, "flags.json")[0] == 0
        assert run(capsys, f"{place}/previous", "before.json")[0] == 0
        code, out, _ = run(capsys, f"{place}/previous", place, "-c", "users.json")
        assert (code, out.splitlines()) == (
            1,
            [
                "~ y (shop)   defaultVariant on → off",
                "",
                "2 of 2 contexts get another answer:",
                "  y   on → off   2: fay, bo",
            ],
        )
        told = json.loads(agent.fetch("management", "/debug/diff", USERS)[1])
        assert told == json.loads(run(capsys, f"{place}/1", f"{place}/2", "-c", "users.json", "-o", "json")[1])
        first = told["before"]
        assert run(capsys, f"{place}/{first[:6]}", f"{place}/{first}")[0] == 0
        code, _, err = run(capsys, f"{place}/cafecafe", place)
        assert (code, err.startswith(f"wigwag: {place}/cafecafe: no snapshot 'cafecafe' is kept; there is ")) == (
            2,
            True,
        )
        document = agent.fetch("management", "/debug/flags?snapshot=previous&format=document")[1]
        (here / "restored.json").write_bytes(document)
        write(here / "flags.json", document.decode())
        agent.wait_for_log(lambda line: line["msg"] == "snapshot published" and line["number"] == 3)
        status, body = agent.fetch("management", "/debug/evaluate?key=y")
        assert (status, json.loads(body)["variant"]) == (200, "on")
        listed = json.loads(agent.fetch("management", "/debug/snapshots")[1])
        assert [snapshot["number"] for snapshot in listed["snapshots"]] == [3, 2]


class TestPage:
    @pytest.fixture
    def files(self, here: Path) -> Path:
        for name, text in zip(("main.yaml", "branch.yaml"), examples("yaml"), strict=True):
            (here / name).write_text(text)
        (here / "users.json").write_text(examples("json")[0])
        return here

    def test_the_comparison_prints_what_the_page_says(self, capsys: Any, files: Path) -> None:
        command, _, expected = examples("console")[0].removeprefix("$ wigwag diff ").partition("\n")
        assert run(capsys, *command.split()) == (1, expected, "")

    @pytest.mark.skipif(shutil.which("curl") is None, reason="THE PAGE'S COMMANDS WERE NOT TRIED: there is no curl")
    def test_its_commands_work_against_an_agent(self, files: Path) -> None:
        (commands,) = [block for block in examples("sh") if "curl" in block]
        flags = files / "flags.yaml"
        shutil.copy(files / "main.yaml", flags)
        with AgentProcess("--uri", f"file:{flags}") as agent:
            write(flags, (files / "branch.yaml").read_text())
            agent.wait_for_log(lambda line: line["msg"] == "snapshot published" and line["number"] == 2)
            lines = commands.replace("localhost:8014", agent.address("management")).splitlines()
            told = [
                subprocess.run(["bash", "-c", line], cwd=files, capture_output=True, text=True, check=True).stdout
                for line in lines
            ]
        assert len(told[0].splitlines()) == 2
        assert "the context gets other answers:" in told[1]
        assert json.loads(told[2])["variant"] == "on"
        assert told[3].startswith("new-checkout = true")
        assert json.loads((files / "flags-before.json").read_text())["flags"].keys() == {"new-checkout", "page-size"}
