"""A Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager, in about four seconds.

RBAC is on, the certificates are made for it, and our custom resource definitions are applied before the
controller-manager starts: a kind that comes later can take the garbage collector 40 s to learn. There is no kubelet, so
pods stay Pending unless a test sets their status: `kubelet` runs the agents in them, and `fakenodes` runs nothing, but
for thousands.

Each part can be killed and started again on the same data and port.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.real.access import Access
from tests.real.authority import Authority, Pair
from tests.real.cluster import Cluster
from tests.real.processes import Server, claim_port
from tests.real.programs import Programs
from tests.real.rest import Rest

ROOT = Path(__file__).parent.parent.parent
DEFINITIONS = tuple(sorted((ROOT / "deploy" / "kustomize" / "crds").glob("*s.yaml")))
USERS = {
    "admin": '"system:masters"',
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "nobody": "",
}
"""Who has a token, and in which group. Nobody may do what everybody who is known may do, and no more."""


class ControlPlane:
    """`with ControlPlane(folder, programs) as plane:`; `plane.cluster` is ready when the block begins.

    `flags` go to the API server: `--watch-cache=false`, for example, so that a compaction is felt at once.
    """

    def __init__(
        self,
        folder: Path,
        programs: Programs,
        flags: Sequence[str] = (),
        definitions: Sequence[Path] = DEFINITIONS,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.programs, self._definitions = folder, programs, definitions
        self.authority = Authority(folder)
        self._keys = self.authority.signing_keys()
        self.tokens = {user: secrets.token_hex(16) for user in USERS}
        self._etcd_port, self._peer_port, port = claim_port(), claim_port(), claim_port()
        admin = Access(f"https://127.0.0.1:{port}", self.authority.path.read_text(), self.tokens["admin"])
        self.cluster = Cluster(admin, programs.controllers is not None)
        self.etcd = self._etcd()
        self.apiserver = self._apiserver(port, flags)
        self.controllers = self._controllers()

    def user(self, name: str) -> Cluster:
        """Return the cluster as one of USERS sees it."""
        return self.cluster.as_user(self.cluster.access.with_token(self.tokens[name]))

    def start(self) -> None:
        """Start all of it."""
        self.etcd.start()
        self.apiserver.start()
        self.cluster.install(self._definitions)
        if self.controllers:
            self.controllers.start()

    def stop(self) -> None:
        """End all of it at once: nobody reads its data again."""
        for server in (self.controllers, self.apiserver, self.etcd):
            if server:
                server.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def revision(self) -> int:
        """Return the number of the last change in etcd, which is the newest resource version."""
        return int(self._store.call("POST", "/v3/maintenance/status", {}).json["header"]["revision"])

    def compact(self) -> int:
        """Forget all history in etcd, and return the revision that is left.

        The API server still remembers what its watch cache holds, until it is restarted.
        """
        revision = self.revision()
        self._store.call("POST", "/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def back_up(self) -> Path:
        """Copy the data of etcd, which is stopped for that, and return where the copy is."""
        copy = self.folder / f"etcd-at-{self.revision()}"
        self.etcd.stop()
        shutil.copytree(self._data, copy)
        self.etcd.start()
        return copy

    def restore(self, copy: Path) -> None:
        """Put an earlier copy of etcd's data back: its revisions go on from there."""
        self.etcd.kill()
        shutil.rmtree(self._data)
        shutil.copytree(copy, self._data)
        self.etcd.start()

    @property
    def _data(self) -> Path:
        return self.folder / "etcd"

    @property
    def _store(self) -> Rest:
        return Rest(f"http://127.0.0.1:{self._etcd_port}")

    def _etcd(self) -> Server:
        client, peer = self._store.address, f"http://127.0.0.1:{self._peer_port}"
        flags = {
            "data-dir": self._data,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
            "heartbeat-interval": 20,
            "election-timeout": 200,
            "log-level": "error",
        }
        return self._server(self.programs.etcd, _options(flags), lambda: self._store.answers("/health"))

    def _apiserver(self, port: int, flags: Sequence[str]) -> Server:
        serving: Pair = self.authority.server()
        options = {
            "etcd-servers": self._store.address,
            "etcd-compaction-interval": 0,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": port,
            "endpoint-reconciler-type": "none",
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "client-ca-file": self.authority.path,
            "authorization-mode": "RBAC",
            "token-auth-file": self._token_file(),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self._keys.certificate,
            "service-account-signing-key-file": self._keys.key,
            "service-cluster-ip-range": "10.0.0.0/24",
            "allow-privileged": "true",
        }
        ready = self.cluster.rest
        return self._server(self.programs.apiserver, [*_options(options), *flags], lambda: ready.answers("/readyz"))

    def _controllers(self) -> Server | None:
        if self.programs.controllers is None:
            return None
        user = self.user("system:kube-controller-manager").access
        options = {
            "kubeconfig": user.kubeconfig(self.folder / "controllers.kubeconfig"),
            "leader-elect": "false",
            "use-service-account-credentials": "true",
            "service-account-private-key-file": self._keys.key,
            "root-ca-file": self.authority.path,
            "kube-api-qps": 1000,  # with the default, a default service account takes five seconds to appear
            "kube-api-burst": 2000,
            "secure-port": 0,
        }
        return self._server(self.programs.controllers, _options(options), self._accounts_are_made)

    def _accounts_are_made(self) -> bool:
        return self.cluster.exists(self.cluster.path("v1", "ServiceAccount", "default", "default"))

    def _server(self, program: Path, options: Sequence[str], ready: Callable[[], bool]) -> Server:
        return Server([program, *options], self.folder / f"{program.name}.log", ready)

    def _token_file(self) -> Path:
        path = self.folder / "tokens.csv"
        path.touch(mode=0o600)
        path.write_text("".join(f"{self.tokens[user]},{user},{user},{group}\n" for user, group in USERS.items()))
        return path


def _options(flags: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
