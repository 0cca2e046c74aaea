"""The sources of an agent: the elements of `--sources`, and what the pod needs for them.

A FeatureFlag with a `remoteFlagProvider` is two sources: the remote's goes before its own if local definitions win, and
behind it if the remote's do. The Secret of a remote is mounted, and `--sources` has the directory.

A bearer token from a Secret is read from its mount, too. The original's image cannot do that: there it is a variable of
the container, and `--sources` refers to it as `$(NAME)`, which the kubelet replaces. So the token is in no object but
the Secret, with any image.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as replace_needs
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Struct, convert
from msgspec import field as member
from msgspec.structs import replace

from wigwag.kube.kinds import is_object_name
from wigwag.operator.injection.known import refusal
from wigwag.operator.injection.permission import not_served
from wigwag.operator.injection.proxytrust import (
    AGENT_DIRECTORY,
    AUTHORITY,
    CA_FILE,
    TOKEN_FILE,
    is_authenticated,
    proxy_host,
)
from wigwag.operator.injection.verdict import FORBIDDEN, INTERNAL, Denied
from wigwag.operator.names import (
    CREDENTIALS,
    ObjectName,
    config_map_name,
    credentials_volume_name,
    parse_name,
)
from wigwag.operator.remoteflags import borrowed_problem, element
from wigwag.operator.resources.featureflagsource import BLOBS, FILE, FLAG_PROVIDERS, FLAGD_PROXY, GRPC, HTTP, KUBERNETES
from wigwag.operator.resources.kubernetes import EnvVar
from wigwag.operator.resources.remoteflagprovider import MERGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec, SourceEntry
    from wigwag.operator.resources.remoteflagprovider import RemoteFlagProvider
    from wigwag.operator.settings import OperatorSettings

Json: TypeAlias = Any
GROUP = "core.openfeature.dev"
PROXY_PATIENCE = 180.0
_NOT_READY = "flagd-proxy is not ready, deferring pod admission"


class AgentSource(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An element of `--sources`; empty members are left out, and the order is that of the original."""

    uri: str
    provider: str
    bearer_token: str = ""
    auth_header: str = ""
    cert_path: str = ""
    tls: bool = False
    provider_id: str = member(default="", name="providerID")
    selector: str = ""
    interval: int = 0
    optional: bool = False
    token_file: str = ""
    credentials_folder: str = ""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """One source as the agent gets it, and what the pod needs for it."""

    source: AgentSource
    mount: ObjectName | None = None
    """A FeatureFlag whose ConfigMap has to be mounted."""
    reads_api: bool = False
    """Whether the agent reads the FeatureFlag from the API server."""
    variable: EnvVar | None = None
    """The agent's own, from a Secret."""
    secret: str = ""
    """A Secret that the agent reads from its mount."""
    proxy_access: bool = False
    """Whether the agent needs a token for the proxy, and its CA."""
    warning: str = ""


class NamedRemote(NamedTuple):
    """A FeatureFlag that a source names, and its remote."""

    flag: ObjectName
    usable: RemoteFlagProvider | None
    problem: str = ""
    """Why there is one that is not used."""


def is_original(image: str) -> bool:
    """Tell whether an agent's image is that of the original, or a mirror of it: by the last part of its name.

    >>> is_original("ghcr.example/open-feature/flagd"), is_original("registry.test/flagd/wigwag")
    (True, False)
    """
    return "flagd" in image.rpartition("/")[2]


def credential_volumes(needs: Iterable[Needs]) -> dict[str, dict[str, Json]]:
    """Return the volumes of Secrets, by where they are mounted. A Secret that is missing keeps no pod from starting."""
    secrets = dict.fromkeys(each.secret for each in needs if each.secret)
    return {
        f"{CREDENTIALS}/{name}": {
            "name": credentials_volume_name(name),
            "secret": {"secretName": name, "optional": True},
        }
        for name in secrets
    }


