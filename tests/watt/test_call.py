"""Hooks of every kind are called: what they get, what they return, and what is said when they fail."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from tests.pipeline.fakes import FakeClock, settle
from tests.watt.processes import marker, run_on, until
from tests.watt.receiver import receiving
from wigwag.watt.hooks.call import HookCaller, HookDeps, Invocation, command_problem
from wigwag.watt.hooks.command import CommandResult
from wigwag.watt.hooks.hook import Hook, HookError, parse_hook

LARGE = 5_000_000


def refuse() -> bytes:
    raise AssertionError("nothing was to be serialised")


def called(hook: Hook, payload: bytes = b"{}", snapshot: object = None, deps: HookDeps | None = None) -> bytes:
    """Call a hook on the product's loop."""

    async def main() -> bytes:
        caller = HookCaller(deps or HookDeps())
        try:
            return await caller.call(hook, Invocation(snapshot, lambda: payload))
        finally:
            caller.close()

    return run_on("uvloop", main)


def failed(hook: Hook, payload: bytes = b"{}", snapshot: object = None, deps: HookDeps | None = None) -> str:
    with pytest.raises(HookError) as caught:
        called(hook, payload, snapshot, deps)
    return str(caught.value)


def command(text: str, **options: Any) -> Hook:
    return parse_hook(text, name="test", **options)


def test_a_command_gets_the_payload_and_returns_its_output() -> None:
    assert called(command("cat"), b"x" * LARGE) == b"x" * LARGE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo one >&2; echo 'no such kind' >&2; exit 1", "exit status 1; it last said: no such kind"),
        ("exit 3", "exit status 3"),
        ("nonexistent-program", "exit status 127; it last said: "),
        ("kill -KILL $$", "killed by SIGKILL; out of memory? Look at the log of the kernel"),
        ("sh -c 'kill -SEGV $$'; exit $?", "killed by SIGSEGV"),
    ],
)
def test_a_command_that_fails_says_how(text: str, message: str) -> None:
    assert failed(command(text)).startswith(f"the hook test: {message}")


def test_a_command_that_hangs_is_killed_with_all_that_it_forked() -> None:
    with marker("hooks") as environment:
        deps = HookDeps(environment=environment, grace=0.2)
        message = failed(command("trap '' TERM; sleep 60 & echo stuck >&2; sleep 60; sleep 60", timeout=2.0), deps=deps)
    assert message == "the hook test: timed out after 2 s, and was killed; it last said: stuck"


def test_a_command_that_prints_without_end_is_killed() -> None:
    with marker("hooks") as environment:
        message = failed(command("head -c 100000000 /dev/zero"), deps=HookDeps(environment=environment))
    assert message == "the hook test: printed more than 16 MiB, and was killed"


def test_what_a_command_says_is_logged_with_its_name_and_within_limits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()

    async def main() -> None:
        caller = HookCaller(HookDeps(clock))
        hook = parse_hook("seq 1000 >&2", name="100% mine")
        await caller.call(hook, Invocation(None, bytes))
        await clock.advance(10.0)
        await caller.call(hook, Invocation(None, bytes))

    run_on("asyncio", main)
    lines = [record.getMessage() for record in caplog.records if record.name == "wigwag.watt.hooks.call"]
    assert lines[:100] == [f"hook 100% mine: {number}" for number in range(1, 101)]
    assert lines[100] == "900 more lines in 10 s like: hook 100%% mine: %s"
    assert lines[101] == "hook 100% mine: 1"


def test_a_url_gets_the_payload_by_post_and_the_body_is_the_result() -> None:
    async def main() -> None:
        async with receiving() as received:
            received.answer = b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ndone"
            hook = parse_hook(received.url.replace("//", "//me:secret@"))
            assert await HookCaller().call(hook, Invocation(None, lambda: b"x" * LARGE)) == b"done"
        assert received.bodies == [b"x" * LARGE]
        assert received.heads[0].startswith("POST /hook HTTP/1.1\r\n")
        assert "Content-Type: application/json\r\n" in received.heads[0]
        assert "Authorization: Basic bWU6c2VjcmV0\r\n" in received.heads[0]
        assert hook.name == received.url

    run_on("uvloop", main)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "HTTP 503 instead of a 2xx; look at the log of its server"),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "HTTP 302 instead of a 2xx"),
        (b"garbage\r\n\r\n", "127.0.0.1:"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "127.0.0.1:"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "127.0.0.1:"),
        (None, "timed out after 5 s"),
    ],
)
def test_a_url_that_fails_says_how(answer: bytes | None, message: str) -> None:
    clock = FakeClock()

    async def main() -> None:
        async with receiving() as received, asyncio.TaskGroup() as group:
            received.answer = answer
            hook = parse_hook(received.url, name="test", timeout=5.0)
            call = group.create_task(failing(HookCaller(HookDeps(clock)), hook))
            await until(lambda: received.bodies)
            if answer is None:
                await clock.advance(5.0)
            assert (await call).startswith(f"the hook test: {message}")

    run_on("asyncio", main)


