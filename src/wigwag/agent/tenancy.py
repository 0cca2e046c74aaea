"""Access rules of an agent: the options about them, and the files behind `--auth-tokens`, become one `AccessControl`.

The rules and the token files they name are a small pipeline of their own: watched like flags, and like flags the last
good ones stay when a file breaks. Until the rules have been read once, the agent refuses all requests and is not ready:
it never serves without access control because a file is missing.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from wigwag.errors import DocumentError, UsageError
from wigwag.observe import Gauge
from wigwag.pipeline.parse import parsed
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.pipeline.statuslog import log_statuses
from wigwag.serve.context import selector_of
from wigwag.serve.ofrep import named, wanted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from wigwag.agent.options import AgentOptions
    from wigwag.observe import Registry
    from wigwag.pipeline.spec import Unavailable, Unchanged
    from wigwag.serve.access.access import AccessControl, AccessPolicy
    from wigwag.serve.access.tokens import Rules, UnresolvedRule
    from wigwag.sources.disk.notify import Notifier
    from wigwag.wire.http import Handler
    from wigwag.wire.rpc import Call, Methods

    Value: TypeAlias = tuple[UnresolvedRule, ...] | tuple[bytes, ...]

LARGEST_RULES, LARGEST_TOKENS = 8 << 20, 1 << 16
TOKEN_GRACE_SECONDS = 1.0
"""How long the first rules wait for a token file; then its rule goes without."""
log = logging.getLogger("wigwag.agent")


@dataclass(frozen=True, slots=True)
class AccessFile:
    """A file of rules, or one of tokens by the name that a rule calls it."""

    path: str
    name: str = ""

    @property
    def most(self) -> int:
        """The largest size that is read, in bytes."""
        return LARGEST_TOKENS if self.name else LARGEST_RULES

    def __str__(self) -> str:
        return f"token file {self.path}" if self.name else f"access rules {self.path}"


class LoadedRules(Struct, frozen=True):
    """The rules in force, and the files that their tokens are in."""

    rules: Rules
    files: tuple[AccessFile, ...]


class Tenancy:
    """What the options ask of requests; `access` is None if that is nothing, and then its code is not loaded."""

    def __init__(self, options: AgentOptions, registry: Registry, notifier: Notifier | None = None) -> None:
        policy = policy_of(options)
        self.access: AccessControl | None = None
        self._streams: AccessControl | None = None
        self._pipeline: Pipeline[AccessFile, Value, LoadedRules] | None = None
        if policy is None:
            return
        from wigwag.serve.access.access import AccessControl, AccessPolicy, Refusals

        refusals = Refusals(registry)
        self.access = AccessControl(policy, refusals)
        if policy.slots is not None:
            self._streams = AccessControl(AccessPolicy(slots=policy.slots), refusals)
        if policy.known:
            _warn(options)
            rules = AccessFile(options.auth_tokens)
            contents = partial(_contents, notifier=notifier)
            self._pipeline = Pipeline(
                [Wanted(rules)], parsed(contents, _read), assemble, _files, key=lambda loaded: loaded.rules
            )
            registry.add(
                Gauge("wigwag_access_file_up", "Whether a file of rules or tokens is good.", self._up, ("file",))
            )

    def calls(self, methods: Methods, selection: Callable[[Call], str | None] = selector_of) -> Methods:
        """Return methods with access control, if there is any."""
        return methods if self.access is None else self.access.methods(methods, selection)

    def ofrep(self, handler: Handler) -> Handler:
        """Return the handler of OFREP with access control, if there is any."""
        return handler if self.access is None else self.access.handler(handler, wanted, named)

    @property
    def tokens(self) -> AccessControl | None:
        """Access control, if it knows callers by token or certificate."""
        return self.access if self._pipeline is not None else None

    def health(self, methods: Methods) -> Methods:
        """Return the methods of the management port, which asks for no token; but a stream is a stream."""
        return methods if self._streams is None else self._streams.methods(methods, lambda call: None)

    def ready(self) -> bool:
        """Return whether the access rules have been read, if there are any."""
        return self._pipeline is None or (self.access is not None and self.access.rules is not None)

    async def run(self) -> None:
        """Follow the rules, if there are any, until cancelled."""
        if self._pipeline is not None and self.access is not None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pipeline.run())
                tasks.create_task(self._adopt(self._pipeline, self.access))
                tasks.create_task(log_statuses(self._pipeline, _log_failure))

    async def _adopt(self, pipeline: Pipeline[AccessFile, Value, LoadedRules], access: AccessControl) -> None:
        async for loaded in pipeline.published:
            access.adopt(loaded.rules)
            known = {"tokens": len(loaded.rules.tokens), "certificates": len(loaded.rules.certificates)}
            log.info("access rules loaded", extra={"fields": known})

    def _up(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """What can be read is not yet in force: rules may contradict each other, and then none of the files is."""
        if self._pipeline is not None:
            report = self._pipeline.report()
            whole = report.error is None and self.ready()
            for status in report.statuses:
                yield (status.spec.path,), float(whole and status.state == "live")


def _log_failure(level: int, file: AccessFile, text: str) -> None:
    if level == logging.WARNING:
        log.warning("%s: %s; what was read before stays in force", file, text)


def policy_of(options: AgentOptions) -> AccessPolicy | None:
    """Return what the options ask of requests; None if that is nothing."""
    rate, burst, streams = options.rate_limit, options.rate_burst, options.max_streams_per_client
    if burst and not rate:
        raise UsageError("--rate-burst needs --rate-limit")
    if not (rate or streams or options.auth_tokens or options.require_selector):
        return None
    from wigwag.serve.access.access import AccessPolicy
    from wigwag.serve.access.throttle import Slots, Throttle

    return AccessPolicy(
        known=bool(options.auth_tokens),
        selector=options.require_selector,
        throttle=Throttle(rate, burst or rate) if rate else None,
        slots=Slots(streams) if streams else None,
    )


def assemble(values: Mapping[AccessFile, Value]) -> LoadedRules:
    """Put the tokens that are in files into the rules."""
    from wigwag.serve.access.tokens import UnresolvedRule, compile_rules

    drafts = [draft for value in values.values() for draft in value if isinstance(draft, UnresolvedRule)]
    (rules,) = (file for file in values if not file.name)
    paths = {draft.file: str(Path(rules.path).parent / draft.file) for draft in drafts if draft.file}
    tokens = {
        file.name: tuple(item for item in value if isinstance(item, bytes))
        for file, value in values.items()
        if file.name
    }
    try:
        compiled = compile_rules(drafts, tokens)
    except DocumentError as error:
        raise DocumentError(f"{rules}: {error}") from None
    return LoadedRules(compiled, tuple(AccessFile(path, name) for name, path in paths.items()))


def check_rules(path: str) -> None:
    """Read the rules and the files of their tokens once; a `DocumentError` says which cannot be used, and why."""
    rules = AccessFile(path)
    values = {rules: _looked(rules)}
    values |= {file: _looked(file) for file in assemble(values).files}
    assemble(values)


def _looked(file: AccessFile) -> Value:
    from wigwag.sources.disk.read import read

    try:
        return _read(file, read(file.path, file.most))
    except (DocumentError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DocumentError(f"{file}: {reason}") from None


async def _files(loaded: LoadedRules) -> list[Wanted[AccessFile]]:
    return [Wanted(file, grace=TOKEN_GRACE_SECONDS) for file in loaded.files]


def _contents(file: AccessFile, notifier: Notifier | None) -> AsyncIterator[bytes | Unavailable | Unchanged]:
    from wigwag.sources.disk.file import FileWatch, watch_file
    from wigwag.sources.disk.follow import FollowDeps

    return watch_file(FileWatch(file.path, file.most), FollowDeps(notifier=notifier))


def _read(file: AccessFile, content: bytes) -> Value:
    from wigwag.serve.access.tokens import read_rules, read_tokens

    return read_tokens(content) if file.name else read_rules(content)


def _warn(options: AgentOptions) -> None:
    plain = "on OFREP (--ofrep-tls)" if options.server_cert_path else "on any port (--server-cert-path)"
    if not options.ofrep_tls:
        log.warning("tokens are not encrypted %s: let only trusted networks, or a proxy with TLS, reach it", plain)
    if options.debug_endpoints:
        log.warning(
            "--debug-endpoints shows all flags to every client that reaches the management port, without a token"
        )
