"""The ports of the operator: webhooks, metrics and probes, and whose certificate each of them has.

| port | TLS |
|---|---|
| admission | always: the files of `--webhook-cert-path`, those that the original's manifests mount, or our own Secret |
| metrics | with the files of `--metrics-cert-path`, unless `--metrics-secure=false` |
| probes | never: the kubelet checks no certificate |

Each port has its own pages, so that nobody reads metrics in the clear at the port of the probes.

The hard case is a directory that is mounted from the Secret which we write ourselves: its files are old for a minute
after each change, and somebody has to renew them. The key of our CA in it tells, and then the Secret itself is used.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wigwag.errors import StartError
from wigwag.operator.admission.server import AdmissionService, admission_port
from wigwag.operator.certificates.secret import CA_KEY, DIRECTORY, directory_tls
from wigwag.options import host_and_port
from wigwag.serve.face.ports import Port
from wigwag.serve.management.manage import TEXT, metrics_page, paged
from wigwag.wire.http import Reply
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.listen import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.observe import Registry
    from wigwag.operator.settings import OperatorOptions
    from wigwag.serve.face.capacity import Capacity
    from wigwag.wire.http import Handler
    from wigwag.wire.tls import MemoryCertificate, Tls

NONE = "0"
"""The address of a port that is not served, as controller-runtime has it."""
log = logging.getLogger("wigwag.operator")


def operator_ports(
    options: OperatorOptions,
    service: AdmissionService,
    tls: Tls | MemoryCertificate,
    pages: tuple[Handler, Handler],
    capacity: Capacity,
) -> list[Port]:
    """Return the ports. `tls` is of the webhooks; `pages` are metrics and probes."""
    metrics, probes = pages
    limits = capacity.limits(WireLimits(), management=True)
    host, port = bind_address(options.webhook_bind_address, "--webhook-bind-address")
    served = [admission_port(service, tls, host, port)]
    for name, option, address, handler, certificate in (
        ("metrics", "--metrics-bind-address", options.metrics_bind_address, metrics, metrics_tls(options)),
        ("probes", "--health-probe-bind-address", options.health_probe_bind_address, probes, None),
    ):
        if address != NONE:
            host, port = bind_address(address, option)
            served.append(Port(name, option, handler, Listener(host=host, port=port, tls=certificate), limits))
    return [replace(each, limits=replace(each.limits, http2=options.enable_http2)) for each in served]


def metrics_handler(registry: Registry) -> Handler:
    """Return the pages of the port for metrics."""
    return paged({b"/metrics": metrics_page(registry)})


def probes_handler(missing: Callable[[], Sequence[str]]) -> Handler:
    """Return the pages of the port for probes. `missing` has what the operator waits for; not ready is 500."""

    def readyz() -> Reply:
        waits = missing()
        return Reply(500, TEXT, f"not ready: {', '.join(waits)}\n".encode()) if waits else Reply(200, TEXT, b"ok")

    return paged({b"/healthz": lambda request: Reply(200, TEXT, b"ok"), b"/readyz": lambda request: readyz()})


def webhook_files(options: OperatorOptions, mounted: str = DIRECTORY) -> Tls | None:
    """Return TLS with the files of somebody else's certificate for the webhooks; None if they are to be our own.

    `mounted` is where the original's manifests mount its certificate.
    """
    names = options.webhook_cert_name, options.webhook_cert_key
    if options.webhook_cert_path:
        return _files("--webhook-cert", options.webhook_cert_path, *names, http2=options.enable_http2)
    folder = Path(mounted)
    if not all((folder / name).is_file() for name in names) or (folder / CA_KEY).exists():
        return None
    log.info("the webhooks use the certificate in %s; the operator does not renew it", mounted)
    return replace(directory_tls(mounted, *names), http2=options.enable_http2)


def metrics_tls(options: OperatorOptions) -> Tls | None:
    """Return TLS for metrics; None if there is no certificate or none is wanted."""
    if not options.metrics_secure:
        return None
    if not options.metrics_cert_path:
        log.info("metrics are served without TLS, because --metrics-cert-path names no certificate")
        return None
    names = options.metrics_cert_name, options.metrics_cert_key
    return _files("--metrics-cert", options.metrics_cert_path, *names, http2=options.enable_http2)


def _files(option: str, folder: str, certificate: str, key: str, *, http2: bool) -> Tls:
    for suffix, name in (("name", certificate), ("key", key)):
        if not (path := Path(folder, name)).is_file():
            raise StartError(
                f"{option}-path: there is no file {path}; mount it, or name another with {option}-{suffix}"
            )
    return replace(directory_tls(folder, certificate, key), http2=http2)


def bind_address(text: str, option: str) -> tuple[str | None, int]:
    """Read `HOST:PORT` as Go writes it; without a host, every address.

    >>> bind_address(":9443", "--x"), bind_address("127.0.0.1:0", "--x"), bind_address("[::1]:80", "--x")
    ((None, 9443), ('127.0.0.1', 0), ('::1', 80))
    """
    host, port = host_and_port(text, option)
    return host or None, port
