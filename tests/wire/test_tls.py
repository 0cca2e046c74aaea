"""TLS with certificates that the test makes for itself."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from pathlib import Path
from typing import Any, Literal

import h2.events
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from tests.wire.served import LOOPS, Http2Client, connected, http1, run
from wigwag.errors import StartError
from wigwag.wire.h2.frames import PREFACE
from wigwag.wire.http import Reply, Request, Response
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.listen import Listener
from wigwag.wire.server.server import serve
from wigwag.wire.tls import MemoryCertificate, Tls, context

Key = ec.EllipticCurvePrivateKey


def usage(*, authority: bool) -> x509.KeyUsage:
    """What a key is for: strict verifiers (Python 3.13) want to be told."""
    others = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(digital_signature=True, key_cert_sign=authority, crl_sign=authority, **others)


class Authority:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.key = directory, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self.certificate = self.sign(self.name, self.key, [], authority=True)
        self.path = directory / "ca.pem"
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: x509.Name, key: Key, names: list[x509.GeneralName], *, authority: bool) -> x509.Certificate:
        start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self.name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(start)
        builder = builder.not_valid_after(start + dt.timedelta(days=10))
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        builder = builder.add_extension(usage(authority=authority), critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, common: str, *names: x509.GeneralName, file: str = "server") -> tuple[str, str]:
        """Write a certificate and its key; return their paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.sign(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)]), key, list(names), authority=False
        )
        paths = self.directory / f"{file}.pem", self.directory / f"{file}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        paths[1].write_bytes(private)
        return str(paths[0]), str(paths[1])

    def client(self, *protocols: str, certificate: tuple[str, str] | None = None) -> dict[str, Any]:
        """How a client that trusts this authority connects."""
        made = ssl.create_default_context(cafile=str(self.path))
        if protocols:
            made.set_alpn_protocols(list(protocols))
        if certificate:
            made.load_cert_chain(*certificate)
        return {"ssl": made, "server_hostname": "localhost"}

    def listener(self, clients: Literal["none", "optional", "required"] = "none", common: str = "one") -> Listener:
        certificate, key = self.issue(common, x509.DNSName("localhost"))
        tls = Tls(certificate=certificate, key=key, authority=str(self.path), clients=clients)
        return Listener(host="127.0.0.1", tls=tls)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def who(request: Request) -> Response:
    assert request.peer
    return Reply(200, (), f"{request.peer.scheme} {request.peer.certificate}".encode())


