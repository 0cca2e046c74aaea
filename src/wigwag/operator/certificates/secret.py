"""The Secret of the webhook certificates: what its keys mean, and which way of having certificates it shows.

    ca.crt                  all CAs to trust, as PEM; the first signs now, a second one signs next or has signed before
    ca.key                  the key of the first; without it the Secret is not ours
    tls.crt, tls.key        what is served
    ca-next.key             the key of the CA that signs next
    ca-next.published       when its certificate was first seen in all webhook configurations
    ca-previous.until       when nothing that the previous CA has signed is valid any more
    webhook.path            with --private-webhooks: the last part of their paths, which only the API server learns

A Secret without `ca.key` was written by somebody else, such as cert-manager: it is used as it is. The third way is a
directory that somebody mounts; `directory_tls` follows its files, and nobody needs the Secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from wigwag.wire.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    SecretData: TypeAlias = Mapping[str, str]
    """Decoded: without the base64 of the API."""

DIRECTORY = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108  where the original mounts its Secret
CA, CA_KEY, SERVED, SERVED_KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
NEXT_KEY, NEXT_PUBLISHED, PREVIOUS_UNTIL = "ca-next.key", "ca-next.published", "ca-previous.until"
PATH_SECRET = "webhook.path"  # noqa: S105  the name of a key
OURS = (CA, CA_KEY, SERVED, SERVED_KEY, NEXT_KEY, NEXT_PUBLISHED, PREVIOUS_UNTIL)


class KeyPair(NamedTuple):
    """A certificate and its private key, as text in PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "KeyPair(…)"


def served(data: SecretData) -> KeyPair | None:
    """Return what to serve; None as long as the Secret does not have both parts."""
    certificate, key = data.get(SERVED, ""), data.get(SERVED_KEY, "")
    return KeyPair(certificate, key) if certificate and key else None


def bundle(data: SecretData) -> str:
    """Return the CAs that the API server has to trust: the `caBundle` of every webhook."""
    return data.get(CA, "")


def is_foreign(data: SecretData) -> bool:
    """Tell whether somebody else issues these certificates, so that they are never renewed here."""
    return bool(data.get(SERVED)) and CA_KEY not in data


def directory_tls(directory: str = DIRECTORY, certificate: str = SERVED, key: str = SERVED_KEY) -> Tls:
    """Return TLS with the files of a directory, which are followed."""
    return Tls(certificate=f"{directory}/{certificate}", key=f"{directory}/{key}")


def service_names(service: str, namespace: str, domain: str = "cluster.local") -> tuple[str, ...]:
    """Return the names under which the API server and others reach a Service.

    >>> service_names("webhook", "system")
    ('webhook.system.svc', 'webhook.system.svc.cluster.local', 'webhook.system')
    """
    return f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.{domain}", f"{service}.{namespace}"
