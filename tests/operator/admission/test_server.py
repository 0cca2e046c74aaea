"""The admission service: paths, failures, large objects, limits and metrics, without and with TLS."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.operator.admission.reviews import encoded, review
from tests.wire.test_tls import Authority
from wigwag.errors import StartError
from wigwag.observe import Registry
from wigwag.operator.admission.review import AdmissionRequest, AdmissionResponse, allowed, denied, patched
from wigwag.operator.admission.server import LARGE, MOST_WAITING, MOST_WAITING_EACH, AdmissionService, admission_port
from wigwag.operator.certificates.secret import directory_tls
from wigwag.wire.http import Reply, Request
from wigwag.wire.server.server import serve
from wigwag.wire.tls import MemoryCertificate

PODS, FLAGS = "/mutate-v1-pod", "/validate-core-openfeature-dev-v1beta1-featureflag"
NAME = "webhook.system.svc"
LARGE_OBJECT = {"spec": "x" * LARGE}


def post(path: str = PODS, body: bytes | None = None, method: bytes = b"POST") -> Request:
    return Request(method, path.encode(), body=encoded(review()) if body is None else body)


def ask(service: AdmissionService, request: Request) -> Reply:
    reply = service.handle(request)
    assert isinstance(reply, Reply)
    return reply


async def answered(service: AdmissionService, request: Request) -> Reply:
    reply = service.handle(request)
    assert not isinstance(reply, Reply)
    return await reply


def response(reply: Reply) -> Any:
    return json.loads(reply.body)["response"]


def service(review: Callable[[AdmissionRequest], AdmissionResponse]) -> AdmissionService:
    return AdmissionService({PODS: review})


def test_each_path_has_its_function() -> None:
    both = AdmissionService({PODS: lambda _: patched([{"op": "remove", "path": "/x"}]), FLAGS: lambda _: allowed("ok")})
    assert response(ask(both, post(PODS)))["patchType"] == "JSONPatch"
    assert response(ask(both, post(FLAGS)))["status"]["message"] == "ok"
    assert ask(both, post("/")).status == 404
    assert ask(both, post(PODS, method=b"GET")).status == 405


def test_a_body_that_is_no_review_is_answered_with_400() -> None:
    reply = ask(service(lambda _: allowed()), post(body=b'{"kind": "AdmissionReview"}'))
    assert reply.status == 400
    assert response(reply)["status"]["code"] == 400
    assert "apiVersion" in response(reply)["status"]["message"]


def test_an_object_that_a_review_cannot_decode_is_refused_with_400() -> None:
    def decoding(asked: AdmissionRequest) -> AdmissionResponse:
        import msgspec

        msgspec.json.decode(asked.object, type=dict[str, int])
        return allowed()

    reply = ask(service(decoding), post())
    assert reply.status == 200
    answer = response(reply)
    assert (answer["uid"], answer["allowed"], answer["status"]["code"]) == (review()["request"]["uid"], False, 400)
    assert "the Pod cannot be decoded" in answer["status"]["message"]


def failing(_: AdmissionRequest) -> AdmissionResponse:
    raise ZeroDivisionError("a secret")


@pytest.mark.parametrize("broken", [failing, lambda _: patched([object()])], ids=["raises", "cannot be encoded"])
def test_a_review_that_fails_refuses_the_object_and_logs_the_uid(
    broken: Callable[[AdmissionRequest], AdmissionResponse], caplog: pytest.LogCaptureFixture
) -> None:
    answer = response(ask(service(broken), post()))
    uid = review()["request"]["uid"]
    assert (answer["uid"], answer["allowed"], answer["status"]["code"]) == (uid, False, 500)
    assert uid in answer["status"]["message"]
    assert "secret" not in answer["status"]["message"]
    assert [record.levelno for record in caplog.records if uid in record.getMessage()] == [logging.ERROR]


def test_a_large_object_does_not_hold_up_the_others_and_too_many_are_refused() -> None:
    release = threading.Event()

    def waiting(asked: AdmissionRequest) -> AdmissionResponse:
        if len(bytes(asked.object)) > LARGE:
            release.wait(20)
        return allowed()

    async def main() -> None:
        tested = service(waiting)
        teams = [post(body=encoded(review(object=LARGE_OBJECT, namespace=f"team-{n}"))) for n in range(3)]
        async with asyncio.TaskGroup() as tasks:
            waiters = [tasks.create_task(answered(tested, teams[0])) for _ in range(MOST_WAITING_EACH)]
            await asyncio.sleep(0)
            assert response(await answered(tested, teams[0]))["status"]["code"] == 429, "one namespace has its share"
            others = MOST_WAITING - MOST_WAITING_EACH
            waiters += [tasks.create_task(answered(tested, teams[1])) for _ in range(others)]
            await asyncio.sleep(0)
            assert response(ask(tested, post()))["allowed"]
            refused = await answered(tested, teams[2])
            assert response(refused)["status"]["code"] == 429
            release.set()
        assert all(response(waiter.result())["allowed"] for waiter in waiters)
        assert "wigwag_admission_waiting 0" in Registry(tested.instruments).render()
        tested.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("secret", "path", "status"),
    [
        (None, PODS, 200),
        (None, f"{PODS}/of-others", 200),
        ("abc", f"{PODS}/abc", 200),
        ("abc", PODS, 404),
        ("abc", f"{PODS}/", 404),
        ("abc", f"{PODS}/ab", 404),
        ("abc", f"{PODS}/abc/", 404),
        ("abc", "/abc", 404),
        ("", PODS, 404),
        ("", f"{PODS}/", 404),
    ],
)
def test_a_private_webhook_answers_at_its_secret_path_only(secret: str | None, path: str, status: int) -> None:
    get = None if secret is None else lambda: secret
    assert ask(AdmissionService({PODS: lambda _: allowed()}, secret=get), post(path)).status == status


def test_a_review_of_a_large_object_that_takes_too_long_is_answered_in_time() -> None:
    release = threading.Event()

    async def main() -> None:
        tested = AdmissionService({PODS: lambda _: (release.wait(20), allowed())[1]}, seconds=0.05)
        reply = await answered(tested, post(body=encoded(review(object=LARGE_OBJECT))))
        assert response(reply)["status"]["code"] == 504
        assert "try again" in response(reply)["status"]["message"]
        release.set()
        tested.close()

    asyncio.run(main())


def test_metrics_count_reviews_by_path_code_and_outcome() -> None:
    tested = AdmissionService({PODS: lambda _: denied(403, "no"), FLAGS: failing})
    for request in (post(), post(), post(FLAGS), post(body=b"{"), post("/elsewhere")):
        tested.handle(request)
    text = Registry(tested.instruments).render()
    counted = "controller_runtime_webhook_requests_total"
    assert f'{counted}{{webhook="{PODS}",code="403",outcome="denied"}} 2' in text
    assert f'{counted}{{webhook="{FLAGS}",code="500",outcome="error"}} 1' in text
    assert f'{counted}{{webhook="{PODS}",code="400",outcome="malformed"}} 1' in text
    assert f'controller_runtime_webhook_latency_seconds_count{{webhook="{PODS}",code="403",outcome="denied"}} 2' in text
    assert "elsewhere" not in text


def certificate(folder: Path) -> tuple[Authority, str, str]:
    from cryptography import x509

    folder.mkdir()
    authority = Authority(folder)
    pem, key = authority.issue("webhook", x509.DNSName(NAME))
    return authority, Path(pem).read_text(), Path(key).read_text()


async def call(authority: Authority, address: str) -> bytes:
    """Ask on a new connection."""
    trust = ssl.create_default_context(cafile=str(authority.path))
    host, _, number = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, number, ssl=trust, server_hostname=NAME)
    body = encoded(review())
    writer.write(b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" % PODS.encode())
    writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_a_certificate_directory_is_followed(tmp_path: Path) -> None:
    async def main() -> None:
        first, *pair = certificate(tmp_path / "first")
        second, *other = certificate(tmp_path / "second")

        def mount(pem: str, key: str) -> None:
            (tmp_path / "tls.key").write_text(key)
            (tmp_path / "tls.crt").write_text(pem)

        mount(*pair)
        port = admission_port(service(lambda _: allowed()), directory_tls(str(tmp_path)), "127.0.0.1", 0)
        async with serve(port.handler, [port.listener], port.limits) as server:
            assert b'"allowed":true' in await call(first, server.addresses[0])
            mount(*other)
            assert b'"allowed":true' in await call(second, server.addresses[0])

    asyncio.run(main())


def test_a_certificate_in_memory_is_replaced_and_a_bad_one_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        first, pem, key = certificate(tmp_path / "first")
        second, *other = certificate(tmp_path / "second")
        served = MemoryCertificate(pem, key)
        port = admission_port(service(lambda _: allowed()), served, "127.0.0.1", 0)

        async with serve(port.handler, [port.listener], port.limits) as server:
            assert b'"allowed":true' in await call(first, server.addresses[0])
            with pytest.raises(StartError, match="key values mismatch"):
                served.replace(other[0], key)
            assert b'"allowed":true' in await call(first, server.addresses[0])
            served.replace(*other)
            assert b'"allowed":true' in await call(second, server.addresses[0])
            with pytest.raises(ssl.SSLCertVerificationError):
                await call(first, server.addresses[0])

    asyncio.run(main())