@dataclass(frozen=True, kw_only=True)
class SourceResolver:
    """Resolves the sources of pods in one namespace, at one moment."""

    namespace: str
    known: KnownObjects = field(repr=False)
    settings: OperatorSettings
    now: float = 0.0
    awaited: tuple[ObjectName, ...] = ()
    """FeatureFlags that need not exist yet."""
    image: str = ""
    """The agent's, if it is not that of sidecars."""

    @property
    def agent_image(self) -> str:
        """The image of the agents that get the sources."""
        return self.image or self.settings.sidecar.image

    def resolve(self, spec: FeatureFlagSourceSpec) -> list[Needs] | Denied:
        """Return what every source needs, or why one of them cannot be used."""
        needs = []
        for position, entry in enumerate(spec.sources):
            named = entry if entry.provider else replace(entry, provider=spec.default_sync_provider)
            resolved = _PROVIDERS.get(named.provider, _unrecognized)(self, named, position)
            if isinstance(resolved, Denied):
                return resolved
            needs += self._with_remote(resolved, named)
        return needs

    def remote_of(self, entry: SourceEntry, default_provider: str = "") -> NamedRemote:
        """Return the remote of the FeatureFlag that a source names, if pods of the namespace may use it."""
        flag = parse_name(entry.source, self.namespace)
        is_flag = (entry.provider or default_provider) in FLAG_PROVIDERS
        remote = self.known.remote_provider(flag) if is_flag else None
        if remote is None or flag.namespace == self.namespace or not (problem := borrowed_problem(remote)):
            return NamedRemote(flag, remote)
        what = f"remoteFlagProvider of FeatureFlag {flag}, which is in another namespace"
        return NamedRemote(flag, None, f"{what}, is not used: {problem}")

    def _with_remote(self, local: Needs, entry: SourceEntry) -> list[Needs]:
        """Return a source, and beside it the remote of the FeatureFlag that it names; the later one wins."""
        _, remote, problem = self.remote_of(entry)
        if remote is None:
            return [replace_needs(local, warning=problem) if problem else local]
        secret, source = remote.credentials.secret if remote.credentials else "", convert(element(remote), AgentSource)
        is_unread = secret and is_original(self.agent_image)
        warning = f"the agent's image is flagd's, which asks {remote.uri} without the Secret {secret}"
        further = Needs(source=source, secret=secret, warning=warning if is_unread else "")
        return [further, local] if remote.strategy == MERGE else [local, further]

    def flag(self, entry: SourceEntry, *, exists: bool) -> ObjectName | Denied:
        """Return the FeatureFlag that a source names, if pods of the namespace may use it."""
        name = parse_name(entry.source, self.namespace)
        about = self.known.feature_flag(name)
        policy = self.settings.options.cross_namespace
        unserved = not_served("FeatureFlag", name, self.settings)
        if refused := unserved or refusal("FeatureFlag", name, about, self.namespace, policy):
            return refused
        wrong = about is None and not is_object_name(name.name)
        if wrong or (exists and about is None and name not in self.awaited):
            reason = f'featureflags.{GROUP} "{name.name}" not found'
            return Denied(INTERNAL, f"could not retrieve featureflag {name}: {reason}; create it, or correct `source`")
        return name

    def proxy_refusal(self) -> Denied | None:
        """Return why the proxy cannot be used yet."""
        proxy = self.known.proxy()
        if proxy is not None and proxy.ready_replicas:
            return None
        if proxy is None or self.now - proxy.created <= PROXY_PATIENCE:
            return Denied(FORBIDDEN, _NOT_READY)
        created = datetime.fromtimestamp(proxy.created, UTC).isoformat()
        return Denied(FORBIDDEN, f"flagd-proxy not ready after 3 minutes, was created at {created}: {_NOT_READY}")


Resolved: TypeAlias = Needs | Denied


def _kubernetes(resolver: SourceResolver, entry: SourceEntry, _position: int) -> Resolved:
    name = resolver.flag(entry, exists=True)
    if isinstance(name, Denied):
        return name
    return Needs(source=AgentSource(uri=str(name), provider=KUBERNETES), reads_api=True)


