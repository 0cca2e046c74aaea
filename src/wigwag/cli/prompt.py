"""The prompt of `wigwag eval`: ask for flags, change the context, see why. Lines from a pipe work too."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from wigwag.cli.show import in_words
from wigwag.cli.terminal import styled
from wigwag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import wigwag

WELCOME = """\
{count} flags: {names}

  try  new-welcome-banner {{"email": "fay@example.com"}}   a flag and a context
       background-colour {{"targetingKey": "user-1"}}      the same user always gets the same colour
       why background-colour {{"targetingKey": "user-1"}}  the same, explained
       help                                              what else there is
"""
HELP = """\
KEY [CONTEXT]       evaluate a flag; CONTEXT is a JSON object laid over the current one
why KEY [CONTEXT]   evaluate it and show how the value came about
context {…}         replace the current context; without {…}, show it
list                all flags with their values
problems            what is wrong with the document
quit                leave (so does Ctrl-D)
"""


def converse(flags: wigwag.FlagSet, context: dict[str, Any], now: float | None) -> int:
    """Answer lines until there are no more; 1 if the last answer was an error."""
    session = _Session(flags, context, now)
    lines = _lines() if sys.stdin.isatty() else list(_lines())
    if not isinstance(lines, list) or not lines:  # somebody is there to read it, or nobody has asked anything
        names = ", ".join(flags.keys()[:8]) + (", …" if len(flags) > 8 else "")
        print(WELCOME.format(count=len(flags), names=names))
    failed = False
    for line in lines:
        if line in ("quit", "exit", "q"):
            break
        failed = session.answer(line)
    return 1 if failed else 0


class _Session:
    def __init__(self, flags: wigwag.FlagSet, context: dict[str, Any], now: float | None) -> None:
        self._flags, self._context, self._now = flags, context, now

    def answer(self, line: str) -> bool:
        """Answer one line; True if the answer is an error."""
        word, _, rest = line.partition(" ")
        commands = {"help": self._help, "?": self._help, "list": self._list, "ls": self._list}
        commands |= {"problems": self._problems, "context": self._set, "why": self._why}
        try:
            return commands[word](rest.strip()) if word in commands else self._evaluate(word, rest.strip())
        except ValueError as error:
            print(f'{styled("not a context:", "red")} {error}; write a JSON object such as {{"tier": "gold"}}')
            return True

    def _help(self, rest: str) -> bool:
        print(HELP, end="")
        return False

    def _list(self, rest: str) -> bool:
        width = max(map(len, self._flags.keys()), default=0)
        for key in self._flags:
            print(f"{key:{width}}  {self._line(self._flags.resolve(key, None, None, self._context, self._now))}")
        return False

    def _problems(self, rest: str) -> bool:
        for problem in self._flags.problems or ("none",):
            print(problem)
        return False

    def _set(self, rest: str) -> bool:
        if rest:
            self._context = _object(rest)
        print(json.dumps(self._context))
        return False

    def _why(self, rest: str) -> bool:
        key, _, context = rest.partition(" ")
        explanation = self._flags.explain(key, self._over(context), self._now)
        print(explanation)
        return explanation.resolution.error is not None

    def _evaluate(self, key: str, context: str) -> bool:
        resolution = self._flags.resolve(key, None, None, self._over(context), self._now)
        print(self._line(resolution))
        return resolution.error is not None

    def _over(self, context: str) -> dict[str, Any]:
        return self._context | _object(context) if context.strip() else self._context

    def _line(self, resolution: wigwag.Resolution) -> str:
        if resolution.error:
            return f"{styled(resolution.error, 'red')}: {resolution.message}"
        return in_words(resolution)


def _lines() -> Iterator[str]:
    """Yield lines; in a terminal with a prompt, a history, and Ctrl-D to leave."""
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401 - line editing for input()
    while True:
        try:
            line = input("flag> " if interactive else "").strip()
        except EOFError:
            if interactive:
                print()
            return
        if line:
            yield line


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise UsageError("it is not an object")
    return value
