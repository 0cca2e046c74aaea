"""Hooks as they are written: what is refused, and what is shown of them."""

from __future__ import annotations

from typing import Any

import pytest

from wigwag.errors import UsageError
from wigwag.watt.hooks.hook import parse_hook


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (" ", {}, "a hook is a command, a URL"),
        ("a\0b", {}, "empty or binary"),
        ("true", {"timeout": 0.0}, "the timeout of a hook is 0 s; give it more than 0"),
        ("true", {"timeout": float("nan")}, "the timeout of a hook is nan"),
        ("true", {"on_failure": "explode"}, "on_failure of a hook is 'explode'; write retry, skip, fatal"),
        ("http://", {}, "the URL has no host"),
        ("python:nonexistent.module:f", {}, "cannot be imported: ModuleNotFoundError"),
        ("python:json", {}, "cannot be imported: AttributeError"),
        ("python::f", {}, "cannot be imported: ValueError"),
        ("python:json:nope", {}, "cannot be imported: AttributeError"),
        ("python:json:__name__", {}, "is a str, not a function"),
    ],
)
def test_a_hook_that_cannot_be_is_refused(text: str, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_hook(text, **options)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python /ambassador/watch_hook.py", "python /ambassador/watch_hook.py"),
        ("python3 hook.py secret", "python3 hook.py"),
        ("curl https://me:secret@hooks.example/", "curl"),
        ("mysql -psecret", "mysql"),
        ("PASSWORD=secret", "sh"),
        ("A=secret B=secret run secret", "run"),
    ],
)
def test_the_name_of_a_command_shows_no_arguments(text: str, name: str) -> None:
    hook = parse_hook(text)
    assert str(hook) == name
    assert "secret" not in repr(hook)
