"""A hook: a command, a URL or a Python function that watt calls with a snapshot; and how it is doing.

    python3 /hooks/watch.py            a command of `sh -c`
    https://hooks.example/watch        a URL, called by POST
    python:package.module:function     a function, `async` or not

A watch hook says what else to watch (`derive`); a notify hook is told that there is a new snapshot (`notify`). What is
shown of a hook is its name. Commands and URLs may hold secrets, so by default the name has neither the arguments of a
command nor what proves who calls a URL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import PurePath
from typing import Any, Literal, get_args

from wigwag.errors import UsageError, WigwagError
from wigwag.pipeline.spec import describe
from wigwag.watt.snapshots.projection import EVERYTHING, Projection
from wigwag.wire.client.url import Url, parse_url

OnFailure = Literal["retry", "skip", "fatal"]
WATCH_TIMEOUT, NOTIFY_TIMEOUT = 30.0, 60.0
_PYTHON = "python:"
_ASSIGNMENT, _SCRIPT = re.compile(r"\w+="), re.compile(r"[\w./][\w./-]*\.\w+|/[\w./-]+")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """The text of a command. It may hold secrets, so it is not shown."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Hook:
    """What is called, and what happens if that fails."""

    target: ShellCommand | Url | Callable[[Any], Any]
    name: str
    """For logs and reports; without secrets."""
    timeout: float = WATCH_TIMEOUT
    """Seconds for one call."""
    on_failure: OnFailure = "retry"
    """`retry`: call it again after a pause. `skip`: go on without it. `fatal`: the process ends."""
    projection: Projection = EVERYTHING
    """The part of snapshots that it is for: it gets no other, and is not called for changes of others."""

    def __str__(self) -> str:
        return self.name


class HookError(WigwagError):
    """A call of a hook failed."""

    exit_code = 1

    def __init__(self, hook: Hook, reason: str) -> None:
        super().__init__(f"the hook {hook}: {reason}")
        self.hook, self.reason = hook, reason


def parse_hook(text: str, *, timeout: float = WATCH_TIMEOUT, on_failure: OnFailure = "retry", name: str = "") -> Hook:
    """Read a hook as it is written in an option or a config file; `UsageError` says what is wrong with it.

    >>> parse_hook("python3 /hooks/watch.py --token secret").name, parse_hook("TOKEN=secret /bin/reload secret").name
    ('python3 /hooks/watch.py', 'reload')
    >>> parse_hook("https://me:secret@hooks.example/watch").name, parse_hook("python:json:dumps").name
    ('https://hooks.example/watch', 'python:json:dumps')
    """
    text = text.strip()
    if not text or "\0" in text:
        raise UsageError("a hook is a command, a URL, or python:package.module:function; this one is empty or binary")
    if not timeout > 0:
        raise UsageError(f"the timeout of a hook is {timeout:g} s; give it more than 0")
    if on_failure not in get_args(OnFailure):
        raise UsageError(f"on_failure of a hook is {on_failure!r}; write {', '.join(get_args(OnFailure))}")
    target: ShellCommand | Url | Callable[[Any], Any]
    if text.startswith(("http://", "https://")):
        target = parse_url(text)
        return Hook(target, name or str(target), timeout, on_failure)
    if text.startswith(_PYTHON):
        return Hook(_function(text), name or text, timeout, on_failure)
    return Hook(ShellCommand(text), name or _command_name(text), timeout, on_failure)


def _function(text: str) -> Callable[[Any], Any]:
    module, _, names = text.removeprefix(_PYTHON).partition(":")
    try:
        function: Any = import_module(module)
        for name in names.split("."):
            function = getattr(function, name)
    except Exception as error:
        raise UsageError(
            f"the hook {text} cannot be imported: {describe(error)}; write python:package.module:function, "
            "and install the package beside wigwag"
        ) from error
    if not callable(function):
        raise UsageError(f"the hook {text} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def _command_name(text: str) -> str:
    """Return the program, and the script that it runs; other arguments may be secret."""
    words = text.split()
    while len(words) > 1 and _ASSIGNMENT.match(words[0]):
        del words[0]
    words[0] = words[0].rstrip(";")
    program = PurePath(words[0]).name if not _ASSIGNMENT.match(words[0]) else "sh"
    return " ".join([program, *(word for word in words[1:2] if _SCRIPT.fullmatch(word))])


@dataclass(frozen=True, slots=True)
class HookStatus:
    """How a hook is doing."""

    name: str
    state: Literal["never run", "ok", "degraded"] = "never run"
    error: str | None = None
    """Why the last call failed; None: it did not."""
    since: float | None = None
    """When it came into this state, in seconds of the clock."""
    running_since: float | None = None
    """When the current call began; None: none is running."""
    last_ok: int | None = None
    """The id of the last snapshot that it took."""
    runs: int = 0
    failures: int = 0
    seconds: float = 0.0
    """How long the last call took."""

    def started(self, now: float) -> HookStatus:
        return replace(self, running_since=now, runs=self.runs + 1)

    def succeeded(self, now: float, snapshot: int | None = None) -> HookStatus:
        return replace(self._ended("ok", now), error=None, last_ok=snapshot)

    def failed(self, now: float, error: str) -> HookStatus:
        return replace(self._ended("degraded", now), error=error, failures=self.failures + 1)

    def interrupted(self) -> HookStatus:
        return replace(self, running_since=None)

    def _ended(self, state: Literal["ok", "degraded"], now: float) -> HookStatus:
        seconds = 0.0 if self.running_since is None else now - self.running_since
        since = self.since if self.state == state else now
        return replace(self, state=state, since=since, running_since=None, seconds=seconds)
