"""A certificate authority of our own, and a certificate for localhost signed by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Certificates(NamedTuple):
    """Files in PEM."""

    authority: Path
    certificate: Path
    key: Path

    def arguments(self) -> tuple[str, str]:
        """What to start an agent with."""
        return f"--server-cert-path={self.certificate}", f"--server-key-path={self.key}"


def make_certificates(folder: Path) -> Certificates:
    """Make an authority and what it signs."""
    ca_key, key = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    authority = _builder("test authority", ca_key, "test authority").add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    certificate = _builder("localhost", key, "test authority").add_extension(
        x509.SubjectAlternativeName(names), critical=False
    )
    found = Certificates(folder / "ca.pem", folder / "tls.crt", folder / "tls.key")
    found.authority.write_bytes(authority.sign(ca_key, SHA256()).public_bytes(Encoding.PEM))
    found.certificate.write_bytes(certificate.sign(ca_key, SHA256()).public_bytes(Encoding.PEM))
    found.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return found


def _builder(subject: str, key: EllipticCurvePrivateKey, issuer: str) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
