"""What to watch, as people and hooks write it: the original's WatchSet, and a generic form for every kind of source.

    {"kubernetes-watches": [{"kind", "namespace", "field-selector", "label-selector"}],      the original's
     "consul-watches": [{"id", "consul-address", "datacenter", "service-name"}],
     "watches": [{"source": "kubernetes" | "consul" | "consul-kv" | "directory" | "uri", …}]}  ours; config files, too

An unknown field makes the whole set an error, as in the original: half a watch set would stop half of the watches.
`$VAR` and `${VAR}` in a Consul address are replaced from the environment here, before specs are compared; otherwise a
hook that writes the variable and one that writes its value would name two watches.
"""

from __future__ import annotations

import logging
import re
from functools import cache, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct, structs

from wigwag.errors import UsageError
from wigwag.options import duration_or_seconds
from wigwag.pipeline.spec import Wanted
from wigwag.sources.consul.access import ConsulAccess, locate
from wigwag.sources.consul.endpoints import EndpointsWatch
from wigwag.suggest import suggest
from wigwag.watt.watches.specs import ConsulSpec, DirectorySpec, DocumentSpec, KeysSpec, KubernetesSpec, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    Access: TypeAlias = Callable[..., ConsulAccess]
    """Reads an address and settings of Consul."""

T = TypeVar("T")
MOST_WATCHES = 10_000
GRACE = 30.0
"""How long the first snapshot waits for a derived watch, in seconds. An initial one is waited for without end."""
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_INVALID = re.compile(r"Invalid (?:enum )?value '([^']*+)'")
_HOST = re.compile(r"[^\s/?#\\]*")
"""A host and port, or none; also with a name and a password before it."""
_Text = Annotated[str, Meta(max_length=4096)]
log = logging.getLogger("wigwag.watt")


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
    grace: _Text | float = ""
    """How long the first snapshot waits: seconds, or a Go duration; empty: the default."""


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
_CHOICES = {"source": [str(record.__struct_config__.tag) for record in get_args(AnyFields)]}


def read_watch_set(text: bytes, environment: Mapping[str, str]) -> tuple[Wanted[Spec], ...]:
    """Read what a hook has answered; `UsageError` says what is wrong, and where.

    >>> text = b'{"consul-watches": [{"consul-address": "$IP", "service-name": "a"}]}'
    >>> [want] = read_watch_set(text, {"IP": "10.0.0.1"})
    >>> print(want.spec, want.grace)
    consul 10.0.0.1:8500|*|a 30.0
    """
    try:
        given, access = msgspec.json.decode(text, type=WatchSet), _accesses(environment)
        return _limited(
            _placed("$.watches", given.watches, partial(_wanted, access=access, grace=GRACE)),
            _placed("$.kubernetes-watches", given.kubernetes_watches, _v1_kubernetes),
            _placed("$.consul-watches", given.consul_watches, partial(_v1_consul, access=access)),
        )
    except (msgspec.MsgspecError, UsageError, RecursionError, UnicodeError) as error:
        raise UsageError(f"not a watch set: {explain(error)}") from None


def read_watches(value: Any, environment: Mapping[str, str], option: str) -> tuple[Wanted[Spec], ...]:
    """Read the watches of a config file, or of JSON text; `option` names where they come from."""
    try:
        watches = read_records(value, AnyFields)
        return _limited(_placed("$", watches, partial(_wanted, access=_accesses(environment), grace=None)))
    except (msgspec.MsgspecError, UsageError, RecursionError, UnicodeError) as error:
        raise UsageError(f"{option}: {explain(error)}") from None


def read_records(value: Any, record: Any) -> list[Any]:
    """Return the records of a list, which is JSON text or comes from a config file."""
    elements = msgspec.json.decode(value) if isinstance(value, str | bytes) and value else value or []
    return msgspec.convert(elements, list[record])


