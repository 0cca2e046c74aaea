"""Kubeconfig files: parsed, and several merged into one.

Of clusters, users and contexts with the same name the first wins, as for kubectl; null means not set. Each entry
remembers its file, because the paths in it are relative to that. An error names the file and the entry. It never quotes
a value: most of them are secret.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from wigwag.errors import DocumentError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
LARGEST = 8 << 20
"""The largest kubeconfig that is read, in bytes."""
DEEPEST = 200
"""The deepest nesting of one."""


@dataclass(frozen=True, slots=True)
class Located(Generic[T]):
    """An entry, and where it is: for errors, and for the relative paths in it."""

    entry: T
    file: str
    title: str

    def error(self, reason: str) -> UsageError:
        """Make an error that names this entry."""
        return UsageError(f"{self.file}: {self.title}: {reason}")

    def path(self, given: str) -> str:
        """Return a path that was written here."""
        return str(PurePath(self.file).parent / given) if given else ""

    def pem(self, data: str, name: str) -> str:
        """Decode text that was written here as base64."""
        try:
            return base64.b64decode("".join(data.split()), validate=True).decode("ascii")
        except (binascii.Error, ValueError):
            raise self.error(f"{name} is not base64 of PEM; write the output of `base64 < FILE`") from None


class ClusterEntry(Struct, rename="kebab", omit_defaults=True):
    """A cluster as it is written."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] = []


class ExecEntry(Struct, rename="camel"):
    """A plugin as it is written."""

    api_version: str = ""
    command: str = ""
    args: list[str] = []
    env: list[dict[str, str]] = []
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class UserEntry(Struct, rename="kebab"):
    """A user as it is written."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    as_: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    exec_: ExecEntry | None = msgspec.field(default=None, name="exec")
    auth_provider: dict[str, Any] | None = None


class ContextEntry(Struct):
    """Which user connects to which cluster."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedEntry(Struct):
    """A cluster, a user or a context, and its name."""

    name: str = ""
    cluster: ClusterEntry = msgspec.field(default_factory=ClusterEntry)
    user: UserEntry = msgspec.field(default_factory=UserEntry)
    context: ContextEntry = msgspec.field(default_factory=ContextEntry)


class KubeconfigFile(Struct, rename="kebab"):
    """One file."""

    current_context: str = ""
    clusters: list[NamedEntry] = []
    users: list[NamedEntry] = []
    contexts: list[NamedEntry] = []


@dataclass(slots=True)
class Kubeconfig:
    """All files together."""

    current: str = ""
    clusters: dict[str, Located[ClusterEntry]] = field(default_factory=dict)
    users: dict[str, Located[UserEntry]] = field(default_factory=dict)
    contexts: dict[str, Located[ContextEntry]] = field(default_factory=dict)


def merged(files: Iterable[tuple[str, bytes]]) -> Kubeconfig:
    """Merge several files, the most important first: entries that are there already stay."""
    config = Kubeconfig()
    for path, text in files:
        file = _read(path, text)
        config.current = config.current or file.current_context
        for each in file.clusters:
            config.clusters.setdefault(each.name, Located(each.cluster, path, f"cluster {each.name!r}"))
        for each in file.users:
            config.users.setdefault(each.name, Located(each.user, path, f"user {each.name!r}"))
        for each in file.contexts:
            config.contexts.setdefault(each.name, Located(each.context, path, f"context {each.name!r}"))
    return config


def _read(path: str, text: bytes) -> KubeconfigFile:
    from wigwag.yaml import Bounds, load  # costs an import that a process in a pod never needs

    try:
        value = _without_null(load(text, Bounds(LARGEST, DEEPEST)))
        return msgspec.convert(value or {}, KubeconfigFile)
    except (DocumentError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: not a kubeconfig: {error}") from None


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(member) for key, member in value.items() if member is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value
