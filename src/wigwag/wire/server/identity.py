"""Whom a client certificate names: a kind and a name, so that a name of one kind cannot pass for one of another.

An authority that lets a team choose its DNS names may check nothing but that they are its own; a DNS name that reads
`CN=other-team` or `spiffe://…` must not be taken for what it looks like. So kinds are compared, and not only text.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Kind = Literal["URI", "DNS", "email", "CN"]
_ALTERNATIVES: tuple[Kind, ...] = ("URI", "DNS", "email")


class Identity(NamedTuple):
    """A verified name."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}{'=' if self.kind == 'CN' else ':'}{self.name}"

    @classmethod
    def of(cls, certificate: dict[str, Any]) -> Identity | None:
        """Return whom a certificate names, as `getpeercert` tells it.

        That is the first URI (SPIFFE), else the first DNS name, else the first mailbox, else the common name.
        """
        alternatives = dict(reversed(certificate.get("subjectAltName", ())))
        for kind in _ALTERNATIVES:
            if name := alternatives.get(kind):
                return cls(kind, name)
        common = {key: value for part in certificate.get("subject", ()) for key, value in part}.get("commonName")
        return cls("CN", common) if common else None

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Read an identity from a rule: marked with its kind, or of the kind that it looks like.

        >>> [Identity.parse(text).kind for text in ("spiffe://a/b", "urn:a", "a.example.org", "a@example.org", "CN=a")]
        ['URI', 'URI', 'DNS', 'email', 'CN']
        >>> str(Identity.parse("DNS:CN=a")), str(Identity.parse("CN=a"))
        ('DNS:CN=a', 'CN=a')
        """
        if text.startswith("CN="):
            return cls("CN", text.removeprefix("CN="))
        for kind in _ALTERNATIVES:
            if text.startswith(f"{kind}:"):
                return cls(kind, text.removeprefix(f"{kind}:"))
        return cls("URI" if ":" in text else "email" if "@" in text else "DNS", text)