def explain(
    error: BaseException, known: Collection[str] = _NAMES, choices: Mapping[str, Collection[str]] = _CHOICES
) -> str:
    """Return what is wrong with a record; for an unknown field or value, with what was probably meant.

    >>> try: read_watch_set(b'{"kubernetes-watches": [{"knd": "service"}]}', {})
    ... except UsageError as error: print(error)
    not a watch set: $.kubernetes-watches[0]: unknown field `knd`; did you mean `kind`?
    """
    reason, placed, place = str(error).rpartition(" - at `")
    text = f"{place.removesuffix('`')}: {reason}" if placed else str(error)
    invalid = _INVALID.search(text)
    if invalid is not None and (values := choices.get(place.removesuffix("`").rpartition(".")[2])):
        hint = suggest(invalid[1], values) or f"one of {', '.join(values)}"
        return f"{text}; {hint}"
    _, unknown, name = text.partition("Object contains unknown field `")
    if not unknown:
        return text
    remark = suggest(name.partition("`")[0], known) or "check its spelling"
    return f"{text.replace('Object contains ', '')}; {remark}"


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace `$VAR` and `${VAR}`; a variable that is not set is empty, as in a shell.

    >>> expand("${HOST}:$PORT", {"HOST": "consul", "PORT": "8500"})
    'consul:8500'
    """
    return _VARIABLE.sub(lambda match: environment.get(match[1] or match[2], ""), text)


def variables(text: str) -> list[str]:
    """Return the names of the variables in a text.

    >>> variables("${HOST}:$PORT")
    ['HOST', 'PORT']
    """
    return [match[1] or match[2] for match in _VARIABLE.finditer(text)]


def consul_access(address: str, environment: Mapping[str, str], **settings: Any) -> ConsulAccess:
    """Return how to reach Consul at an address (HOST:PORT, with or without `http://`); empty: the environment's.

    An address may come from whoever may write an object. It must not have the options of a `consul://` URI: they name
    files whose content is sent to that address. Variables are replaced in it already, so it is not shown.
    """
    scheme, separator, rest = address.rpartition("://")
    host = rest.rstrip("/")
    if (separator and scheme not in ("http", "https")) or not _HOST.fullmatch(host):
        raise UsageError("the address of Consul is malformed; write HOST:PORT, with or without http:// or https://")
    return locate(f"consul{'s' * (scheme == 'https')}://{host}/", environment, **settings).access


def _placed(
    place: str, elements: Iterable[T] | None, read: Callable[[T], Iterable[Wanted[Spec]]]
) -> Iterator[Wanted[Spec]]:
    """Yield what elements stand for; an error says which of them is wrong."""
    for position, element in enumerate(elements or ()):
        try:
            yield from read(element)
        except UsageError as error:
            raise UsageError(f"{place}[{position}]: {error}") from None


def _accesses(environment: Mapping[str, str]) -> Access:
    """Return what reads an address, with variables in it. Most watches of a set are of one agent: it is read once."""
    return cache(lambda address, **settings: consul_access(expand(address, environment), environment, **settings))


def _wanted(fields: AnyFields, access: Access, grace: float | None) -> Iterator[Wanted[Spec]]:
    try:
        limit = grace if fields.grace == "" else duration_or_seconds(fields.grace)
    except ValueError as error:
        raise UsageError(f"grace: {error}") from None
    return (Wanted(spec, fields.required, limit) for spec in _specs(fields, access))


def _specs(fields: AnyFields, access: Access) -> Iterator[Spec]:
    if isinstance(fields, KubernetesFields):
        for namespace in fields.namespaces or [fields.namespace]:
            yield KubernetesSpec(
                fields.kind, namespace, fields.fields, fields.labels, fields.metadata_only, tuple(fields.ignore)
            )
    elif isinstance(fields, ConsulFields):
        watch = EndpointsWatch(_access(fields, access), fields.service, fields.tag, fields.filter, fields.passing)
        yield ConsulSpec(watch, fields.id)
    elif isinstance(fields, KeysFields):
        from wigwag.sources.consul.keys import ConsulWatch  # which brings what reads flags

        yield KeysSpec(ConsulWatch(_access(fields, access), fields.key))
    elif isinstance(fields, DirectoryFields):
        yield DirectorySpec(fields.path)
    else:
        from wigwag.sources.kinds import prepare, read_source  # most processes never need the registry of sources

        source = read_source(fields.uri)
        prepare([source], log.warning)
        yield DocumentSpec(source)


def _access(fields: AccessFields, access: Access) -> ConsulAccess:
    return access(
        fields.address,
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


def _v1_kubernetes(given: V1Kubernetes) -> Iterator[Wanted[Spec]]:
    spec = KubernetesSpec(given.kind, given.namespace, given.field_selector, given.label_selector)
    yield Wanted(spec, grace=GRACE)


def _v1_consul(given: V1Consul, access: Access) -> Iterator[Wanted[Spec]]:
    watch = EndpointsWatch(access(given.consul_address, datacenter=given.datacenter), given.service_name)
    yield Wanted(ConsulSpec(watch, given.id), grace=GRACE)


def _limited(*wanted: Iterator[Wanted[Spec]]) -> tuple[Wanted[Spec], ...]:
    """Read no more than the limit: a list of namespaces is short for a watch of each."""
    specs = tuple(islice(chain(*wanted), MOST_WATCHES + 1))
    if len(specs) > MOST_WATCHES:
        raise UsageError(f"there are more than {MOST_WATCHES} watches, which is the limit; name fewer")
    return specs
