"""ConsulResolvers: Kubernetes objects that say which services of Consul to watch. Built in, no hook needed.

    ConfigMap, annotated getambassador.io/consul-resolver   data: consulAddress, datacenter, service (or services)
    ConsulResolver of wigwag.dev                            spec: address, datacenter, services: [{name, tag, filter}]
    ConsulResolver of getambassador.io                      spec: address, datacenter
    any object with spec.resolver and spec.service          refers to a ConsulResolver by name, and to a service of it

Only services that somebody refers to are watched, never all that Consul has. What an object asks for is read when it
arrives; a change of one object costs that object, not a pass over all of them.

Whoever may write such an object chooses where we connect. So an address may name only variables of the environment that
hold addresses, and our Consul token goes only to the address that our own environment names. An object that cannot be
used is reported with its name, and the others are not affected. What one object may name is limited, and so is what all
of them together do.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from wigwag.errors import UsageError
from wigwag.pipeline.spec import Wanted
from wigwag.sources.consul.endpoints import EndpointsWatch
from wigwag.sources.consul.instances import check_service
from wigwag.watt.snapshots.snapshot import changed_keys
from wigwag.watt.watches.specs import ConsulSpec
from wigwag.watt.watches.watchset import GRACE, MOST_WATCHES, consul_access, expand, explain, variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wigwag.sources.consul.access import ConsulAccess
    from wigwag.watt.snapshots.snapshot import Key, TableName, WatchPart, WattSnapshot
    from wigwag.watt.watches.specs import Spec

ANNOTATION = "getambassador.io/consul-resolver"
GROUPS = ("wigwag.dev", "getambassador.io")
MOST_SERVICES = 1_000
"""Services that one object may name; the schema of ours has the same limit."""
_ADDRESSES = re.compile(r"\w*(_IP|_HOST|_ADDR|_ADDRESS|_PORT)")
"""The variables that an address may name."""
_ENDINGS = "_IP, _HOST, _ADDR, _ADDRESS or _PORT"
_SECRETS = (
    "CONSUL_HTTP_TOKEN",
    "CONSUL_HTTP_TOKEN_FILE",
    "CONSUL_HTTP_AUTH",
    "CONSUL_CLIENT_CERT",
    "CONSUL_CLIENT_KEY",
)
_SERVICE = re.compile(r"(?:\w+://)?([\w.-]+)(?::\d+)?/?")
_HINTS = (ANNOTATION.encode(), b'"ConsulResolver"', b'"resolver"')
_ALL = "all resolvers"
_Text: TypeAlias = Annotated[str, Meta(max_length=128)]
_Name: TypeAlias = Annotated[str, Meta(max_length=253)]
_Address: TypeAlias = Annotated[str, Meta(max_length=512)]
log = logging.getLogger("wigwag.watt")


class ServiceReference(Struct, frozen=True):
    """A service that a resolver names. The limits of texts are those of the schema."""

    name: _Name
    tag: _Name = ""
    filter: Annotated[str, Meta(max_length=1024)] = ""


class ResolverSpec(Struct, frozen=True):
    """The `spec` of a ConsulResolver, or of an object that refers to one."""

    address: _Address = ""
    datacenter: _Text = ""
    namespace: _Text = ""
    partition: _Text = ""
    services: tuple[ServiceReference, ...] = ()
    resolver: _Name = ""
    service: _Address = ""


class ResolverMetadata(Struct, frozen=True):
    """The metadata that count here."""

    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] = {}


class ResolverObject(Struct, frozen=True, rename="camel"):
    """An object that may be a resolver, or refer to one."""

    api_version: str = ""
    kind: str = ""
    metadata: ResolverMetadata = ResolverMetadata()
    spec: ResolverSpec | None = None
    data: dict[str, str] = field(default_factory=dict)


_object = msgspec.json.Decoder(ResolverObject).decode


@dataclass(frozen=True, slots=True)
class ConsulResolver:
    """Where a resolver leads, and the watches of the services that it names itself."""

    name: str
    """Empty: nothing can refer to it."""
    namespace: str
    access: ConsulAccess
    specs: tuple[Spec, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolverReference:
    """An object that names a resolver, and a service of it."""

    resolver: str
    namespace: str
    service: str


class Resolvers:
    """Reads resolvers and references from snapshots, and returns the Consul watches that follow from them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._seen: dict[TableName, WatchPart] = {}
        self._known: dict[TableName, dict[Key, ConsulResolver | ResolverReference]] = {}
        self.wanted: tuple[Wanted[Spec], ...] = ()
        self.problems: dict[str, str] = {}
        """What is wrong with which object."""

    def __call__(self, snapshot: WattSnapshot) -> tuple[Wanted[Spec], ...]:
        """Return the watches; the same tuple as long as no resolver and no reference has changed."""
        tables = {name: part for name, part in snapshot.tables.items() if name.section == "Kubernetes"}
        gone = [name for name in self._seen if name not in tables]
        changed = [self._forget(name) for name in gone]
        changed += [self._read(name, part) for name, part in tables.items() if self._seen.get(name) is not part]
        if any(changed):
            self.wanted = tuple(Wanted(spec, grace=GRACE) for spec in self._limited(dict.fromkeys(self._specs())))
        return self.wanted

    def _limited(self, specs: dict[Spec, None]) -> Iterator[Spec]:
        self.problems.pop(_ALL, None)
        if len(specs) > MOST_WATCHES:
            self._report(_ALL, f"{len(specs)} services are more than the limit of {MOST_WATCHES}", "the last ones are")
        return islice(specs, MOST_WATCHES)

    def _forget(self, name: TableName) -> bool:
        for key in self._seen.pop(name).entries:
            self.problems.pop(_title(name, key), None)
        return bool(self._known.pop(name, None))

    def _read(self, name: TableName, part: WatchPart) -> bool:
        """Read the objects of a table that have changed; return whether a resolver or reference is among them."""
        before = self._seen.get(name)
        known = self._known.setdefault(name, {})
        changed = False
        for key in changed_keys({} if before is None else before.entries, part.entries):
            entry = part.entries.get(key)
            title = _title(name, key)
            self.problems.pop(title, None)
            meaning = None if entry is None else self._understood(entry.body, title)
            if meaning != known.get(key):
                changed = True
                known.pop(key, None)
                known |= {key: meaning} if meaning is not None else {}
        self._seen[name] = part
        return changed

    def _understood(self, body: bytes, title: str) -> ConsulResolver | ResolverReference | None:
        if not any(hint in body for hint in _HINTS):
            return None
        try:
            return self._meaning(_object(body))
        except (msgspec.MsgspecError, UsageError, RecursionError) as error:
            if any(hint in body for hint in _HINTS[:2]):
                self._report(title, explain(error, ()), "its services are")
            return None

    def _report(self, title: str, problem: str, affected: str) -> None:
        self.problems[title] = problem
        log.warning("%s: %s; %s not watched", title, problem, affected)

    def _meaning(self, given: ResolverObject) -> ConsulResolver | ResolverReference | None:
        metadata, spec, group = given.metadata, given.spec, given.api_version.partition("/")[0]
        if given.kind == "ConfigMap":
            if ANNOTATION not in metadata.annotations:
                return None
            names = f"{given.data.get('service', '')} {given.data.get('services', '')}".replace(",", " ").split()
            where = {"address": given.data.get("consulAddress", ""), "datacenter": given.data.get("datacenter", "")}
            services = [{"name": name} for name in dict.fromkeys(names)]
            spec = msgspec.convert({**where, "services": services}, ResolverSpec)
            return self._resolver("", metadata.namespace, spec)
        if spec is not None and given.kind == "ConsulResolver" and group in GROUPS:
            return self._resolver(metadata.name, metadata.namespace, spec)
        if spec is not None and spec.resolver and (match := _SERVICE.fullmatch(spec.service)):
            check_service(match[1])
            return ResolverReference(spec.resolver, metadata.namespace, match[1])
        return None

    def _resolver(self, name: str, namespace: str, spec: ResolverSpec) -> ConsulResolver:
        if len(spec.services) > MOST_SERVICES:
            raise UsageError(f"it names {len(spec.services)} services, and the limit is {MOST_SERVICES}; divide it")
        access = self._access(spec)
        return ConsulResolver(name, namespace, access, tuple(_spec(access, each) for each in spec.services))

    def _access(self, spec: ResolverSpec) -> ConsulAccess:
        allowed = {name: value for name, value in self._environment.items() if _ADDRESSES.fullmatch(name)}
        address = expand(spec.address, allowed)
        settings: dict[str, Any] = {name: getattr(spec, name) for name in ("datacenter", "namespace", "partition")}
        try:
            access = consul_access(address, self._environment, **settings)
        except UsageError as error:
            refused = [name for name in variables(spec.address) if not _ADDRESSES.fullmatch(name)]
            if not refused:
                raise
            why = f"it names {refused[0]}; a variable must end in {_ENDINGS}"
            raise UsageError(f"the address {spec.address!r} cannot be used: {why}") from error
        if access.server == consul_access("", self._environment).server:  # with TLS if the environment says so
            return access
        without = {name: value for name, value in self._environment.items() if name not in _SECRETS}
        return consul_access(address, without, **settings)

    def _specs(self) -> Iterator[Spec]:
        everything = [each for table in self._known.values() for each in table.values()]
        named: dict[str, dict[str, ConsulResolver]] = {}
        for resolver in everything:
            if isinstance(resolver, ConsulResolver):
                named.setdefault(resolver.name, {}).setdefault(resolver.namespace, resolver)
                yield from resolver.specs
        for reference in everything:
            if isinstance(reference, ResolverReference) and (by_namespace := named.get(reference.resolver)):
                chosen = by_namespace.get(reference.namespace) or by_namespace[min(by_namespace)]
                yield _spec(chosen.access, ServiceReference(reference.service))


def _spec(access: ConsulAccess, service: ServiceReference) -> Spec:
    return ConsulSpec(EndpointsWatch(access, service.name, service.tag, service.filter), access.datacenter)


def _title(table: TableName, key: Key) -> str:
    return f"{table.name} {'/'.join(filter(None, key))}"
