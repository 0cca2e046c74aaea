"""X.509 for the webhooks: a CA of our own, certificates that it signs, and what a certificate says about itself.

Keys are ECDSA P-256. A certificate begins `skew` before now, because the clock of an API server may be behind, and does
not outlive its CA. Every CA has a name of its own, so that a verifier that trusts two of them picks the right one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.operator.certificates.secret import KeyPair

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError as error:
    raise UsageError(
        "certificates of the operator's own need the package 'cryptography': pip install 'wigwag[operator]', "
        "or have --webhook-cert-path name the directory of a certificate"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

UNREADABLE = (ValueError, TypeError, InvalidSignature)
"""What cryptography raises for text that is no certificate or key, or for parts that do not belong together."""


@dataclass(frozen=True, slots=True)
class CertificatePolicy:
    """How long certificates last."""

    authority: timedelta = timedelta(days=730)
    """Validity of a CA."""
    serving: timedelta = timedelta(days=90)
    """Validity of a certificate that is served."""
    skew: timedelta = timedelta(hours=1)
    """How far clocks may be apart."""
    settle: timedelta = timedelta(minutes=10)
    """How long it takes at most until every API server has a new `caBundle`, and every replica a new Secret."""
    renew: float = 1 / 3
    """The share of a validity that is left when a certificate or CA is renewed."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a certificate says."""

    begins: datetime
    ends: datetime
    names: frozenset[str]

    def renewed_at(self, policy: CertificatePolicy) -> datetime:
        """Return when it is time for a new one."""
        return self.ends - (self.ends - self.begins) * policy.renew


def new_authority(now: datetime, policy: CertificatePolicy) -> KeyPair:
    """Return a new CA."""
    key = generate_private_key(SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"wigwag CA {serial:x}"[:64])
    builder = _builder(name, name, key, serial, now - policy.skew, now + policy.authority)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _pair(builder.add_extension(_usage(authority=True), critical=True), key, key)


def sign(authority: KeyPair, names: Sequence[str], now: datetime, policy: CertificatePolicy) -> KeyPair:
    """Return a new key, and a certificate of it for these DNS names and addresses."""
    issuer, issuer_key = _certificate(authority.certificate), _key(authority.key)
    key, ends = generate_private_key(SECP256R1()), min(now + policy.serving, issuer.not_valid_after_utc)
    serial = x509.random_serial_number()
    builder = _builder(_name(names[0][:64]), issuer.subject, key, serial, now - policy.skew, ends)
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(authority=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName([_alternative(name) for name in names]), False),
        (known, False),
    ):
        builder = builder.add_extension(extension, critical)
    return _pair(builder, key, issuer_key)


def split(bundle: str) -> tuple[str, ...]:
    """Return the certificates of a bundle, each as text; what is no certificate is one of `UNREADABLE`."""
    if not bundle.strip():
        return ()
    return tuple(_text(each) for each in x509.load_pem_x509_certificates(bundle.encode()))


def facts(certificate: str) -> CertificateFacts:
    """Return what a certificate says."""
    read = _certificate(certificate)
    begins, ends = read.not_valid_before_utc, read.not_valid_after_utc
    try:
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return CertificateFacts(begins, ends, frozenset())
    return CertificateFacts(begins, ends, frozenset(_names(names)))


def belong_together(pair: KeyPair) -> bool:
    """Tell whether a key is that of its certificate."""
    return bool(_key(pair.key).public_key() == _certificate(pair.certificate).public_key())


def is_signed_by(certificate: str, authority: str) -> bool:
    """Tell whether a CA has signed a certificate."""
    try:
        _certificate(certificate).verify_directly_issued_by(_certificate(authority))
    except UNREADABLE:
        return False
    return True


def _names(names: Iterable[x509.GeneralName]) -> Iterable[str]:
    return (str(name.value) for name in names)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, serial: int, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer, subject, key.public_key(), serial, begins.replace(tzinfo=None), ends.replace(tzinfo=None)
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _usage(*, authority: bool) -> x509.KeyUsage:
    others = "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"
    unused = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=True, key_cert_sign=authority, crl_sign=authority, **unused)


def _pair(
    builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey, issuer_key: EllipticCurvePrivateKey
) -> KeyPair:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return KeyPair(_text(builder.sign(issuer_key, SHA256())), private)


def _certificate(text: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(text.encode())


def _key(text: str) -> EllipticCurvePrivateKey:
    key = load_pem_private_key(text.encode(), None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise TypeError("the key is not one of an elliptic curve")
    return key


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
