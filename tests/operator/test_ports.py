"""The ports of the operator: which there are, what is on them, and whose certificate they have."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from wigwag.errors import StartError, UsageError
from wigwag.observe import Counter, Registry
from wigwag.operator.admission.server import AdmissionService
from wigwag.operator.ports import metrics_handler, metrics_tls, operator_ports, probes_handler, webhook_files
from wigwag.operator.settings import OperatorOptions
from wigwag.serve.face.capacity import divide
from wigwag.serve.face.ports import Port
from wigwag.wire.http import Handler, Reply, Request
from wigwag.wire.tls import MemoryCertificate


def ask(handler: Handler, path: str) -> tuple[int, bytes]:
    reply = handler(Request(b"GET", path.encode()))
    assert isinstance(reply, Reply)
    return reply.status, reply.body


def ports(**options: Any) -> dict[str, Port]:
    service = AdmissionService({})
    pages = metrics_handler(Registry([Counter("seen", "Seen.")])), probes_handler(list)
    made = operator_ports(OperatorOptions(**options), service, MemoryCertificate(), pages, divide(1000, 3, 100, 100))
    service.close()
    return {port.name: port for port in made}


def mounted(folder: Path, *more: str) -> str:
    for name in ("tls.crt", "tls.key", *more):
        (folder / name).write_text("")
    return str(folder)


def test_ports_are_where_the_original_has_them_and_each_has_its_own_pages() -> None:
    found = ports()
    assert {name: port.listener.port for name, port in found.items()} == {
        "admission": 9443, "metrics": 8080, "probes": 8081
    }  # fmt: skip
    assert ask(found["metrics"].handler, "/metrics")[0] == 200
    assert ask(found["metrics"].handler, "/healthz")[0] == 404
    assert ask(found["probes"].handler, "/healthz") == (200, b"ok")
    assert ask(found["probes"].handler, "/readyz") == (200, b"ok")
    assert ask(found["probes"].handler, "/metrics")[0] == 404


def test_what_is_not_ready_says_what_it_waits_for() -> None:
    status, body = ask(probes_handler(lambda: ["no certificate", "no objects"]), "/readyz")
    assert (status, body) == (500, b"not ready: no certificate, no objects\n")


def test_a_port_of_address_0_is_not_served() -> None:
    assert list(ports(metrics_bind_address="0", health_probe_bind_address="0")) == ["admission"]


@pytest.mark.parametrize("name", ["webhook", "metrics", "health_probe"])
def test_a_wrong_address_is_named_by_its_option(name: str) -> None:
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')}-bind-address: .*write HOST:PORT"):
        ports(**{f"{name}_bind_address": "8080"})


def test_http2_is_served_only_if_it_is_enabled() -> None:
    assert [port.limits.http2 for port in ports().values()] == [False] * 3
    assert [port.limits.http2 for port in ports(enable_http2=True).values()] == [True] * 3


def test_a_certificate_that_the_manifests_of_the_original_mount_is_used(tmp_path: Path) -> None:
    assert webhook_files(OperatorOptions(), str(tmp_path)) is None, "nothing is mounted: our own Secret"
    found = webhook_files(OperatorOptions(), mounted(tmp_path, "ca.crt"))
    assert found
    assert (found.certificate, found.http2) == (f"{tmp_path}/tls.crt", False)


def test_a_mounted_secret_that_we_write_ourselves_is_not_used_as_files(tmp_path: Path) -> None:
    assert webhook_files(OperatorOptions(), mounted(tmp_path, "ca.crt", "ca.key")) is None


def test_a_directory_that_is_named_has_to_hold_the_files(tmp_path: Path) -> None:
    options = OperatorOptions(webhook_cert_path=str(tmp_path), webhook_cert_key="other.key")
    with pytest.raises(StartError, match=r"--webhook-cert-path: there is no file .*/tls\.crt; .*--webhook-cert-name"):
        webhook_files(options)
    mounted(tmp_path)
    with pytest.raises(StartError, match=r"there is no file .*/other\.key; .*--webhook-cert-key"):
        webhook_files(options)
    mounted(tmp_path, "other.key")
    found = webhook_files(options)
    assert found
    assert found.key == f"{tmp_path}/other.key"


def test_metrics_have_tls_if_there_is_a_certificate_for_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    folder = mounted(tmp_path)
    found = ports(metrics_cert_path=folder)["metrics"].listener.tls
    assert found
    assert not caplog.records
    assert metrics_tls(OperatorOptions(metrics_cert_path=folder, metrics_secure=False)) is None
    assert not caplog.records, "as was asked for"
    assert metrics_tls(OperatorOptions()) is None
    assert [each.getMessage() for each in caplog.records] == [
        "metrics are served without TLS, because --metrics-cert-path names no certificate"
    ]
    with pytest.raises(StartError, match="--metrics-cert-path: there is no file"):
        metrics_tls(OperatorOptions(metrics_cert_path=folder, metrics_cert_name="other.crt"))
