"""A certificate authority for one control plane: the API server's certificate, client certificates, the signing key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1", "10.0.0.1")
"""Where it listens, and the first address of the service range, which the API server gives to itself."""


class Pair(NamedTuple):
    """A certificate, or a public key, and the private key of it: files in PEM."""

    certificate: Path
    key: Path


class Authority:
    """`Authority(folder)` makes `ca.crt` there; what it signs lies beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, generate_private_key(SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=0)
        self._own = _builder(_name("test authority"), _name("test authority"), self._key).add_extension(basic, True)
        self.path = folder / "ca.crt"
        self.path.write_bytes(self._own.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def server(self) -> Pair:
        """Sign for whoever listens on loopback."""
        names = [x509.DNSName(name) for name in SERVER_NAMES]
        addresses = [x509.IPAddress(ip_address(address)) for address in SERVER_ADDRESSES]
        alternatives = x509.SubjectAlternativeName([*names, *addresses])
        return self._sign("server", _name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: str, *groups: str) -> Pair:
        """Sign for a user, as `kubectl config` knows them."""
        return self._sign(f"client-{user}", _name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    def signing_keys(self) -> Pair:
        """Make the keys that service-account tokens are signed and checked with."""
        key, pair = generate_private_key(SECP256R1()), self._pair("service-accounts")
        pair.certificate.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        _write_key(pair.key, key)
        return pair

    def _sign(self, file: str, name: x509.Name, usage: x509.ObjectIdentifier, *more: x509.ExtensionType) -> Pair:
        key, pair = generate_private_key(SECP256R1()), self._pair(file)
        builder = _builder(name, _name("test authority"), key)
        for extension in (x509.ExtendedKeyUsage([usage]), *more):
            builder = builder.add_extension(extension, critical=False)
        pair.certificate.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        _write_key(pair.key, key)
        return pair

    def _pair(self, file: str) -> Pair:
        return Pair(self._folder / f"{file}.crt", self._folder / f"{file}.key")


def _write_key(path: Path, key: EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))


def _builder(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _name(common: str, groups: tuple[str, ...] = ()) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, common)])
