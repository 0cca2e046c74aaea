"""A service in two calls: the options, and what they ask for."""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import Volume, becomes
from wigwag import dflag
from wigwag.dflag import Origin, ServiceOptions
from wigwag.dflag.page.access import Access
from wigwag.dflag.startup.options import OPTIONS
from wigwag.errors import StartError, UsageError


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """Leave the root logger as it was."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def shop() -> tuple[dflag.FlagSet, argparse.ArgumentParser]:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10, validators=[dflag.in_range(0, 100)])
    flags.str("name", "x", dynamic=False, path_flag="")
    parser = argparse.ArgumentParser(prog="shop")
    dflag.install(parser, flags)
    return flags, parser


def ask(port: int, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_without_options_nothing_is_started() -> None:
    flags, parser = shop()
    with dflag.service(flags, parser.parse_args([])) as running:
        assert (running.updater, running.page) == (None, None)
        assert flags.frozen


def test_directories_are_followed_and_the_last_counts(tmp_path: Path) -> None:
    flags, parser = shop()
    first = Volume(tmp_path / "first", {"rate": "20", "name": "first"})
    last = Volume(tmp_path / "last", {"rate": "30"})
    options = parser.parse_args(["--config-dir", str(first.path), f"-config-dir={last.path}", "--loglevel=error"])
    with dflag.service(flags, options) as running:
        assert running.updater is not None
        assert (flags["rate"].get(), flags["name"].get(), running.updater.errors) == (30, "first", 0)
        last.write({"rate": "40"})
        becomes(flags["rate"], 40)
        assert logging.getLogger().level == logging.ERROR
    assert not running.updater.running


def test_a_wrong_flag_at_the_start_is_told_and_the_rest_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags, parser = shop()
    volume = Volume(tmp_path / "dflag", {"rate": "many", "name": "y"})
    with dflag.service(flags, parser.parse_args([f"--config-dir={volume.path}"])):
        assert (flags["rate"].get(), flags["name"].get()) == (10, "y")
        (told,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
        assert told.getMessage() == f"starting in spite of 1 error: {volume.path}/rate"
        assert caplog.text.count("'many' is not a whole number") == 1
        volume.write({"rate": "50", "name": "y"})
        becomes(flags["rate"], 50)


def test_a_directory_that_is_not_there_yet_is_told_and_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags, parser = shop()
    policy = dflag.Policy(poll=0.05, poll_blind=0.05)
    with dflag.service(flags, parser.parse_args([f"--config-dir={tmp_path / 'dflag'}"]), policy=policy):
        assert [record.levelname for record in caplog.records].count("CRITICAL") == 1
        Volume(tmp_path / "dflag", {"rate": "50"})
        becomes(flags["rate"], 50)


@pytest.mark.parametrize("content", [{"rate": "many"}, None], ids=["wrong", "missing"])
def test_who_is_strict_does_not_start(tmp_path: Path, content: dict[str, str] | None) -> None:
    flags, parser = shop()
    if content is not None:
        Volume(tmp_path / "dflag", content)
    options = parser.parse_args(["--config-strict", f"--config-dir={tmp_path / 'dflag'}"])
    with pytest.raises(SystemExit, match=f"^error: .*{tmp_path / 'dflag'}"), dflag.service(flags, options):
        pytest.fail("it must not start")
    own = ServiceOptions(config_strict=True, config_dir=[tmp_path / "dflag"])
    with pytest.raises(StartError, match=str(tmp_path / "dflag")), dflag.service(flags, own):
        pytest.fail("it must not start")


def test_the_environment_and_files_are_read_if_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flags, parser = shop()
    (tmp_path / "name").write_text("from a file\n")
    options = parser.parse_args([f"--name-path={tmp_path / 'name'}"])
    variables = {"SHOP_RATE": "60", "RATE": "1", "SHOP_LOGLEVEL": "loud"}
    with dflag.service(flags, options, environment=variables, prefix="SHOP_"):
        assert str(flags["rate"].held) == "environment SHOP_RATE"
        assert (flags["rate"].get(), flags["name"].get(), flags["name"].held.origin) == (60, "from a file", Origin.FILE)
    assert "'loud' is not a log level" in caplog.text
    assert "starting without" in caplog.text


def test_with_a_prefix_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_RATE", "61")
    flags, parser = shop()
    with dflag.service(flags, parser.parse_args([]), prefix="SHOP_"):
        assert (flags["rate"].get(), str(flags["rate"].held)) == (61, "environment SHOP_RATE")


def test_without_a_prefix_and_an_environment_no_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE", "61")
    flags, parser = shop()
    with dflag.service(flags, parser.parse_args([])):
        assert flags["rate"].get() == 10


def test_who_is_strict_starts_with_no_wrong_variable_or_file(tmp_path: Path) -> None:
    flags, parser = shop()
    strict = ServiceOptions(config_strict=True)
    with pytest.raises(StartError, match="cannot start: flag 'rate': RATE: 'x' is not a whole number"):
        dflag.service(flags, strict, environment={"RATE": "x"}).__enter__()
    parser.parse_args([f"--name-path={tmp_path / 'nothing'}"])
    with pytest.raises(StartError, match="No such file"):
        dflag.service(flags, strict).__enter__()


def test_the_page_can_be_looked_at_and_without_a_token_no_more(tmp_path: Path) -> None:
    flags, parser = shop()
    with dflag.service(flags, parser.parse_args(["--config-port=0"])) as running:
        assert running.page is not None
        port = running.page.port
        assert running.page.url == f"http://127.0.0.1:{port}/"
        status, listing = ask(port, "GET", "/?format=json")
        assert status == 200
        assert {flag["name"] for flag in listing["flags"]} >= {"loglevel", "name", "rate"}
        assert ask(port, "PUT", "/flags/rate", {"value": 5})[0] == 403
    assert (flags["rate"].get(), running.page.running) == (10, False)


def test_who_has_the_token_sets_flags(tmp_path: Path) -> None:
    flags, parser = shop()
    (tmp_path / "token").write_text("sesame\n")
    options = parser.parse_args(["--config-port=0", f"--config-token-file={tmp_path / 'token'}"])
    with dflag.service(flags, options) as running:
        assert running.page is not None
        port = running.page.port
        assert ask(port, "PUT", "/flags/rate", {"value": 5}, "guess")[0] == 401
        assert ask(port, "PUT", "/flags/rate", {"value": 5}, "sesame")[0] == 200
        assert (flags["rate"].get(), flags["rate"].held.origin) == (5, Origin.HTTP)


def test_access_may_be_given_by_the_program() -> None:
    flags, _ = shop()
    access = Access(unauthenticated=True)
    with dflag.service(flags, ServiceOptions(config_port=0), access=access) as running:
        assert running.page is not None
        assert ask(running.page.port, "PUT", "/flags/loglevel", {"value": "Debug"})[0] == 200
        assert logging.getLogger().level == logging.DEBUG


def test_a_token_that_is_not_there_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flags, _ = shop()
    options = ServiceOptions(config_port=0, config_token_file=str(tmp_path / "token"))
    with dflag.service(flags, options):
        assert "the token to set flags with cannot be read" in caplog.text
    strict = ServiceOptions(config_port=0, config_token_file=str(tmp_path / "token"), config_strict=True)
    with pytest.raises(StartError, match="cannot be read"):
        dflag.service(flags, strict).__enter__()


def test_a_port_that_is_taken_is_told_and_what_was_started_is_stopped(tmp_path: Path) -> None:
    flags, _ = shop()
    volume = Volume(tmp_path / "dflag", {"rate": "20"})
    with dflag.service(flags, ServiceOptions(config_port=0)) as running:
        assert running.page is not None
        options = ServiceOptions(config_dir=[str(volume.path)], config_port=running.page.port)
        with pytest.raises(StartError, match=str(running.page.port)):
            dflag.service(flags, options).__enter__()
    volume.write({"rate": "30"})
    with dflag.service(flags, ServiceOptions(config_dir=[str(volume.path)])):
        assert flags["rate"].get() == 30


PROGRAM = """
import argparse, logging, sys
from wigwag import dflag
flags, parser = dflag.FlagSet("shop"), argparse.ArgumentParser(prog="shop")
dflag.install(parser, flags)
with dflag.service(flags, parser.parse_args()):
    logging.getLogger("shop").debug("seen by nobody else")
    logging.basicConfig(format="own %(message)s")
    logging.getLogger("shop").debug("in its own way")
