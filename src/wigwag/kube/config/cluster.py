"""The API server to use: its URL, TLS settings and credentials, found as `kubectl` and flagd find them.

    an explicit kubeconfig ─▶ KUBECONFIG ─▶ the service account of the pod ─▶ ~/.kube/config

The records name files and do not read them: a pod's token and CA are replaced while the process runs. What is wrong
with a kubeconfig by itself is an error here, before any request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from wigwag.errors import UsageError
from wigwag.kube.config.kubeconfig import LARGEST, ClusterEntry, ExecEntry, Kubeconfig, Located, UserEntry, merged
from wigwag.kube.config.tls import ClusterTrust
from wigwag.wire.client.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wigwag.wire.h1.client import Fields

T = TypeVar("T")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster entry that is meant for plugins."""
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Plugin:
    """A program that issues credentials (`exec` in a kubeconfig)."""

    api: str
    command: str
    """A name on the PATH, or a path."""
    arguments: tuple[str, ...] = field(default=(), repr=False)
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    hint: str = ""
    """How to install it."""
    cluster: str = field(default="", repr=False)
    """The cluster as JSON, if the plugin wants it; empty: it does not."""


@dataclass(frozen=True, slots=True)
class KubeUser:
    """The credentials of a user, beside a client certificate."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    """Takes precedence over `token`. Read for every request, because tokens are rotated."""
    basic: str = field(default="", repr=False)
    """`name:password`."""
    plugin: Plugin | None = None
    impersonation: Fields = ()
    """The `Impersonate-*` headers."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server, and how to connect to it."""

    server: str
    trust: ClusterTrust = ClusterTrust()
    user: KubeUser = KubeUser()
    namespace: str = ""
    """The default namespace; empty: none is configured."""
    proxy: str = field(default="", repr=False)
    """The HTTP proxy for this server; empty: that of the environment."""

    def __post_init__(self) -> None:
        try:
            parse_url(self.server)
        except UsageError as error:
            raise UsageError(f"the cluster's server: {error}") from None
        if self.proxy and not self.proxy.startswith("http://"):
            raise UsageError("the cluster's proxy-url: only http:// proxies are supported")


def find_cluster(
    environment: Mapping[str, str], path: str = "", context: str = "", account: str = ACCOUNT, home: str = ""
) -> Cluster:
    """Return the cluster to use. `path`: an explicit kubeconfig; `account`: the folder of a pod's service account."""
    if path:
        return from_files([path], context)
    named = [each for each in environment.get("KUBECONFIG", "").split(":") if each]
    if named:
        return from_files(named, context, skip=True)
    if not context and in_a_pod(environment, account):
        return from_account(environment, account)
    own = Path(home or environment.get("HOME", ""), ".kube", "config")
    if own.is_absolute() and own.exists():
        return from_files([str(own)], context)
    raise UsageError("no Kubernetes is configured: set KUBECONFIG, write ~/.kube/config, or run in a pod")


def from_files(paths: Sequence[str], context: str = "", *, skip: bool = False) -> Cluster:
    """Read kubeconfig files. With `skip`, some may be missing, but not all."""
    files = [(path, text) for path in paths if (text := _read(path, skip)) is not None]
    if not files:
        raise UsageError(f"{':'.join(paths)}: no such file; KUBECONFIG must name at least one that exists")
    return choose(merged(files), context)


def in_a_pod(environment: Mapping[str, str], account: str = ACCOUNT) -> bool:
    """Return whether this process runs in a pod with a service account."""
    there = environment.get("KUBERNETES_SERVICE_HOST") and environment.get("KUBERNETES_SERVICE_PORT")
    return bool(there) and Path(account, "token").exists()


