"""Where the API server is, whom to believe, and how to prove who we are: as records, made from a kubeconfig.

Nothing is read here: files are named, or their content was in the kubeconfig itself. What can be told to be wrong
without asking anybody is told here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec

from wigwag.errors import UsageError
from wigwag.kube.config.kubeconfig import ClusterEntry, ExecEntry, Kubeconfig, KubeconfigEntry, Located, UserEntry
from wigwag.kube.config.tls import ClusterTrust
from wigwag.wire.client.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.wire.h1.client import Fields

T = TypeVar("T")
VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXTENSION = "client.authentication.k8s.io/exec"
"""Where a cluster keeps what is meant for plugins alone."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A program that tells who we are."""

    api: str
    command: str
    """A name to be found on the PATH, or a path."""
    arguments: tuple[str, ...] = field(default=(), repr=False)
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    hint: str = ""
    """How to install it."""
    cluster: str = field(default="", repr=False)
    """What it is told about the cluster, as JSON; empty: nothing."""


@dataclass(frozen=True, slots=True)
class KubeUser:
    """How we prove who we are, beside a client certificate."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    """Goes before the token. It is read for every request, because tokens are rotated."""
    basic: str = field(default="", repr=False)
    """`name:password`."""
    plugin: Plugin | None = None
    pretence: Fields = ()
    """The fields by which we ask to be taken for somebody else."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server, and how to talk to it."""

    server: str
    trust: ClusterTrust = ClusterTrust()
    user: KubeUser = KubeUser()
    namespace: str = ""
    """The namespace that is meant when none is named; empty: none was configured."""
    proxy: str = field(default="", repr=False)
    """The proxy that this server is asked by; empty: what the environment says."""

    def __post_init__(self) -> None:
        try:
            parse_url(self.server)
        except UsageError as error:
            raise UsageError(f"the cluster's server: {error}") from None
        if self.proxy and not self.proxy.startswith("http://"):
            raise UsageError("the cluster's proxy-url: only proxies that are asked by http:// are supported")


def choose(config: Kubeconfig, context: str = "") -> Cluster:
    """Return the cluster of a context, or of the current one."""
    name = context or config.current
    if not name:
        raise UsageError("the kubeconfig has no current-context; set it (`kubectl config use-context`), or name one")
    chosen = _find(config.contexts, name, "context", "the kubeconfig")
    about, place = chosen.entry, f"{chosen.place.file}: {chosen.place.entry}"
    cluster = _find(config.clusters, about.cluster, "cluster", place)
    user = _find(config.users, about.user, "user", place) if about.user else Located(UserEntry(), chosen.place)
    trust, proves = _trust(cluster, user), _user(cluster, user)
    try:
        return Cluster(cluster.entry.server.rstrip("/"), trust, proves, about.namespace, cluster.entry.proxy_url)
    except UsageError as error:
        raise cluster.place.wrong(str(error)) from None


def _find(entries: Mapping[str, Located[T]], name: str, what: str, place: str) -> Located[T]:
    if name not in entries:
        raise UsageError(f"{place} has no {what} {name!r}; check the name, and KUBECONFIG")
    return entries[name]


def _trust(cluster: Located[ClusterEntry], user: Located[UserEntry]) -> ClusterTrust:
    about, here, own, there = cluster.entry, cluster.place, user.entry, user.place
    if about.insecure_skip_tls_verify and (about.certificate_authority or about.certificate_authority_data):
        raise here.wrong("certificate-authority and insecure-skip-tls-verify exclude each other; leave one out")
    if bool(own.client_certificate or own.client_certificate_data) != bool(own.client_key or own.client_key_data):
        raise there.wrong("a client certificate needs its key, and a key its certificate; give both")
    return ClusterTrust(
        here.path(about.certificate_authority),
        there.path(own.client_certificate),
        there.path(own.client_key),
        here.pem(about.certificate_authority_data, "certificate-authority-data"),
        there.pem(own.client_certificate_data, "client-certificate-data"),
        there.pem(own.client_key_data, "client-key-data"),
        about.tls_server_name,
        about.insecure_skip_tls_verify,
    )


def _user(cluster: Located[ClusterEntry], user: Located[UserEntry]) -> KubeUser:
    own, there = user.entry, user.place
    if own.auth_provider is not None:
        raise there.wrong("auth-provider is no longer supported by Kubernetes; use the plugin (exec) of your provider")
    pretence = [("Impersonate-User", own.as_), ("Impersonate-Uid", own.as_uid)]
    pretence += [("Impersonate-Group", group) for group in own.as_groups]
    return KubeUser(
        own.token,
        there.path(own.token_file),
        f"{own.username}:{own.password}" if own.username else "",
        _plugin(own.exec_, cluster.entry, there) if own.exec_ else None,
        tuple(pair for pair in pretence if pair[1]),
    )


def _plugin(entry: ExecEntry, cluster: ClusterEntry, there: KubeconfigEntry) -> Plugin:
    if entry.api_version not in VERSIONS:
        raise there.wrong(f"exec: apiVersion must be {VERSIONS[0]} or v1beta1; update what wrote this kubeconfig")
    if not entry.command:
        raise there.wrong("exec: has no command; name the program that gives credentials")
    if entry.interactive_mode == "Always":
        raise there.wrong("exec: interactiveMode is Always, but there is nobody to ask; use a plugin that needs nobody")
    pairs = tuple((pair.get("name", ""), pair.get("value", "")) for pair in entry.env)
    if any(not name or "=" in name or "\0" in name + value for name, value in pairs):
        raise there.wrong("exec: env has a variable without a proper name; give `name` and `value`")
    command = there.path(entry.command) if "/" in entry.command else entry.command
    told = _told(cluster) if entry.provide_cluster_info else ""
    return Plugin(entry.api_version, command, tuple(entry.args), pairs, entry.install_hint, told)


def _told(about: ClusterEntry) -> str:
    """Return what a plugin is told about a cluster."""
    extra = next((each.get("extension") for each in about.extensions if each.get("name") == EXTENSION), None)
    found = {
        "server": about.server,
        "tls-server-name": about.tls_server_name,
        "insecure-skip-tls-verify": about.insecure_skip_tls_verify,
        "certificate-authority-data": about.certificate_authority_data,
        "proxy-url": about.proxy_url,
        "config": extra,
    }
    return msgspec.json.encode({key: value for key, value in found.items() if value}).decode()