"""


def program(*line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, *line], capture_output=True, text=True)


def test_a_program_without_a_log_sees_what_the_level_lets_through_and_may_set_up_its_log_later() -> None:
    assert program("--loglevel=debug").stderr == "DEBUG shop: seen by nobody else\nown in its own way\n"
    assert program().stderr == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["--config-strict", "--config-dir=/nowhere"], "1 error in the flags: /nowhere: No such file or directory"),
        (["--config-dir=configmap/a b/flags"], "'a b' is not the name of an object"),
        (["--config-port={taken}"], "{taken}"),
    ],
)
def test_a_start_that_fails_ends_a_program_with_one_line(line: list[str], told: str) -> None:
    with dflag.service(shop()[0], ServiceOptions(config_port=0)) as running:
        assert running.page is not None
        taken = running.page.port
        done = program(*(each.format(taken=taken) for each in line))
    lines = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    assert (done.returncode, len(lines), "Traceback" in done.stderr) == (1, 1, False)
    assert told.format(taken=taken) in lines[0]


def test_what_fails_within_the_block_is_not_the_start() -> None:
    flags, parser = shop()
    with pytest.raises(StartError, match="later"), dflag.service(flags, parser.parse_args([])):
        raise StartError("later")


def test_many_flags_may_be_in_one_file(tmp_path: Path) -> None:
    flags, parser = shop()
    (tmp_path / "app.yaml").write_text("rate: 20\n")
    (tmp_path / "more.toml").write_text('name = "y"\n')
    line = [f"--config-dir={tmp_path}", "--config-documents=app.yaml", "-config_documents", "*.toml"]
    with dflag.service(flags, parser.parse_args(line)) as running:
        assert running.updater is not None
        assert (flags["rate"].get(), flags["name"].get(), running.updater.problems) == (20, "y", ())


def test_a_place_may_be_a_record_that_says_for_itself(tmp_path: Path) -> None:
    flags, _ = shop()
    (tmp_path / "app.yaml").write_text("rate: 20\n")
    place = dflag.Directory(str(tmp_path), documents=("app.yaml",))
    with dflag.service(flags, ServiceOptions(config_dir=[place], config_documents=["other.yaml"])) as running:
        assert running.updater is not None
        assert (flags["rate"].get(), running.updater.problems) == (20, ())


@pytest.mark.parametrize("field", ["config_dir", "config_documents"])
def test_a_text_is_no_list_of_texts(field: str) -> None:
    with pytest.raises(UsageError, match=rf"`{field}` is a list: write \['/etc'\]"):
        ServiceOptions(**{field: "/etc"})  # type: ignore[arg-type]


def test_the_options_on_the_command_line_are_the_fields() -> None:
    named = [field.name for field in fields(ServiceOptions)]
    assert named == [*(option.name for option in OPTIONS), "command_line"]


def test_variables_that_name_no_flag_are_told_and_may_be_an_error(caplog: pytest.LogCaptureFixture) -> None:
    flags, parser = shop()
    variables = {"SHOP_RATEE": "5", "SHOP_RATE": "6"}
    with dflag.service(flags, parser.parse_args([]), environment=variables, prefix="SHOP_"):
        assert flags["rate"].get() == 6
    assert "SHOP_RATEE names no flag of the set 'shop'; did you mean SHOP_RATE?" in caplog.text
    strict, policy = ServiceOptions(config_strict=True), dflag.Policy(unknown="error")
    with pytest.raises(StartError, match="cannot start: SHOP_RATEE names no flag"):
        dflag.service(flags, strict, environment=variables, prefix="SHOP_", policy=policy).__enter__()


@pytest.mark.parametrize("text", ["x", "-1", "65536", "1e3", ""])
def test_a_port_is_a_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, parser = shop()
    with pytest.raises(SystemExit):
        parser.parse_args([f"--config-port={text}"])
    assert f"argument --config-port: {text!r} is not a port; write a number from 0 to 65535" in capsys.readouterr().err


def test_a_namespace_of_another_parser_has_what_it_has() -> None:
    flags, _ = shop()
    with dflag.service(flags, argparse.Namespace(verbose=True, config_port=None)) as running:
        assert running.page is None


def test_the_options_alone_load_no_network() -> None:
    code = (
        "import argparse, sys; from wigwag import dflag; flags = dflag.FlagSet('x'); p = argparse.ArgumentParser();"
        "dflag.install(p, flags)\nwith dflag.service(flags, p.parse_args([])): print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"socket", "ssl", "http.client", "asyncio", "click", "typer", "absl"} & set(told.stdout.split()) == set()
