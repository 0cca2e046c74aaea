"""Consul on loopback: one agent in development mode, which is a whole datacentre in memory, in a fifth of a second.

It keeps nothing: killed and started again, it is empty and counts from one again. That is what a client must survive,
and `restore` of a snapshot is the milder form of it. Servers that keep their data and can lose their leader are a
`ConsulCluster`; they take seconds to agree.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from tests.real.processes import Server, claim_port
from tests.real.rest import Answer, Rest, RestError

OFF = -1


@dataclass(frozen=True)
class Consul:
    """The API of a datacentre, asked with a token or without."""

    address: str
    token: str = field(default="", repr=False)

    @cached_property
    def rest(self) -> Rest:
        """The HTTP client underneath, for what is not foreseen here."""
        return Rest(self.address, headers={"X-Consul-Token": self.token} if self.token else {})

    def with_token(self, token: str) -> Consul:
        """Return the same datacentre, asked by somebody else."""
        return Consul(self.address, token)

    def put(self, key: str, value: bytes | str) -> None:
        """Write a key."""
        self.rest.call("PUT", f"/v1/kv/{key}", value.encode() if isinstance(value, str) else value)

    def get(self, key: str) -> bytes | None:
        """Return the value of a key; no key is None, and everything else is an error."""
        answer = self.read(key)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise RestError("GET", key, answer.status, answer.body)
        return b64decode(answer.json[0]["Value"] or "")

    def delete(self, key: str, *, below: bool = False) -> None:
        """Delete a key, or all that begin with it."""
        self.rest.call("DELETE", f"/v1/kv/{key}", query={"recurse": "true"} if below else {})

    def read(self, key: str, *, after: int = 0, wait: str = "10s", **query: str) -> Answer:
        """Read a key; `after` an index the answer waits for a change."""
        blocking = {"index": str(after), "wait": wait} if after else {}
        return self.rest.ask("GET", f"/v1/kv/{key}", query={**blocking, **query}, timeout=30)

    def index(self, key: str) -> int:
        """Return the index that a blocking query of the key goes on from."""
        return index_of(self.read(key))

    def save(self) -> bytes:
        """Return a snapshot of everything."""
        return self.rest.call("GET", "/v1/snapshot").body

    def restore(self, snapshot: bytes) -> None:
        """Put everything back to how it was. The indexes go back too."""
        self.rest.call("PUT", "/v1/snapshot", snapshot, kind="application/octet-stream")

    def add_token(self, rules: str) -> tuple[str, str]:
        """Make a token that may do what the rules say; return its accessor, to revoke it by, and its secret."""
        name = f"test-{secrets.token_hex(6)}"
        self.rest.call("PUT", "/v1/acl/policy", {"Name": name, "Rules": rules})
        made = self.rest.call("PUT", "/v1/acl/token", {"Policies": [{"Name": name}]}).json
        return made["AccessorID"], made["SecretID"]

    def revoke(self, accessor: str) -> None:
        """Take a token back."""
        self.rest.call("DELETE", f"/v1/acl/token/{accessor}")


def index_of(answer: Answer) -> int:
    """Return the index of an answer."""
    return int(answer.headers["X-Consul-Index"])


class ConsulServer:
    """`with ConsulServer(folder, program) as server:`; `server.consul` has a leader when the block begins.

    With `acl` everything is denied without a token, and `server.consul` has the one of the administrator.
    With `gossip`, the ports that servers find each other by and its own first, it is one of a `ConsulCluster`.
    `connections` is how many a client may have; Consul's own limit is 200.
    """

    def __init__(
        self, folder: Path, program: Path, *, acl: bool = False, gossip: Sequence[int] = (), connections: int = 200
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        http, rpc, own = claim_port(), claim_port(), gossip[0] if gossip else claim_port()
        self.consul = Consul(f"http://127.0.0.1:{http}", str(uuid4()) if acl else "")
        ports = {"http": http, "server": rpc, "serf_lan": own}
        config = {**_config(ports, self.consul.token), **(_voter(folder / "data", gossip) if gossip else {})}
        config["limits"] = {"http_max_conns_per_client": connections}
        path = folder / "consul.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        command = [str(program), "agent", "-bind=127.0.0.1", "-client=127.0.0.1", f"-config-file={path}"]
        self.server = Server([*command, *([] if gossip else ["-dev"])], folder / "consul.log", self._takes_writes)

    def _takes_writes(self) -> bool:
        """Tell whether there is a leader, and the token has its rights."""
        try:
            return self.consul.rest.ask("PUT", "/v1/kv/ready", b"", timeout=2).status == 200
        except OSError:
            return False

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.kill()


class ConsulCluster:
    """Servers that keep their data and need most of them to agree: of two, kill one, and the other has no leader."""

    def __init__(self, folder: Path, program: Path, size: int = 2) -> None:
        ports = [claim_port() for _ in range(size)]
        self.servers = [
            ConsulServer(folder / str(own), program, gossip=[own, *(port for port in ports if port != own)])
            for own in ports
        ]

    def __enter__(self) -> Self:
        try:
            for one in self.servers:
                one.server.begin()
            for one in self.servers:
                one.server.wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self.servers:
            one.server.kill()


def _config(ports: Mapping[str, int], token: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "node_name": f"test-{ports['server']}",
        "ports": {**ports, "dns": OFF, "grpc": OFF, "grpc_tls": OFF, "serf_wan": OFF},
        "connect": {"enabled": False},
        "ui_config": {"enabled": False},
        "disable_update_check": True,
        "log_level": "warn",
    }
    if token:
        tokens = {"initial_management": token, "agent": token}
        config["acl"] = {"enabled": True, "default_policy": "deny", "tokens": tokens}
    return config


def _voter(data: Path, gossip: Sequence[int]) -> dict[str, Any]:
    return {
        "server": True,
        "bootstrap_expect": len(gossip),
        "data_dir": str(data),
        "retry_join": [f"127.0.0.1:{port}" for port in gossip[1:]],
        "retry_interval": "1s",  # the default is half a minute
        "performance": {
            "raft_multiplier": 1,
            "rpc_hold_timeout": "1s",
        },  # how long elections take, and who asks meanwhile
    }
