"""Where an API server is and who asks it, and the same as a kubeconfig file."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.real.authority import Pair
from tests.real.rest import Rest


@dataclass(frozen=True)
class Access:
    """An address, the authority that signed its certificate, and a token or a client certificate. All PEM is text."""

    server: str
    authority: str
    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Access:
        """Read the current context of a kubeconfig file; plugins are not run."""
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        return cls(
            cluster["server"].rstrip("/"),
            _text(cluster, "certificate-authority", path),
            user.get("token", ""),
            _text(user, "client-certificate", path),
            _text(user, "client-key", path),
        )

    def with_token(self, token: str) -> Access:
        """Return the access of whoever has this token."""
        return Access(self.server, self.authority, token)

    def with_certificate(self, pair: Pair) -> Access:
        """Return the access of whoever has this client certificate."""
        return Access(self.server, self.authority, "", pair.certificate.read_text(), pair.key.read_text())

    def rest(self) -> Rest:
        """Return a client that asks as this user."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return Rest(self.server, self.authority, headers, (self.certificate, self.key) if self.certificate else None)

    def kubeconfig(self, path: Path, namespace: str = "default") -> Path:
        """Write a kubeconfig file for this user. JSON is YAML, and every client reads it."""
        cluster = {"server": self.server, "certificate-authority-data": _encoded(self.authority)}
        user = {
            "token": self.token,
            "client-certificate-data": _encoded(self.certificate),
            "client-key-data": _encoded(self.key),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {name: value for name, value in user.items() if value}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
            "current-context": "test",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _text(entry: Mapping[str, str], name: str, config: Path) -> str:
    """Return what the entry holds or points to."""
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"]).decode()
    return (config.parent / entry[name]).read_text() if name in entry else ""
