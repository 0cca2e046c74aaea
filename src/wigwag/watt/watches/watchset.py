"""What to watch, as people and hooks write it: the original's WatchSet, and a generic form for every kind of source.

    {"kubernetes-watches": [{"kind", "namespace", "field-selector", "label-selector"}],      the original's
     "consul-watches": [{"id", "consul-address", "datacenter", "service-name"}],
     "watches": [{"source": "kubernetes" | "consul" | "consul-kv" | "directory" | "uri", …}]}  ours; config files, too

An unknown field makes the whole set an error, as in the original: half a watch set would stop half of the watches.
`$VAR` and `${VAR}` in a Consul address are replaced from the environment here, before specs are compared; otherwise a
hook that writes the variable and one that writes its value would name two watches.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct, structs

from wigwag.errors import UsageError
from wigwag.golang import seconds
from wigwag.pipeline.spec import Wanted
from wigwag.sources.consul.access import ConsulAccess, locate
from wigwag.sources.consul.endpoints import EndpointsWatch
from wigwag.suggest import suggest
from wigwag.watt.watches.specs import ConsulSpec, DirectorySpec, DocumentSpec, KeysSpec, KubernetesSpec, Spec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

MOST_WATCHES = 10_000
GRACE = 30.0
"""How long the first snapshot waits for a derived watch, in seconds. An initial one is waited for without end."""
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_PLACE = re.compile(r" - at `(.*)`$")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")
_Text = Annotated[str, Meta(max_length=4096)]


class V1Kubernetes(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A Kubernetes watch of the original."""

    kind: _Text = ""
    namespace: _Text = ""
    field_selector: _Text = ""
    label_selector: _Text = ""