@pytest.mark.parametrize("loop", LOOPS)
def test_the_protocol_is_the_one_that_was_agreed_on(authority: Authority, loop: str) -> None:
    async def test() -> None:
        async with serve(who, [authority.listener()]) as server:
            (address,) = server.addresses
            for protocols in ((), ("http/1.1",)):
                assert (await http1(address, **authority.client(*protocols))).endswith(b"https None")
            async with connected(address, **authority.client("h2", "http/1.1")) as (reader, writer):
                assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
                client = Http2Client(reader, writer)
                client.get(1)
                assert (await client.until(h2.events.DataReceived)).data == b"https None"

    run(test, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_without_http2_none_is_offered_and_none_is_served(authority: Authority, loop: str) -> None:
    async def test() -> None:
        listener = authority.listener()
        assert isinstance(listener.tls, Tls)
        quiet = replace(listener, tls=replace(listener.tls, http2=False))
        async with serve(who, [quiet], WireLimits(http2=False)) as server:
            (address,) = server.addresses
            async with connected(address, **authority.client("h2", "http/1.1")) as (_, writer):
                assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            assert (await http1(address, **authority.client("http/1.1"))).endswith(b"https None")
            async with connected(address, **authority.client()) as (reader, writer):
                writer.write(PREFACE)
                assert (await reader.read()).startswith(b"HTTP/1.1 ")

    run(test, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_without_a_certificate_handshakes_fail_until_there_is_one(authority: Authority, loop: str) -> None:
    pair = [Path(path).read_text() for path in authority.issue("one", x509.DNSName("localhost"))]

    async def test() -> None:
        empty = MemoryCertificate()
        async with serve(who, [Listener(host="127.0.0.1", tls=empty)]) as server:
            (address,) = server.addresses
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await http1(address, **authority.client())
            empty.replace(*pair)
            assert (await http1(address, **authority.client())).endswith(b"https None")

    run(test, loop)


def common_name(writer: asyncio.StreamWriter) -> str:
    subject = writer.get_extra_info("ssl_object").getpeercert()["subject"]
    return str(dict(part[0] for part in subject)["commonName"])


async def shown(authority: Authority, address: str) -> str:
    async with connected(address, **authority.client()) as (_, writer):
        return common_name(writer)


@pytest.mark.parametrize("loop", LOOPS)
def test_new_connections_get_a_new_certificate_and_old_ones_go_on(authority: Authority, loop: str) -> None:
    async def test() -> None:
        async with serve(who, [authority.listener(common="one")]) as server:
            (address,) = server.addresses
            async with connected(address, **authority.client()) as (reader, writer):
                assert common_name(writer) == "one"
                authority.issue("two", x509.DNSName("localhost"))
                assert await shown(authority, address) == "two"
                writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                await reader.readuntil(b"https None")

    run(test, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_half_written_certificate_changes_nothing(authority: Authority, loop: str) -> None:
    async def test() -> None:
        async with serve(who, [authority.listener(common="one")]) as server:
            (address,) = server.addresses
            authority.issue("other", x509.DNSName("localhost"), file="other")
            (authority.directory / "other.pem").replace(authority.directory / "server.pem")
            assert await shown(authority, address) == "one"
            (authority.directory / "server.pem").unlink()
            assert await shown(authority, address) == "one"
            authority.issue("two", x509.DNSName("localhost"))
            assert await shown(authority, address) == "two"

    run(test, loop)


NAMES = [
    ((x509.DNSName("client.test"), x509.UniformResourceIdentifier("spiffe://a/b")), "URI:spiffe://a/b"),
    ((x509.DNSName("client.test"), x509.DNSName("second.test")), "DNS:client.test"),
    ((x509.DNSName("CN=other"),), "DNS:CN=other"),
    ((x509.RFC822Name("spiffe://a/b"),), "email:spiffe://a/b"),
    ((), "CN=common"),
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("names", "expected"), NAMES)
def test_a_client_is_who_its_certificate_says(
    authority: Authority, names: tuple[x509.GeneralName, ...], expected: str, loop: str
) -> None:
    async def test() -> None:
        certificate = authority.issue("common", *names, file="client")
        async with serve(who, [authority.listener("required")]) as server:
            answer = await http1(server.addresses[0], **authority.client(certificate=certificate))
            assert answer.endswith(f"https {expected}".encode())

    run(test, loop)


async def refused(address: str, options: dict[str, Any]) -> bool:
    """Whether there is no answer; in TLS 1.3 a client learns only afterwards that it was not welcome."""
    try:
        return await http1(address, **options) == b""
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.mark.parametrize("loop", LOOPS)
def test_client_certificates_are_optional_or_required_but_never_of_strangers(
    authority: Authority, tmp_path: Path, loop: str
) -> None:
    (tmp_path / "strangers").mkdir()
    stranger = Authority(tmp_path / "strangers").issue("stranger", file="client")

    async def test() -> None:
        async with serve(who, [authority.listener("optional")]) as server:
            assert (await http1(server.addresses[0], **authority.client())).endswith(b"https None")
            assert await refused(server.addresses[0], authority.client(certificate=stranger))
        async with serve(who, [authority.listener("required")]) as server:
            assert await refused(server.addresses[0], authority.client())
            assert await refused(server.addresses[0], authority.client(certificate=stranger))

    run(test, loop)


def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    tls = authority.listener().tls
    assert isinstance(tls, Tls)
    assert context(tls).minimum_version == ssl.TLSVersion.TLSv1_2


def test_client_certificates_need_somebody_to_trust(authority: Authority) -> None:
    certificate, key = authority.issue("one")
    with pytest.raises(ValueError, match="authority"):
        context(Tls(certificate=certificate, key=key, clients="required"))


def test_a_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("server")
    _, other = authority.issue("other", file="unrelated")
    (tmp_path / "junk").write_text("hush")
    junk = str(tmp_path / "junk")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    cases: list[tuple[Any, str]] = [
        ({"certificate": junk, "key": str(key)}, f"{junk} holds no certificate in PEM"),
        ({"certificate": str(certificate), "key": junk}, f"{junk} holds no private key in PEM"),
        ({"certificate": str(broken), "key": str(key)}, f"{broken} or {key} cannot be used: "),
        (
            {"certificate": str(certificate), "key": str(other)},
            f"the private key in {other} does not belong to the certificate in {certificate}",
        ),
        (
            {"certificate": str(certificate), "key": str(key), "authority": junk, "clients": "required"},
            f"{junk} holds no certificate in PEM",
        ),
    ]
    for given, message in cases:
        with pytest.raises(StartError) as caught:
            context(Tls(**given))
        assert str(caught.value).startswith(message)
