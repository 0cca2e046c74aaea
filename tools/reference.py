"""Writes the pages of docs/reference that are generated from the code; `scripts/docs --update` runs it.

Each page is a function that returns Markdown. A test compares the committed pages with what these functions return, so
an option, metric, error or endpoint cannot be added without its line here. Where the code has a table (options,
metrics, findings, services, the flags page), the page comes from it. HTTP paths have no such table: `PAGES` has them,
and a test asks a running agent and proxy for each.
"""

from __future__ import annotations

import inspect
import logging
import pkgutil
import re
import sys
import tempfile
from dataclasses import fields
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.request import urlopen

from google.protobuf.descriptor_pb2 import FileDescriptorSet

import wigwag
from wigwag import dflag
from wigwag.agent.options import AgentOptions
from wigwag.agent.run import Agent
from wigwag.cli.commands.check_config import Options as CheckOptions
from wigwag.cli.main import COMMANDS, module_of, usage
from wigwag.dflag.page.routes import document
from wigwag.dflag.startup.options import OPTIONS as SERVICE_OPTIONS
from wigwag.errors import WigwagError
from wigwag.flags.checks import catalogue
from wigwag.kube.client import Kube
from wigwag.kube.config.cluster import Cluster
from wigwag.kube.hub import Hub
from wigwag.observe import Registry
from wigwag.operator.admission.registration import FLAG_PATH, POD_PATH, WORKLOAD_PATH
from wigwag.operator.run import Operator
from wigwag.operator.settings import OperatorSettings, read_settings
from wigwag.options import declared, default_text, long_name
from wigwag.proxy.options import ProxyOptions
from wigwag.proxy.run import Proxy
from wigwag.version import __version__
from wigwag.watt.options import WattOptions
from wigwag.watt.report import WattReport
from wigwag.watt.run import WattServer
from wigwag.watt.watt import Watt
from wigwag.wire.rpc import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from wigwag.observe import Reading
    from wigwag.options import Declared

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
NOTE = "<!-- Generated from the code by scripts/docs --update. Do not edit. -->\n\n"
FLAGD = re.compile(
    r"(config|context-(from-header|value)|cors-origin|debug|disable-sync-metadata|keep-alive-.*|log-format|port"
    r"|(management|ofrep|sync)-port|max-request-.*|metrics-exporter|ofrep-sse-.*|otel-.*|server-.*|(sync-)?socket-path"
    r"|sources|stream-deadline|uri)"
)
"""The options of `flagd start`; the others of `wigwag start` are our own."""
VARIABLES = {
    "pod": "POD_",
    "flags": "FLAGS_",
    "sidecar": "SIDECAR_",
    "in_process": "IN_PROCESS_",
    "flagd": "FLAGD_",
    "proxy": "FLAGD_PROXY_",
}
"""How the variables of each part of the operator's settings begin."""
INSTRUMENTS = {"counter": "counter", "updown": "gauge", "gauge": "gauge", "histogram": "histogram"}
"""What Prometheus calls each kind of instrument."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown.

    >>> print(table(("a", "b"), [("1", "x|y")]), end="")
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines).replace("|  |", "| |").replace("|  |", "| |") + "\n"


def code(*words: str) -> str:
    """Return words as code, separated by commas."""
    return ", ".join(f"`{word}`" for word in words if word)


# The command line ---------------------------------------------------------------------------------------------------

CLI = """\
# Command line

Every command of `wigwag`, with its options. `wigwag help COMMAND` prints the same.