class V1Consul(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A Consul watch of the original."""

    id: _Text = ""
    consul_address: _Text = ""
    datacenter: _Text = ""
    service_name: _Text = ""


class WatchFields(Struct, forbid_unknown_fields=True, rename="kebab", tag_field="source", kw_only=True):
    """What every watch of the generic form may have."""

    required: bool = True
    """Whether the first snapshot waits for it."""
    grace: _Text = ""
    """How long the first snapshot waits, as a Go duration."""


class KubernetesFields(WatchFields, tag="kubernetes", kw_only=True):
    """Objects of a kind, in some namespaces or in all."""

    kind: _Text
    namespace: _Text = ""
    namespaces: list[_Text] = []
    labels: _Text = ""
    fields: _Text = ""
    metadata_only: bool = False
    ignore: list[_Text] = []


class AccessFields(WatchFields, kw_only=True):
    """How to reach Consul; what is missing comes from the variables of Consul's tools."""

    address: _Text = ""
    datacenter: _Text = ""
    namespace: _Text = ""
    partition: _Text = ""
    token_file: _Text = ""
    ca_file: _Text = ""
    client_cert: _Text = ""
    client_key: _Text = ""
    consistency: _Text = ""
    tls: bool = False


class ConsulFields(AccessFields, tag="consul", kw_only=True):
    """The endpoints of a service."""

    service: _Text
    tag: _Text = ""
    filter: _Text = ""
    passing: bool = True
    id: _Text = ""


class KeysFields(AccessFields, tag="consul-kv", kw_only=True):
    """Keys of Consul."""

    key: _Text


class DirectoryFields(WatchFields, tag="directory", kw_only=True):
    """The files of a directory."""

    path: _Text


class UriFields(WatchFields, tag="uri", kw_only=True):
    """The document at a URI of any kind of source."""

    uri: _Text


AnyFields: TypeAlias = KubernetesFields | ConsulFields | KeysFields | DirectoryFields | UriFields


class WatchSet(Struct, forbid_unknown_fields=True, rename="kebab"):
    """A whole set."""

    kubernetes_watches: list[V1Kubernetes] | None = None
    consul_watches: list[V1Consul] | None = None
    watches: list[AnyFields] | None = None


_RECORDS = (V1Kubernetes, V1Consul, WatchSet, *get_args(AnyFields))
_NAMES = sorted({field.encode_name for record in _RECORDS for field in structs.fields(record)})


def read_watch_set(text: bytes, environment: Mapping[str, str]) -> tuple[Wanted[Spec], ...]:
    """Read what a hook has answered; `UsageError` says what is wrong, and where.

    >>> text = b'{"consul-watches": [{"consul-address": "$IP", "service-name": "a"}]}'
    >>> [want] = read_watch_set(text, {"IP": "10.0.0.1"})
    >>> print(want.spec, want.grace)
    consul 10.0.0.1:8500|*|a 30.0
    """
    try:
        watch_set = msgspec.json.decode(text, type=WatchSet)
        specs = [_wanted(fields, environment, GRACE) for fields in watch_set.watches or ()]
        specs += [[_v1_kubernetes(each)] for each in watch_set.kubernetes_watches or ()]
        specs += [[_v1_consul(each, environment)] for each in watch_set.consul_watches or ()]
    except (msgspec.MsgspecError, UsageError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(f"the watch set cannot be used: {explain(error)}") from None
    return _limited(specs)


def read_watches(value: Any, environment: Mapping[str, str], option: str) -> tuple[Wanted[Spec], ...]:
    """Read the watches of a config file, or of JSON text; `option` names where they come from."""
    try:
        elements = msgspec.json.decode(value) if isinstance(value, str | bytes) and value else value or []
        watches = msgspec.convert(elements, list[AnyFields])
        return _limited([_wanted(fields, environment, None) for fields in watches])
    except (msgspec.MsgspecError, UsageError, RecursionError) as error:
        raise UsageError(f"{option}: {explain(error)}") from None


def explain(error: BaseException, known: Collection[str] = _NAMES) -> str:
    """Return what is wrong with a record; for an unknown field, with the known one that was probably meant.

    >>> try: read_watch_set(b'{"kubernetes-watches": [{"knd": "service"}]}', {})
    ... except UsageError as error: print(error)
    the watch set cannot be used: $.kubernetes-watches[0]: unknown field `knd`; did you mean `kind`?
    """
    place = _PLACE.search(str(error))
    text = str(error) if place is None else f"{place[1]}: {str(error)[: place.start()]}"
    unknown = _UNKNOWN.search(text)
    if unknown is None:
        return text
    remark = suggest(unknown[1], known) or "check its spelling"
    return f"{text.replace('Object contains ', '')}; {remark}"


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace `$VAR` and `${VAR}`; a variable that is not set is empty, as in a shell.

    >>> expand("${HOST}:$PORT", {"HOST": "consul", "PORT": "8500"})
    'consul:8500'
    """
    return _VARIABLE.sub(lambda match: environment.get(match[1] or match[2], ""), text)


def consul_access(address: str, environment: Mapping[str, str], **settings: Any) -> ConsulAccess:
    """Return how to reach Consul at an address (HOST:PORT, with or without `http://`); empty: the environment's."""
    scheme, separator, host = address.rpartition("://")
    if separator and scheme not in ("http", "https"):
        raise UsageError(f"{address!r} is not an address of Consul; write HOST:PORT")
    return locate(f"consul{'s' * (scheme == 'https')}://{host.rstrip('/')}/", environment, **settings).access


def _wanted(fields: AnyFields, environment: Mapping[str, str], grace: float | None) -> list[Wanted[Spec]]:
    try:
        limit = seconds(fields.grace) if fields.grace else grace
    except ValueError as error:
        raise UsageError(f"grace: {error}") from None
    return [Wanted(spec, fields.required, limit) for spec in _specs(fields, environment)]


def _specs(fields: AnyFields, environment: Mapping[str, str]) -> Iterator[Spec]:
    if isinstance(fields, KubernetesFields):
        for namespace in fields.namespaces or [fields.namespace]:
            yield KubernetesSpec(
                fields.kind, namespace, fields.fields, fields.labels, fields.metadata_only, tuple(fields.ignore)
            )
    elif isinstance(fields, ConsulFields):
        watch = EndpointsWatch(_access(fields, environment), fields.service, fields.tag, fields.filter, fields.passing)
        yield ConsulSpec(watch, fields.id)
    elif isinstance(fields, KeysFields):
        yield KeysSpec(_access(fields, environment), fields.key)
    elif isinstance(fields, DirectoryFields):
        yield DirectorySpec(fields.path)
    else:
        from wigwag.sources.kinds import read_source  # most processes never need the registry of sources

        yield DocumentSpec(read_source(fields.uri))


def _access(fields: AccessFields, environment: Mapping[str, str]) -> ConsulAccess:
    return consul_access(
        expand(fields.address, environment),
        environment,
        datacenter=fields.datacenter,
        namespace=fields.namespace,
        partition=fields.partition,
        token_file=fields.token_file,
        ca_path=fields.ca_file,
        cert_path=fields.client_cert,
        key_path=fields.client_key,
        consistency=fields.consistency,
        tls=fields.tls,
    )


def _v1_kubernetes(given: V1Kubernetes) -> Wanted[Spec]:
    spec = KubernetesSpec(given.kind, given.namespace, given.field_selector, given.label_selector)
    return Wanted(spec, grace=GRACE)


def _v1_consul(given: V1Consul, environment: Mapping[str, str]) -> Wanted[Spec]:
    access = consul_access(expand(given.consul_address, environment), environment, datacenter=given.datacenter)
    return Wanted(ConsulSpec(EndpointsWatch(access, given.service_name), given.id), grace=GRACE)


def _limited(specs: list[list[Wanted[Spec]]]) -> tuple[Wanted[Spec], ...]:
    wanted = tuple(want for wants in specs for want in wants)
    if len(wanted) > MOST_WATCHES:
        raise UsageError(f"{len(wanted)} watches are more than the limit of {MOST_WATCHES}; name fewer")
    return wanted