async def failing(caller: HookCaller, hook: Hook, snapshot: object = None) -> str:
    with pytest.raises(HookError) as caught:
        await caller.call(hook, Invocation(snapshot, bytes))
    return str(caught.value)


def test_a_url_where_nobody_listens_says_so() -> None:
    assert "no connection" in failed(parse_hook("http://127.0.0.1:1/"))


async def in_loop(snapshot: Any) -> Any:
    await asyncio.sleep(0)
    return {"got": snapshot, "thread": threading.current_thread() is threading.main_thread()}


def in_thread(snapshot: Any) -> Any:
    return {"got": snapshot, "thread": threading.current_thread() is threading.main_thread()}


class Broken:
    """A snapshot that hooks cannot use."""


def crash(snapshot: Any) -> Any:
    raise LookupError("no such service")


async def late(snapshot: Any) -> Any:
    raise TimeoutError("of its own")


@pytest.mark.parametrize(("name", "in_main"), [("in_loop", b"true"), ("in_thread", b"false")])
def test_a_function_gets_the_snapshot_itself_and_returns_a_mapping(name: str, in_main: bytes) -> None:
    async def main() -> bytes:
        caller = HookCaller()
        try:
            return await caller.call(parse_hook(f"python:{__name__}:{name}"), Invocation(7, refuse))
        finally:
            caller.close()

    assert run_on("uvloop", main) == b'{"got":7,"thread":' + in_main + b"}"


def test_a_function_that_fails_says_how() -> None:
    assert failed(Hook(crash, "test")) == "the hook test: it raised LookupError: no such service"
    assert failed(Hook(late, "test")) == "the hook test: it raised TimeoutError: of its own"
    assert "it raised TypeError: Encoding objects of type Broken is unsupported" in failed(
        Hook(lambda snapshot: Broken(), "test")
    )


def test_a_coroutine_function_that_hangs_is_cancelled() -> None:
    clock = FakeClock()

    async def main() -> None:
        ended = asyncio.Event()

        async def hang(snapshot: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with asyncio.TaskGroup() as group:
            call = group.create_task(failing(HookCaller(HookDeps(clock)), Hook(hang, "test", timeout=5.0)))
            await clock.advance(4.9)
            assert not call.done()
            await clock.advance(0.1)
            assert await call == "the hook test: timed out after 5 s"
            assert ended.is_set()

    run_on("asyncio", main)


def test_a_function_in_a_thread_that_hangs_is_not_called_again_before_it_returns() -> None:
    clock, release, calls = FakeClock(), threading.Event(), []

    def hang(snapshot: Any) -> None:
        calls.append(snapshot)
        release.wait()

    async def main() -> None:
        caller, hook = HookCaller(HookDeps(clock)), Hook(hang, "test", timeout=5.0)
        async with asyncio.TaskGroup() as group:
            call = group.create_task(failing(caller, hook, 1))
            await clock.advance(5.0)
            assert await call == "the hook test: timed out after 5 s"
        assert "an earlier call has not returned" in await failing(caller, hook, 2)
        release.set()
        while calls != [1, 3]:
            try:
                assert await caller.call(hook, Invocation(3, bytes)) == b"null"
            except HookError:
                await settle()
        caller.close()

    run_on("asyncio", main)


def test_signals_beyond_the_known_ones_are_numbers() -> None:
    assert command_problem(CommandResult(255), 1.0) == "exit status 255"
    assert command_problem(CommandResult(143), 1.0) == "killed by SIGTERM"