A value is taken from the first place that has one: command line, environment, config file, default. `start` and
`check-config` read all four; `proxy` and `watt` read no environment variables, as the originals do not; `operator`
reads variables [of its own](#variables-of-the-operator); the other commands read the command line only. The config key
of an option is its long name without the leading dashes, such as `stale-after`. The variable is in the tables.

- **Durations** are written as in Go: `250ms`, `30s`, `1h30m`.
- **Switches** are `--strict`, `--no-strict` or `--strict=false`; in variables and config files `true`, `false`, `1`,
  `0`.
- **Lists** are repeated or separated by commas on the command line, separated by white space in a variable, and a list
  in a config file.
- **Pairs** such as `--context-value` are `key=value`, repeated or separated by commas; in a variable also a JSON
  object, in a config file a map.
- **Ports**: 0 takes any free port; the log says which.

| exit code | meaning |
|---|---|
| 0 | success, or stopped by a signal |
| 1 | the command says no, see below |
| 2 | a wrong option, or input that cannot be used |
| 130 | interrupted |
| 141 | the reader of the output went away |

Exit code 1 means: `start`, `proxy`, `operator` or `watt` cannot start; a hook of `watt` failed whose failure is fatal;
`check-config` found that the agent could not start, or that a source fails; `eval` failed to evaluate; `lint` found
errors; `diff` found differences; `migrate` could not migrate an object.
"""


def cli() -> str:
    """Return the page about commands and options."""
    parts = [CLI, *map(_command, COMMANDS), _service_options()]
    return "\n".join(parts)


def _command(name: str) -> str:
    module = module_of(name)
    purpose, _, examples = module.DESCRIPTION.partition("\n\n")
    prefix = getattr(module, "ENVIRONMENT", "")
    parts = [
        f"## wigwag {name}\n",
        f"{' '.join(purpose.split())}\n",
        f"```\n{usage(name, module.Options)}\n\n{examples.rstrip()}\n```\n",
    ]
    options = list(declared(module.Options))
    if module.Options is CheckOptions:
        inherited = {each.name for each in declared(AgentOptions)}
        options = [each for each in options if each.name not in inherited]
        parts.append("It takes every option of [`wigwag start`](#wigwag-start), and these:\n")
    if arguments := [each for each in options if each.positional]:
        parts.append(table(("argument", "meaning"), map(_argument, arguments)))
    parts += _groups([each for each in options if not each.positional], prefix)
    if name == "operator":
        parts.append(_operator_variables())
    if aliases := getattr(module, "ALIASES", {}):
        parts.append("Older names: " + ", ".join(f"`{old}` for `{new}`" for old, new in aliases.items()) + ".\n")
    return "\n".join(parts)


def _operator_variables() -> str:
    """Return the variables of the operator: what it gives the agents and the proxy that it makes."""
    rows = []
    for field in fields(OperatorSettings):
        for each in declared(field.default_factory) if field.name != "options" else ():  # type: ignore[arg-type]
            variable = f"{VARIABLES[field.name]}{each.name.upper()}"
            shown = "the version of wigwag" if each.default == __version__ else default_text(each)
            rows.append((f"`{variable}`", f"`{shown}`" if shown else "", each.help))
    return f"### Variables of the operator\n\n{table(('variable', 'default', 'meaning'), rows)}"


def _argument(each: Declared) -> tuple[str, str]:
    return f"`{each.metavar}`", each.help


def _groups(options: Sequence[Declared], prefix: str) -> Iterator[str]:
    for group in dict.fromkeys(each.group for each in options):
        if group:
            yield f"**{group[0].upper()}{group[1:]}**\n"
        head = ("option", "default", *(["variable"] if prefix else []), "meaning")
        yield table(head, (_option(each, prefix) for each in options if each.group == group))


def _option(each: Declared, prefix: str) -> tuple[str, ...]:
    names = code(each.short, f"{each.long} {each.placeholder}".strip())
    default = {"socket_mode": "0660", "config": "~/.agent.yaml"}.get(each.name) or default_text(each)
    ours = hasattr(AgentOptions, each.name) and bool(prefix) and not FLAGD.fullmatch(long_name(each.name))
    choices = "; " + " or ".join(map(code, each.choices)) if each.choices else ""
    meaning = each.help + choices + (" *(not in flagd)*" if ours else "")
    variable = (code(prefix + each.name.upper()),) if prefix else ()
    return names, code(default), *variable, meaning


def _service_options() -> str:
    rows = [(f"`{each.long} {each.metavar}`".replace(" `", "`"), each.help) for each in SERVICE_OPTIONS]
    return (
        "## Programs that use dflag\n\n"
        "`dflag.install(parser, flags)` adds these to your own program, and one option for each flag; "
        "see [the guide](../guides/dflag.md#in-a-service).\n\n"
        + table(("option", "meaning"), [*rows, ("`--loglevel LEVEL`", "the level of the root logger; a dynamic flag")])
    )


# Metrics ------------------------------------------------------------------------------------------------------------

METRICS = """\
# Metrics

The agent and the proxy serve their metrics at `/metrics` on the management port, the operator on the port for metrics,
watt on its only port, in Prometheus text format. The agent can also push them over OTLP under the OpenTelemetry name;
see [telemetry](../guides/telemetry.md). What to alert on is in [operations](../guides/operations.md#metrics), in
[operator](../guides/operator.md#metrics) and in [watt](../guides/watt.md#when-something-is-wrong).

Names that begin with `feature_flag_flagd`, `http_server` and `rpc_server` are flagd's; `sync_active_streams` is
flagd-proxy's; those with `controller_runtime` and `leader_election` are the original operator's. Each instrument holds
2,000 label sets; what exceeds them is counted under `otel_metric_overflow`.
"""


def metrics() -> str:
    """Return the page about metrics."""
    with tempfile.TemporaryDirectory() as folder:
        agent, proxy = _agent_registry(folder), Proxy(ProxyOptions()).registry
    flags_page = [line.split(" ", 3) for line in _flags_page_metrics() if line.startswith("# ")]
    kinds = {words[2]: words[3] for words in flags_page if words[1] == "TYPE"}
    helps = {words[2]: words[3] for words in flags_page if words[1] == "HELP"}
    return "\n".join(
        [
            METRICS,
            "## Agent\n",
            _instruments(agent),
            "## Proxy\n",
            _instruments(proxy),
            "## Operator\n",
            _instruments(Operator(read_settings({}), Hub(lambda: Kube(Cluster("https://127.0.0.1")))).registry),
            "## Watt\n",
            _instruments(_watt_registry()),
            "## The flags page of dflag\n",
            "Served at `/metrics` of the [flags page](../guides/dflag.md#the-flags-page).\n",
            table(("metric", "type", "meaning"), ((f"`{name}`", kinds[name], helps[name]) for name in sorted(kinds))),
        ]
    )


def _agent_registry(folder: str) -> Registry:
    """Return the registry of an agent that has everything switched on; it is made, and never started."""
    rules = Path(folder, "rules.yaml")
    rules.write_text("[]")
    return Agent(
        AgentOptions(
            state_dir=str(Path(folder, "state")),
            auth_tokens=str(rules),
            otel_collector_uri="localhost:4317",
            metrics_exporter="otel",
        )
    ).metrics.registry


def _watt_registry() -> Registry:
    """Return the registry of a watt that is made, and never started."""
    options = WattOptions(watches=[{"source": "directory", "path": "."}])
    server = WattServer(options)
    WattReport(Watt(options), lambda: 0.0).register(server.registry)
    return server.registry


def _instruments(registry: Registry) -> str:
    readings = sorted(registry.read(), key=lambda reading: _prometheus(reading).removeprefix("wigwag_"))
    rows = (
        (f"`{_prometheus(each)}`", INSTRUMENTS[each.kind], code(*(_flat(label) for label in each.labels)), each.help)
        for each in readings
    )
    return table(("metric", "type", "labels", "meaning"), rows)


def _prometheus(reading: Reading) -> str:
    """Return the name in Prometheus form, as `Registry.render` writes it."""

    class Only:
        def read(self) -> Reading:
            return reading

    return Registry([Only()]).render().split(" ", 3)[2]


def _flat(label: str) -> str:
    return label.replace(".", "_")


def _flags_page_metrics() -> list[str]:
    """Return what a program with an updater serves."""
    flags = dflag.FlagSet("example")
    flags.int("rate", 10)
    with (
        tempfile.TemporaryDirectory() as folder,
        dflag.setup(flags, folder),
        dflag.PageServer(dflag.Site(flags)) as server,
        urlopen(f"{server.url.rstrip('/')}/metrics") as response,  # noqa: S310  # our own
    ):
        return str(response.read().decode()).splitlines()


# Errors -------------------------------------------------------------------------------------------------------------

ERRORS = """\
# Errors

Everything that wigwag raises on purpose is a `wigwag.WigwagError`. An error that is caused by bad input is also a
`ValueError`. A command that ends with one prints one line and exits with the code in the table.

## The tree
"""
OUTCOMES = """\
## What clients see

An evaluation never raises: it answers the caller's default with an OpenFeature error code. Over the wire:

| OpenFeature code | gRPC | Connect (HTTP) | OFREP (HTTP) | when |
|---|---|---|---|---|
| `FLAG_NOT_FOUND` | `NOT_FOUND` | 404 | 404 | no such flag; in v1 also a flag without a default variant |
| `TYPE_MISMATCH` | `INVALID_ARGUMENT` | 400 | does not occur | the value is not of the requested type |
| `PARSE_ERROR` | `DATA_LOSS` | 500 | 400 | the rule cannot be evaluated |
| `GENERAL` | `UNKNOWN` | 500 | 400 | the rule names no variant of the flag |
| | `INVALID_ARGUMENT` | 400 | 400 | a selector or a request that cannot be used |
| | `UNAUTHENTICATED`, `PERMISSION_DENIED` | 401, 403 | 401, 403 | [access rules](../guides/tenancy.md) |
| | `RESOURCE_EXHAUSTED` | 429 | 413, 429 | a [limit](../guides/operations.md#limits-and-defences) |
| | `UNAVAILABLE` | 503 | 503 | nothing is known yet, or the agent stops |

## Status codes

gRPC codes, what Connect calls them in JSON, and the HTTP status that Connect answers with.
"""


def errors() -> str:
    """Return the page about errors."""
    for module in pkgutil.walk_packages(wigwag.__path__, "wigwag."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    statuses = ((f"{int(each)}", f"`{each.name}`", f"`{each.connect_name}`", str(each.http_status)) for each in Code)
    return "\n".join(
        [
            ERRORS,
            table(("class", "in", "code", "exit", "meaning"), _errors(WigwagError, 0)),
            OUTCOMES,
            table(("code", "gRPC", "Connect", "HTTP"), statuses),
        ]
    )


def _errors(error: type[WigwagError], depth: int) -> Iterator[tuple[str, ...]]:
    """Yield an error and those below it."""
    value = "of the call" if issubclass(error, RpcError) else f"`{error.code}`"
    meaning = (inspect.getdoc(error) or "").partition("\n")[0]
    also = " Also a `ValueError`." if ValueError in error.__bases__ else ""
    indent = "&emsp;" * depth
    yield f"{indent}`{error.__name__}`", f"`{error.__module__}`", value, str(error.exit_code), meaning + also
    for child in sorted(error.__subclasses__(), key=lambda each: (each.__module__ != "wigwag.errors", each.__name__)):
        if not child.__name__.startswith("_") and _is_current(child):
            yield from _errors(child, depth + 1)


def _is_current(error: type[WigwagError]) -> bool:
    """Tell whether a class is one of ours: not of a test, nor of a module that was imported twice."""
    module = sys.modules.get(error.__module__)
    return error.__module__.startswith("wigwag.") and getattr(module, error.__name__, None) is error


# Endpoints ----------------------------------------------------------------------------------------------------------


class Page(NamedTuple):
    """An HTTP path of a port."""

    methods: str
    path: str
    meaning: str


class Port(NamedTuple):
    """What is served on a port: gRPC services by name, and HTTP paths."""

    face: str
    name: str
    number: str
    option: str
    protocols: str
    services: tuple[str, ...] = ()
    pages: tuple[Page, ...] = ()


_PROBES = (
    Page("GET", "/healthz", "200 while the process runs"),
    Page("GET", "/readyz", "200 when ready, 412 before; see [probes](../guides/operations.md#probes)"),
    Page("GET", "/metrics", "[metrics](metrics.md) in Prometheus text format"),
)
_CONSOLE = Page("GET", "/console/", "the [console](../guides/console.md); its API is under `/console/api/v1`")
_RPC = "gRPC, gRPC-Web, Connect"
_REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_SYNC = ("flagd.sync.v1.FlagSyncService", "sync.v1.FlagSyncService", *_REFLECTION)
_HEALTH = ("grpc.health.v1.Health", *_REFLECTION)
PORTS = (
    Port(
        "agent",
        "evaluation",
        "8013",
        "--port",
        _RPC,
        ("flagd.evaluation.v2.Service", "flagd.evaluation.v1.Service", "schema.v1.Service", *_REFLECTION),
    ),
    Port(
        "agent",
        "management",
        "8014",
        "--management-port",
        "HTTP, gRPC",
        _HEALTH,
        (
            *_PROBES,
            Page("GET", "/propagation", "the digest of the document that is served from each source"),
            Page("GET", "/debug/sources", "each source: state, age, updates, restarts, errors, problems"),
            Page("GET", "/debug/snapshots", "the snapshots that are kept; `format=text`"),
            Page("GET", "/debug/flags", "the flags in force; `selector=`, `snapshot=`, `format=document|sources`"),
            Page("POST", "/debug/evaluate", "evaluate `key=`, or all flags; body: a context; `selector=`, `snapshot=`"),
            Page("POST", "/debug/explain", "how an evaluation of `key=` comes about; the same, and `format=text`"),
            Page("POST", "/debug/diff", "compare `from=` and `to=`; body: contexts; `selector=`, `format=text`"),
            _CONSOLE,
        ),
    ),
    Port("agent", "sync", "8015", "--sync-port", _RPC, _SYNC),
    Port(
        "agent",
        "OFREP",
        "8016",
        "--ofrep-port",
        "HTTP",
        (),
        (
            Page("POST", "/ofrep/v1/evaluate/flags", "evaluate all flags; `ETag` and `If-None-Match`"),
            Page("POST", "/ofrep/v1/evaluate/flags/{key}", "evaluate one flag"),
            Page("GET", "/ofrep/v1/sse", "server-sent events: when to fetch again; `channels=`"),
        ),
    ),
    Port("proxy", "sync", "8015", "--port", _RPC, _SYNC),
    Port(
        "proxy",
        "management",
        "8016",
        "--management-port",
        "HTTP, gRPC",
        _HEALTH,
        (
            *_PROBES,
            _CONSOLE,
            Page("GET", "/propagation", "each target: the digest of its document, and how many have been sent it"),
            Page("GET", "/debug/targets", "each target: state, age, subscribers, last error"),
        ),
    ),
    Port(
        "operator",
        "admission",
        "9443",
        "--webhook-bind-address",
        "HTTPS, for the API server",
        (),
        (
            Page("POST", POD_PATH, "injects agents: an AdmissionReview of a pod"),
            Page("POST", WORKLOAD_PATH, "checks and marks workloads that carry flags: an AdmissionReview of one"),
            Page("POST", FLAG_PATH, "checks flags: an AdmissionReview of a FeatureFlag"),
        ),
    ),
    Port(
        "operator",
        "metrics",
        "8080",
        "--metrics-bind-address",
        "HTTP, or HTTPS with `--metrics-cert-path`",
        (),
        (_PROBES[2],),
    ),
    Port(
        "operator",
        "probes",
        "8081",
        "--health-probe-bind-address",
        "HTTP",
        (),
        (_PROBES[0], Page("GET", "/readyz", "200 when ready, 500 before, with what it waits for"), _CONSOLE),
    ),
    Port(
        "watt",
        "snapshots",
        "7000",
        "--port",
        "HTTP",
        (),
        (
            Page("GET", "/snapshots/", "the snapshots that are kept: HTML, or JSON by `Accept`"),
            Page(
                "GET",
                "/snapshots/latest",
                "the newest; `format=`, `wait=`, `index=`, projections; an event stream by `Accept`",
            ),
            Page("GET", "/snapshots/{id}", "a snapshot by its number; `format=`, projections"),
            Page("POST", "/resync", "call all hooks again"),
            Page("GET", "/debug/watches", "each watch, hook and output: state, age, errors"),
            _CONSOLE,
            *_PROBES,
        ),
    ),
)
ENDPOINTS = """\
# Endpoints

What is served on which port. Every port speaks HTTP/1.1 and HTTP/2, also without TLS (h2c with prior knowledge); those
of the operator speak HTTP/2 only with `--enable-http2`. Over Connect, a method is `POST /SERVICE/METHOD`; over gRPC it
is the same path.

Debug pages are for requests [from this machine](../guides/operations.md#debug-pages) unless `--debug-endpoints` is set.
The port of watt listens on loopback; elsewhere, it wants [a token](../guides/watt.md#http).
An unknown path is 404; on the evaluation and sync ports, its body has the code `unimplemented`.
"""


def endpoints() -> str:
    """Return the page about ports, services and paths."""
    methods = _methods()
    parts = [ENDPOINTS]
    for port in PORTS:
        parts.append(f"## {port.face.capitalize()}: {port.name}, port {port.number}\n")
        parts.append(f"`{port.option}`; {port.protocols}.\n")
        if port.pages:
            parts.append(table(("method", "path", "what"), ((m, f"`{path}`", what) for m, path, what in port.pages)))
        if port.services:
            rows = ((f"`{service}`", ", ".join(methods[service])) for service in port.services)
            parts.append(table(("service", "methods"), rows))
    parts.append("## The flags page of dflag\n")
    parts.append(
        "Served by your program: `--config-port`, or mounted; see [the guide](../guides/dflag.md#the-flags-page).\n"
    )
    paths = document("", "")["paths"]
    rows_of_page = (
        (method.upper(), f"`{path}`", str(operation["summary"]))
        for path, operations in paths.items()
        for method, operation in operations.items()
    )
    parts.append(table(("method", "path", "what"), rows_of_page))
    return "\n".join(parts)


def _methods() -> dict[str, list[str]]:
    """Return the methods of each service of `proto/`; streams are marked."""
    descriptors = FileDescriptorSet.FromString((files("wigwag.proto") / "descriptors.binpb").read_bytes())
    return {
        f"{file.package}.{service.name}": [
            f"`{method.name}`" + (" (stream)" if method.server_streaming else "") for method in service.method
        ]
        for file in descriptors.file
        for service in file.service
    }


# Findings -----------------------------------------------------------------------------------------------------------


def findings() -> str:
    """Return the page about findings: its text is written by hand, the table at its end is generated."""
    text, heading, _ = (REFERENCE / "findings.md").read_text().partition("## The catalogue\n")
    return f"{text}{heading}\nThis table is generated from the code by `scripts/docs --update`.\n\n{catalogue.table()}"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli,
    "metrics.md": metrics,
    "errors.md": errors,
    "endpoints.md": endpoints,
    "findings.md": findings,
}


def rendered(name: str) -> str:
    """Return a generated page as it is committed."""
    return (NOTE * (name != "findings.md") + PAGES[name]()).rstrip() + "\n"


def main() -> None:
    """Write the pages."""
    logging.disable(logging.WARNING)  # an agent with everything switched on has remarks to make
    for name in PAGES:
        (REFERENCE / name).write_text(rendered(name))


if __name__ == "__main__":
    main()