def _file(resolver: SourceResolver, entry: SourceEntry, _position: int) -> Resolved:
    name = resolver.flag(entry, exists=True)
    if isinstance(name, Denied):
        return name
    config_map = ObjectName(resolver.namespace, config_map_name(name, resolver.namespace))
    if resolver.known.is_foreign_config_map(config_map):
        reason = (
            f"the provider `file` needs the ConfigMap {config_map} for FeatureFlag {name}, but it is not the operator's"
        )
        return Denied(FORBIDDEN, f"{reason}; it stays as it is: rename one of them, or use another provider")
    return Needs(source=AgentSource(uri=f"{name.directory}/{name.file}", provider=FILE), mount=name)


def _http(resolver: SourceResolver, entry: SourceEntry, position: int) -> Resolved:
    token, variable, warning = entry.http_sync_bearer_token, None, ""
    if (secret := entry.http_sync_bearer_token_secret) and not is_original(resolver.agent_image):
        path = f"{CREDENTIALS}/{secret.name}/{secret.key}"
        source = AgentSource(uri=entry.source, provider=HTTP, token_file=path, interval=entry.interval)
        return Needs(source=source, secret=secret.name)
    if secret:
        name = f"FLAGD_SOURCE_{position}_TOKEN"
        reference = {"secretKeyRef": {"name": secret.name, "key": secret.key}}
        token, variable = f"$({name})", EnvVar(name, value_from=reference)
    elif token:
        warning = f"the bearer token of source {entry.source} is readable in the pod; use httpSyncBearerTokenSecret"
    header = f"Bearer {token}" if token else ""
    source = AgentSource(
        uri=entry.source, provider=HTTP, bearer_token=token, auth_header=header, interval=entry.interval
    )
    return Needs(source=source, variable=variable, warning=warning)


def _grpc(_resolver: SourceResolver, entry: SourceEntry, _position: int) -> Resolved:
    return Needs(
        source=AgentSource(
            uri=entry.source,
            provider=GRPC,
            cert_path=entry.cert_path,
            tls=entry.tls,
            provider_id=entry.provider_id,
            selector=entry.selector,
        )
    )


def _blob(_resolver: SourceResolver, entry: SourceEntry, _position: int) -> Resolved:
    return Needs(source=AgentSource(uri=entry.source, provider=entry.provider, interval=entry.interval))


def _flagd_proxy(resolver: SourceResolver, entry: SourceEntry, _position: int) -> Resolved:
    name = resolver.flag(entry, exists=False)
    if isinstance(name, Denied):
        return name
    if refused := resolver.proxy_refusal():
        return refused
    settings = resolver.settings
    source = AgentSource(uri=f"{proxy_host(settings)}:{settings.proxy.port}", provider=GRPC, selector=f"{GROUP}/{name}")
    if not is_authenticated(settings):
        return Needs(source=source)
    if resolver.known.is_foreign_authority(ObjectName(resolver.namespace, AUTHORITY)):
        reason = f"flagd-proxy needs the ConfigMap {resolver.namespace}/{AUTHORITY}, but it is not the operator's"
        return Denied(FORBIDDEN, f"{reason}; it stays as it is: rename it")
    ca, token = f"{AGENT_DIRECTORY}/{CA_FILE}", f"{AGENT_DIRECTORY}/{TOKEN_FILE}"
    return Needs(source=replace(source, tls=True, cert_path=ca, token_file=token), proxy_access=True)


def _unrecognized(_resolver: SourceResolver, entry: SourceEntry, _position: int) -> Resolved:
    known = ", ".join(_PROVIDERS)
    return Denied(INTERNAL, f"could not add provider {entry.provider}: unrecognized sync provider; use one of {known}")


_PROVIDERS: dict[str, Callable[[SourceResolver, SourceEntry, int], Resolved]] = {
    KUBERNETES: _kubernetes,
    FILE: _file,
    HTTP: _http,
    GRPC: _grpc,
    FLAGD_PROXY: _flagd_proxy,
    **dict.fromkeys(BLOBS, _blob),
}