def from_account(environment: Mapping[str, str], account: str = ACCOUNT) -> Cluster:
    """Return the cluster of this pod."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    authority = Path(account, "ca.crt")
    return Cluster(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ClusterTrust(str(authority) if authority.exists() else ""),
        user=KubeUser(token_file=str(Path(account, "token"))),
        namespace=_namespace(Path(account, "namespace")),
    )


def _namespace(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_LONGEST_NAME + 1).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _read(path: str, skip: bool) -> bytes | None:
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        if skip:
            return None
        raise UsageError(f"{path}: no such file; name the kubeconfig that you mean") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a kubeconfig that can be read") from None
    if len(text) > LARGEST:
        raise UsageError(f"{path}: larger than {LARGEST} bytes; a kubeconfig is much smaller")
    return text


def choose(config: Kubeconfig, context: str = "") -> Cluster:
    """Return the cluster of a context, or of the current one."""
    name = context or config.current
    if not name:
        raise UsageError("the kubeconfig has no current-context; set it (`kubectl config use-context`), or name one")
    chosen = _find(config.contexts, name, "context", "the kubeconfig")
    names, place = chosen.entry, f"{chosen.file}: {chosen.title}"
    cluster = _find(config.clusters, names.cluster, "cluster", place)
    user = Located(UserEntry(), chosen.file, chosen.title)
    if names.user:
        user = _find(config.users, names.user, "user", place)
    trust, kube_user = _trust(cluster, user), _user(cluster, user)
    try:
        return Cluster(cluster.entry.server.rstrip("/"), trust, kube_user, names.namespace, cluster.entry.proxy_url)
    except UsageError as error:
        raise cluster.error(str(error)) from None


def _find(entries: Mapping[str, Located[T]], name: str, what: str, place: str) -> Located[T]:
    if name not in entries:
        raise UsageError(f"{place} has no {what} {name!r}; check the name, and KUBECONFIG")
    return entries[name]


def _trust(cluster: Located[ClusterEntry], user: Located[UserEntry]) -> ClusterTrust:
    server, client = cluster.entry, user.entry
    if server.insecure_skip_tls_verify and (server.certificate_authority or server.certificate_authority_data):
        raise cluster.error("certificate-authority and insecure-skip-tls-verify exclude each other; leave one out")
    certificate = client.client_certificate or client.client_certificate_data
    if bool(certificate) != bool(client.client_key or client.client_key_data):
        raise user.error("a client certificate needs its key, and a key its certificate; give both")
    return ClusterTrust(
        cluster.path(server.certificate_authority),
        user.path(client.client_certificate),
        user.path(client.client_key),
        cluster.pem(server.certificate_authority_data, "certificate-authority-data"),
        user.pem(client.client_certificate_data, "client-certificate-data"),
        user.pem(client.client_key_data, "client-key-data"),
        server.tls_server_name,
        server.insecure_skip_tls_verify,
    )


def _user(cluster: Located[ClusterEntry], user: Located[UserEntry]) -> KubeUser:
    own = user.entry
    if own.auth_provider is not None:
        raise user.error("auth-provider is no longer supported by Kubernetes; use the plugin (exec) of your provider")
    impersonation = [("Impersonate-User", own.as_), ("Impersonate-Uid", own.as_uid)]
    impersonation += [("Impersonate-Group", group) for group in own.as_groups]
    return KubeUser(
        own.token,
        user.path(own.token_file),
        f"{own.username}:{own.password}" if own.username else "",
        _plugin(own.exec_, cluster.entry, user) if own.exec_ else None,
        tuple(pair for pair in impersonation if pair[1]),
    )


def _plugin(entry: ExecEntry, cluster: ClusterEntry, user: Located[UserEntry]) -> Plugin:
    if entry.api_version not in VERSIONS:
        raise user.error(f"exec: apiVersion must be {VERSIONS[0]} or v1beta1; update what wrote this kubeconfig")
    if not entry.command:
        raise user.error("exec: has no command; name the program that gives credentials")
    if entry.interactive_mode == "Always":
        raise user.error("exec: interactiveMode is Always, but nobody can answer; use a plugin that is not interactive")
    pairs = tuple((pair.get("name", ""), pair.get("value", "")) for pair in entry.env)
    if any(not name or "=" in name or "\0" in name + value for name, value in pairs):
        raise user.error("exec: env has a variable without a proper name; give `name` and `value`")
    command = user.path(entry.command) if "/" in entry.command else entry.command
    info = _cluster_info(cluster) if entry.provide_cluster_info else ""
    return Plugin(entry.api_version, command, tuple(entry.args), pairs, entry.install_hint, info)


def _cluster_info(cluster: ClusterEntry) -> str:
    """Return the cluster as a plugin gets it."""
    extra = next((each.get("extension") for each in cluster.extensions if each.get("name") == EXTENSION), None)
    members = msgspec.to_builtins(replace(cluster, certificate_authority="", extensions=[]))
    return msgspec.json.encode(members | ({"config": extra} if extra else {})).decode()
