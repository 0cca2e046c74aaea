"""What a service needs to have its flags driven from outside, in two calls.

    parser = argparse.ArgumentParser()
    dflag.install(parser, flags)        --config-dir, --config-port, --loglevel, …, and an option for each flag
    with dflag.service(flags, parser.parse_args()) as running:
        serve()

A flag that is wrong at the start does not stop the program, as in the original, which logs that as critical and goes
on. That is the kinder default: a mistake in a ConfigMap then spoils one flag of the pods that start after it, where a
refusal would keep all of them from coming up, on the day somebody drains a node. Unlike the original, all that is good
is taken, and the rest as soon as it is mended. `--config-strict` is for those who would rather not start.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wigwag.dflag.frontends.arguments import add_to, teach
from wigwag.dflag.levels import loglevel
from wigwag.dflag.load import load_environment, load_files
from wigwag.dflag.updating.plan import Policy
from wigwag.dflag.updating.record import SHOWN
from wigwag.errors import FlagError, StartError

if TYPE_CHECKING:
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.page.access import Access
    from wigwag.dflag.page.server import PageServer
    from wigwag.dflag.updating.updater import Updater

log = logging.getLogger("wigwag.dflag")
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What the options of `install` say; for programs that have theirs from elsewhere.

    >>> ServiceOptions(config_dir=["/etc/dflag"]).config_bind
    '127.0.0.1'
    """

    config_dir: Sequence[str] = ()
    """Where ConfigMaps are mounted, or `configmap/NAMESPACE/NAME`; the last counts most."""
    config_port: int | None = None
    """Where the page of the flags is served; 0 is any port that is free, None is no page."""
    config_bind: str = "127.0.0.1"
    """The address that it is served at."""
    config_token_file: str | None = None
    """The file with the token that whoever sets a flag there must have; without one, flags can only be looked at."""
    config_strict: bool = False
    """Whether not to start if a flag is wrong."""


class Running(NamedTuple):
    """What was started."""

    updater: Updater | None
    page: PageServer | None


def install(parser: argparse.ArgumentParser, flags: FlagSet) -> None:
    """Add an option for each flag to a parser, the log level among them, and those that `service` asks for.

    >>> import argparse
    >>> from wigwag import dflag
    >>> flags, parser = dflag.FlagSet("example"), argparse.ArgumentParser()
    >>> dflag.install(parser, flags)
    >>> parser.parse_args(["--config-dir", "/etc/a", "-config-dir=/etc/b", "--config-port=8080"])
    Namespace(config_dir=['/etc/a', '/etc/b'], config_port=8080, config_bind='127.0.0.1', config_token_file=None, \
config_strict=False)
    """
    loglevel(flags)
    add_to(parser, flags)
    group = parser.add_argument_group("configuration")
    place, page = "a directory with a ConfigMap in it, or configmap/NAMESPACE/NAME", "the page of the flags"
    group.add_argument("--config-dir", action="append", metavar="PLACE", default=[], help=f"{place}; may be repeated")
    group.add_argument("--config-port", type=_port, metavar="PORT", help=f"serve {page} here; 0 is any that is free")
    group.add_argument("--config-bind", metavar="ADDRESS", default="127.0.0.1", help=f"where {page} is served")
    group.add_argument("--config-token-file", metavar="FILE", help=f"holds the token to set flags with on {page}")
    group.add_argument("--config-strict", action="store_true", help="do not start if a flag is wrong")
    names = (field.name.replace("_", "-") for field in fields(ServiceOptions))
    teach(parser, {name: (f"--{name}", f"--{name}") for name in names})


def _port(text: str) -> int:
    if text.isdecimal() and len(text) <= 5 and int(text) <= _HIGHEST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port; write a number from 0 to {_HIGHEST_PORT}")


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
    """Read the flags from wherever they are, follow the ConfigMaps, serve the page; until the end of the block.

    The environment is read if it is given: `environment=os.environ, prefix="SHOP_"`. So are the files that flags with
    a `path_flag` name. `policy` is for the ConfigMaps, and `access` for the page, instead of a file with a token.

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
    wanted = options if isinstance(options, ServiceOptions) else _read(options)
    strict = wanted.config_strict
    if environment is not None:
        _attempt(strict, lambda: load_environment(flags, environment, prefix))
    _attempt(strict, lambda: load_files(flags))
    with ExitStack() as stack:
        updater = _updater(flags, wanted, replace(policy, tolerant=policy.tolerant or not strict))
        if updater is not None:
            stack.callback(updater.stop)
        page = _page(flags, wanted, updater, access)
        if page is not None:
            stack.callback(page.stop)
        flags.freeze()
        yield Running(updater, page)


def _read(options: argparse.Namespace) -> ServiceOptions:
    """Return the options of a namespace; what is not in it has its default."""
    names = [field.name for field in fields(ServiceOptions)]
    return ServiceOptions(
        **{name: getattr(options, name) for name in names if getattr(options, name, None) is not None}
    )


def _attempt(strict: bool, task: Callable[[], None]) -> None:
    try:
        task()
    except (FlagError, StartError) as error:
        if strict:
            raise StartError(f"cannot start: {error}") from error
        log.critical("%s; going on without", error)


def _updater(flags: FlagSet, options: ServiceOptions, policy: Policy) -> Updater | None:
    if not options.config_dir:
        return None
    from wigwag.dflag.updating.begin import setup

    updater = setup(flags, *options.config_dir, policy=policy)
    errors = [str(problem) for problem in updater.problems if problem.level == "error"]
    if errors:
        log.critical("going on though %d of the flags are wrong: %s", len(errors), "; ".join(errors[:SHOWN]))
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
