"""Hooks and outputs as people write them: texts of the command line, or records of a config file.

notify:
  - ./sync.sh                                  the same as {command: ./sync.sh}
  - url: http://127.0.0.1:9000/sync
    timeout: 10s
    on-failure: skip
    projection: {kinds: [services], namespaces: [shop]}
outputs:
  - directory: /run/watt
    files: {services.json: {kinds: [services]}, endpoints.json: {sections: [Consul]}}
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct, structs

from wigwag.errors import UsageError
from wigwag.options import duration_or_seconds
from wigwag.pipeline.spec import Wanted
from wigwag.watt.hooks.hook import Hook, parse_hook
from wigwag.watt.outputs.directory import is_file_name
from wigwag.watt.outputs.writer import Output
from wigwag.watt.snapshots.projection import Projection
from wigwag.watt.watches.specs import KubernetesSpec
from wigwag.watt.watches.watchset import explain, read_records, read_watches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.watt.options import WattOptions
    from wigwag.watt.watches.specs import Spec


class HookFields(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A hook: one of `command`, `url` and `python`."""

    command: str = ""
    url: str = ""
    python: str = ""
    """MODULE:FUNCTION."""
    name: str = ""
    timeout: str | float = ""
    """Seconds, or a Go duration."""
    on_failure: Literal["retry", "skip", "fatal"] = "retry"
    projection: dict[str, Any] = {}
    """The part of snapshots that the hook is for: it gets no other, and is not called for changes of others."""


class OutputFields(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A directory, and the projection that each of its files holds."""

    directory: str
    files: dict[str, dict[str, Any]]
    format: Literal["watt1", "v2"] = "watt1"


def initial_watches(options: WattOptions, environment: Mapping[str, str]) -> tuple[Wanted[Spec], ...]:
    """Return what is watched from the start; `UsageError` if that is nothing."""
    grace = options.grace or None
    try:
        kinds = [KubernetesSpec(kind, options.namespace, options.fields, options.labels) for kind in options.source]
    except UsageError as error:
        raise UsageError(f"source: {error}") from None
    wanted: list[Wanted[Spec]] = [Wanted(spec, grace=grace) for spec in kinds]
    wanted += read_watches(options.watches, environment, "watches")
    if not wanted:
        raise UsageError("no initial sources configured; name a kind with -s, or other sources with --watches")
    return tuple(wanted)


def read_hooks(values: Iterable[Any], option: str, timeout: float) -> tuple[Hook, ...]:
    """Read hooks; `timeout` is for those that name none. A Python function is one, too."""
    hooks: list[Hook] = []
    for position, value in enumerate(values):
        try:
            hooks.append(_hook(value, timeout))
        except (UsageError, msgspec.ValidationError) as error:
            raise UsageError(f"{option}[{position}]: {_problem(error, HookFields)}") from None
    return tuple(hooks)


def read_outputs(value: Any) -> tuple[Output, ...]:
    """Read the directories to write to."""
    try:
        outputs = tuple(_output(each) for each in read_records(value, OutputFields))
    except (UsageError, msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UsageError(f"outputs: {_problem(error, OutputFields)}") from None
    for path, count in Counter(os.path.realpath(output.path) for output in outputs).items():
        if count > 1:
            raise UsageError(f"outputs: {count} of them are the directory {path}; give each a directory of its own")
    return outputs


def _problem(error: Exception, record: type[Struct]) -> str:
    """Return what is wrong; for an unknown member or value, with what was probably meant."""
    fields = structs.fields(record)
    choices = {field.encode_name: get_args(field.type) for field in fields if get_origin(field.type) is Literal}
    return explain(error, [field.encode_name for field in fields], choices)


def _hook(value: Any, timeout: float) -> Hook:
    if callable(value):
        return Hook(value, getattr(value, "__qualname__", type(value).__name__), timeout)
    if isinstance(value, str):
        return parse_hook(value, timeout=timeout)
    given = msgspec.convert(value, HookFields)
    targets = [text for text in (given.command, given.url, given.python and f"python:{given.python}") if text]
    if len(targets) != 1:
        raise UsageError("a hook has one of command, url and python")
    try:
        limit = timeout if given.timeout == "" else duration_or_seconds(given.timeout)
    except ValueError as error:
        raise UsageError(f"timeout: {error}") from None
    hook = parse_hook(targets[0], timeout=limit, on_failure=given.on_failure, name=given.name)
    return replace(hook, projection=Projection.from_config(given.projection))


def _output(given: OutputFields) -> Output:
    if not given.directory or not given.files:
        raise UsageError("an output has a directory, and at least one file")
    for name in given.files:
        if not is_file_name(name):
            raise UsageError(
                f"{name[:60]!r} cannot be the name of a file; leave out slashes, and dots at the beginning"
            )
    files = {name: (Projection.from_config(each, name), given.format) for name, each in given.files.items()}
    return Output(given.directory, files)
