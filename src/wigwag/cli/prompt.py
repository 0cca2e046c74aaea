"""The prompt of `wigwag eval`: evaluate flags, change the context, explain a value. Lines from a pipe work too."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from wigwag.cli.documents import parse_context
from wigwag.cli.terminal import styled
from wigwag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import wigwag

DEMO = """\
  try  new-welcome-banner {"email": "fay@example.com"}   a flag and a context
       background-colour {"targetingKey": "user-1"}      the same user always gets the same colour
       why background-colour {"targetingKey": "user-1"}  the same, explained
       help                                              what else there is
"""
HELP = """\
KEY [CONTEXT]       evaluate a flag; CONTEXT is a JSON object that is merged into the current one
"KEY" [CONTEXT]     the same, for a key with spaces or one that is a command below
why KEY [CONTEXT]   evaluate it and explain the result
context {…}         replace the current context; without {…}, show it
list                all flags with their values
problems            what is wrong with the document
quit                leave (so does Ctrl-D)
"""
_LEAVE = ("quit", "exit", "q")
_WORDS = ("help", "?", "list", "ls", "problems", "context", "why", *_LEAVE)


def run_prompt(flags: wigwag.FlagSet, context: dict[str, Any], now: float | None, *, demo: bool) -> int:
    """Answer lines until there are no more; 1 if the last answer was an error."""
    session = _Session(flags, context, now)
    lines = _lines() if sys.stdin.isatty() else list(_lines())
    if not isinstance(lines, list) or not lines:  # in a terminal, or without any question
        print(welcome(flags.keys(), demo=demo))
    failed = False
    for line in lines:
        if line in _LEAVE:
            break
        failed = session.answer(line)
    return 1 if failed else 0


def welcome(keys: tuple[str, ...], *, demo: bool) -> str:
    """Return what there is, and what to try with it."""
    names = ", ".join(keys[:8]) + (", …" if len(keys) > 8 else "")
    return f"{len(keys)} flag{'' if len(keys) == 1 else 's'}: {names}\n\n{DEMO if demo else _suggestions(keys[:2])}"


def _suggestions(keys: tuple[str, ...]) -> str:
    rows = []
    if keys:
        last = f'{quoted(keys[-1])} {{"targetingKey": "user-1"}}'
        rows = [
            (quoted(keys[0]), "a flag"),
            (last, "a flag and a context"),
            (f"why {last}", "the same, explained"),
        ]
    rows += [("help", "what else there is")]
    width = max(len(line) for line, _ in rows)
    return "".join(f"  {'   ' if n else 'try'}  {line:{width}}  {meaning}\n" for n, (line, meaning) in enumerate(rows))


def quoted(key: str) -> str:
    """Return a flag's name as it can be typed at the prompt."""
    plain = key and key not in _WORDS and key[0] not in "\"'" and key.split() == [key]
    return key if plain else json.dumps(key, ensure_ascii=False)


class _Session:
    def __init__(self, flags: wigwag.FlagSet, context: dict[str, Any], now: float | None) -> None:
        self._flags, self._context, self._now = flags, context, now

    def answer(self, line: str) -> bool:
        """Answer one line; True if the answer is an error."""
        word, _, rest = line.partition(" ")
        try:
            return self._answer(line, word, rest.strip())
        except (UsageError, RecursionError) as error:
            reason = error if isinstance(error, UsageError) else "is nested too deeply"
            print(f"{styled('not a context:', 'red')} it {reason}")
            return True

    def _answer(self, line: str, word: str, rest: str) -> bool:
        match word:
            case "help" | "?":
                print(HELP, end="")
            case "list" | "ls":
                width = max(map(len, self._flags.keys()), default=0)
                for key in self._flags:
                    print(
                        f"{key:{width}}  {self._line(self._flags.resolve(key, None, None, self._context, self._now))}"
                    )
            case "problems":
                print(*(self._flags.problems or ("none",)), sep="\n")
            case "context":
                self._context = parse_context(rest) if rest else self._context
                print(json.dumps(self._context))
            case "why":
                return self._explain(rest)
            case _:
                return self._evaluate(line)
        return False

    def _explain(self, rest: str) -> bool:
        key, context = split(rest)
        explanation = self._flags.explain(key, self._over(context), self._now)
        print(explanation)
        return explanation.resolution.error is not None

    def _evaluate(self, line: str) -> bool:
        key, context = split(line)
        resolution = self._flags.resolve(key, None, None, self._over(context), self._now)
        print(self._line(resolution))
        return resolution.error is not None

    def _over(self, context: str) -> dict[str, Any]:
        return self._context | parse_context(context) if context.strip() else self._context

    def _line(self, resolution: wigwag.Resolution) -> str:
        if resolution.error:
            return f"{styled(resolution.error, 'red')}: {resolution.message}"
        return in_words(resolution)


def in_words(resolution: wigwag.Resolution) -> str:
    """Return a resolution as one line."""
    if resolution.variant is None:
        return f"no value: the caller's default applies   {styled(resolution.reason, 'dim')}"
    value = json.dumps(resolution.value, ensure_ascii=False)
    return f"{styled(value, 'bold')}   {styled(f'variant {resolution.variant}, {resolution.reason}', 'dim')}"


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


def split(text: str) -> tuple[str, str]:
    """Split what was typed into the flag's name, which may be in quotes, and the context.

    >>> split('banner {"a": 1}'), split('"a b" {"a": 1}'), split("'list'")
    (('banner', '{"a": 1}'), ('a b', '{"a": 1}'), ('list', ''))
    """
    if text[:1] == '"':
        with suppress(ValueError):
            key, end = json.JSONDecoder().raw_decode(text)
            return key, text[end:].strip()
    if text[:1] == "'" and "'" in text[1:]:
        key, _, rest = text[1:].partition("'")
        return key, rest.strip()
    key, _, rest = text.partition(" ")
    return key, rest.strip()
