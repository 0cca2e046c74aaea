"""The tree of errors that wigwag raises.

    WigwagError
    ├── UsageError                  wrong options or arguments
    │   ├── _UnknownSnapshotError   serve.management.debug: a snapshot that is not kept
    │   └── UnknownFlagError        serve.console.flags: a flag that does not exist, or that the caller may not see
    ├── StartError                  a process cannot start: a port in use, a certificate that cannot be read
    ├── DocumentError               a flag document was rejected as a whole; `findings` says what and where
    ├── SelectorError               a malformed flag selector
    ├── StateError                  the last good flags cannot be kept on disk, or what is there cannot be used
    ├── FlagError                   a dynamic flag refuses a value; what it held before stays
    │   └── StaticFlagError         a static flag refuses any value, because the program has read it already
    ├── RuleError                   a targeting rule cannot be evaluated; the flag answers PARSE_ERROR
    ├── RpcError                    wire.rpc: a call ends with another status than OK
    │   └── MalformedError          wire.rpcs.protobuf: bytes that are not a message
    ├── UnencodableError            wire.rpcs.struct: a value that no Struct can hold
    ├── FetchError                  wire.client.errors: an HTTP request of ours failed
    │   ├── UnreachableError        wire.client.errors: no address, no connection, or a proxy that refuses
    │   ├── UntrustedError          wire.client.errors: TLS failed
    │   ├── SlowError               wire.client.errors: a limit of time was reached
    │   ├── BrokenError             wire.client.errors: the answer is no HTTP, or breaks off
    │   ├── OversizeError           wire.client.errors: the answer is larger than the caller takes
    │   └── ForbiddenError          wire.client.errors: a redirect or an address that is not followed
    ├── ApiError                    kube.errors: the Kubernetes API server refused a request
    ├── UnknownKindError            kube.errors: the Kubernetes API server has no kind of this name
    ├── AccessError                 operator.controllers.access: a Role that the operator needs is somebody else's
    ├── PluginError                 kube.config.credentials: a plugin did not give credentials
    ├── HttpRefusedError            sources.remote.http: the server answered, but not with a document
    ├── ConsulRefusedError          sources.consul.access: Consul answered, but not what was asked for
    │   └── ConsulBusyError         sources.consul.access: Consul has too many requests or connections of this client
    ├── NoConsoleError              cli.commands.console: no console where it was looked for
    ├── HookError                   watt.hooks.hook: a call of a hook failed
    └── OutputError                 watt.outputs.directory: the output directory cannot be written

A class that needs what only one module knows is defined there; its line says where. All others are defined here.
Each class carries the OpenFeature code that a client sees; bad *input* is also a `ValueError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class WigwagError(Exception):
    """The root of the tree: catch this to catch all errors of wigwag."""

    code: ClassVar[str] = "GENERAL"
    exit_code: ClassVar[int] = 2


class UsageError(WigwagError, ValueError):
    """Wrong options on a command line, or wrong arguments of a call."""


class StartError(WigwagError):
    """A process cannot start."""

    exit_code = 1


class DocumentError(WigwagError, ValueError):
    """A flag document was rejected as a whole."""

    code = "PARSE_ERROR"

    def __init__(self, message: str, findings: Sequence[Any] = (), position: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.findings = tuple(findings)
        self.position = position
        """Line and column of the fault in the text, counted from 1, where they are known."""


class SelectorError(WigwagError, ValueError):
    """A malformed flag selector."""

    code = "GENERAL"


class StateError(WigwagError, ValueError):
    """The last good flags cannot be kept on disk, or what is there cannot be used."""

    def __init__(self, message: str, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version
        """The version of the format, if that is what is wrong."""


class FlagError(WigwagError, ValueError):
    """A dynamic flag refuses a value; what it held before stays."""

    code = "PARSE_ERROR"

    def __init__(self, flag: str, reason: str) -> None:
        super().__init__(f"flag {flag!r}: {reason}")
        self.flag, self.reason = flag, reason


class StaticFlagError(FlagError):
    """A static flag refuses any value, because the program has read it already."""


class RuleError(WigwagError):
    """A targeting rule cannot be evaluated."""

    code = "PARSE_ERROR"
