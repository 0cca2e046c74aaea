"""Everything a service needs for its flags, in two calls.

    parser = argparse.ArgumentParser()
    dflag.install(parser, flags)        --config-dir, --config-port, --loglevel, …, and an option for each flag
    with dflag.service(flags, parser.parse_args()) as running:
        serve()

A bad value at the start does not stop the program: as in the original, it is logged as critical. That is the safer
default: a mistake in a ConfigMap then affects one flag of the pods that start after it; otherwise none of them would
start, for example when a node is drained. Unlike in the original, all good values are set, and the others as soon as
they are corrected. With `--config-strict`, the program does not start.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.dflag.frontends.arguments import add_to, teach
from wigwag.dflag.startup.levels import loglevel, show_log
from wigwag.dflag.startup.load import load_environment, load_files
from wigwag.dflag.startup.options import OPTIONS, ServiceOptions, given
from wigwag.dflag.updating.policy import Policy
from wigwag.dflag.updating.record import SHOWN
from wigwag.errors import FlagError, StartError, UsageError
from wigwag.options import HIGHEST_PORT, port_number, words

if TYPE_CHECKING:
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.page.access import Access
    from wigwag.dflag.page.server import PageServer
    from wigwag.dflag.updating.updater import Updater
    from wigwag.options import Declared

log = logging.getLogger("wigwag.dflag")


class Running(NamedTuple):
    """What `service` has started."""

    updater: Updater | None
    page: PageServer | None


def install(parser: argparse.ArgumentParser, flags: FlagSet) -> None:
    """Add the options of `service` to a parser, and one for each flag, the log level among them.

    >>> import argparse
    >>> from wigwag import dflag
    >>> flags, parser = dflag.FlagSet("example"), argparse.ArgumentParser()
    >>> dflag.install(parser, flags)
    >>> parser.parse_args(["--config-dir", "/etc/a", "-config-dir=/etc/b", "--config-port=8080"])
    Namespace(config_dir=['/etc/a', '/etc/b'], config_documents=[], config_port=8080, config_bind='127.0.0.1', \
config_token_file=None, config_strict=False)
    """
    loglevel(flags)
    add_to(parser, flags)
    group = parser.add_argument_group("configuration")
    for option in OPTIONS:
        group.add_argument(option.long, help=option.help, **_argument(option))
    teach(parser, {option.long[2:]: (option.long, option.long) for option in OPTIONS})


def _argument(option: Declared) -> dict[str, Any]:
    """Return the keywords of an option for argparse."""
    if option.switch:
        return {"action": "store_true"}
    if option.convert is words:
        return {"metavar": option.metavar, "action": "append", "default": []}
    kind = _port if option.convert is port_number else str
    return {"metavar": option.metavar, "default": option.default, "type": kind}


def _port(text: str) -> int:
    if text.isdecimal() and len(text) <= 5 and int(text) <= HIGHEST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port; write a number from 0 to {HIGHEST_PORT}")


@contextmanager
def service(
    flags: FlagSet,
    options: ServiceOptions | argparse.Namespace,
    *,
    environment: Mapping[str, str] | None = None,
    prefix: str = "",
    policy: Policy = Policy(),  # noqa: B008 - a frozen value
    access: Access | None = None,
) -> Iterator[Running]:
    """Read the flags, follow the ConfigMaps and serve the page, until the end of the block.

    With a prefix such as `SHOP_`, variables with it are read from `environment`, or `os.environ`. So are the files that
    flags with a `path_flag` name. `policy` is for the ConfigMaps (its `unknown` also for variables with the prefix),
    `access` for the page, instead of a file with a token. If it cannot start, it raises `StartError`; but if
    the options are the result of a parser, the program exits with one line. Log records go to stderr, unless there is a
    handler.

    >>> import tempfile, pathlib
    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate, size = flags.int("rate", 10), flags.int("size", 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "rate").write_text("20")
    ...     options = dflag.ServiceOptions(config_dir=[folder])
    ...     with dflag.service(flags, options, environment={"APP_SIZE": "5"}, prefix="APP_") as running:
    ...         rate.get(), size.get(), running.updater.errors, running.page
    (20, 5, 0, None)
    """
    wanted = options if isinstance(options, ServiceOptions) else given(vars(options))
    with ExitStack() as stack:
        stack.enter_context(show_log())
        with _exiting(wanted.command_line):
            _load(flags, wanted, environment, prefix, policy)
            updater = _updater(flags, wanted, replace(policy, tolerant=policy.tolerant or not wanted.config_strict))
            if updater is not None:
                stack.callback(updater.stop)
            page = _page(flags, wanted, updater, access)
            if page is not None:
                stack.callback(page.stop)
        flags.freeze()
        yield Running(updater, page)


@contextmanager
def _exiting(command_line: bool) -> Iterator[None]:
    """Exit with one line if the start fails, for a command line."""
    try:
        yield
    except (StartError, UsageError) as error:
        if not command_line:
            raise
        raise SystemExit(f"error: {error}") from error


def _load(
    flags: FlagSet, options: ServiceOptions, environment: Mapping[str, str] | None, prefix: str, policy: Policy
) -> None:
    if environment is None and prefix:
        environment = os.environ
    if environment is not None:
        task = partial(load_environment, flags, environment, prefix, unknown=policy.unknown)
        _attempt(options.config_strict, task)
    _attempt(options.config_strict, partial(load_files, flags))


def _attempt(strict: bool, task: Callable[[], None]) -> None:
    try:
        task()
    except (FlagError, StartError, UsageError) as error:
        if strict:
            raise StartError(f"cannot start: {error}") from error
        log.critical("%s; starting without it", error)


def _updater(flags: FlagSet, options: ServiceOptions, policy: Policy) -> Updater | None:
    if not options.config_dir:
        return None
    from wigwag.dflag.updating.updater import place_of, setup

    documents = tuple(options.config_documents)
    updater = setup(flags, *(place_of(each, documents) for each in options.config_dir), policy=policy)
    wrong = [problem.where for problem in updater.problems if problem.level == "error"]
    if wrong:
        where = ", ".join(wrong[:SHOWN]) + (", …" if len(wrong) > SHOWN else "")
        log.critical("starting in spite of %d error%s: %s", len(wrong), "s" if len(wrong) > 1 else "", where)
    return updater


def _page(flags: FlagSet, options: ServiceOptions, updater: Updater | None, access: Access | None) -> PageServer | None:
    if options.config_port is None:
        return None
    from wigwag.dflag.page.access import Access
    from wigwag.dflag.page.server import PageServer
    from wigwag.dflag.page.site import Site

    file = options.config_token_file
    if access is None and file is not None:
        _attempt(options.config_strict, lambda: _check_token(file))
        access = Access(token_file=file)
    page = PageServer(Site(flags, updater, access), options.config_bind, options.config_port)
    page.start()
    log.info("the page of the flags is at %s", page.url)
    return page


def _check_token(file: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise StartError(f"the token to set flags with cannot be read: {file}: {error.strerror}") from error
