"""Finding the API server: what is said explicitly, else KUBECONFIG, else the pod that we are in, else ~/.kube/config.

That is flagd's order. A pod is told where its API server is by two variables of the environment, and finds its service
account in a folder. The token and the authority there are replaced while we run, so they are named here and not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.kube.config.cluster import Cluster, KubeUser, choose
from wigwag.kube.config.kubeconfig import LARGEST, merged
from wigwag.kube.config.tls import ClusterTrust

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_LONGEST_NAME = 253


def find_cluster(
    environment: Mapping[str, str], path: str = "", context: str = "", account: str = ACCOUNT, home: str = ""
) -> Cluster:
    """Return the cluster to talk to. `path`: of a kubeconfig, said explicitly; `account`: a pod's service account."""
    if path:
        return from_files([path], context)
    named = [each for each in environment.get("KUBECONFIG", "").split(":") if each]
    if named:
        return from_files(named, context, skip=True)
    if not context and in_a_pod(environment, account):
        return from_account(environment, account)
    own = Path(home or environment.get("HOME", ""), ".kube", "config")
    if own.is_absolute() and own.exists():
        return from_files([str(own)], context)
    raise UsageError("no Kubernetes is configured: set KUBECONFIG, write ~/.kube/config, or run in a pod")


def from_files(paths: Sequence[str], context: str = "", *, skip: bool = False) -> Cluster:
    """Read kubeconfig files. With `skip`, some may be missing, but not all."""
    found = [(path, text) for path in paths if (text := _read(path, skip)) is not None]
    if not found:
        raise UsageError(f"{':'.join(paths)}: no such file; KUBECONFIG must name at least one that exists")
    return choose(merged(found), context)


def in_a_pod(environment: Mapping[str, str], account: str = ACCOUNT) -> bool:
    """Tell whether this is a pod that may talk to its API server."""
    there = environment.get("KUBERNETES_SERVICE_HOST") and environment.get("KUBERNETES_SERVICE_PORT")
    return bool(there) and Path(account, "token").exists()


def from_account(environment: Mapping[str, str], account: str = ACCOUNT) -> Cluster:
    """Return the cluster whose pod we are."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    authority = Path(account, "ca.crt")
    return Cluster(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ClusterTrust(str(authority) if authority.exists() else ""),
        user=KubeUser(token_file=str(Path(account, "token"))),
        namespace=_namespace(Path(account, "namespace")),
    )


def _namespace(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_LONGEST_NAME + 1).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _read(path: str, skip: bool) -> bytes | None:
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        if skip:
            return None
        raise UsageError(f"{path}: no such file; name the kubeconfig that you mean") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a kubeconfig that can be read") from None
    if len(text) > LARGEST:
        raise UsageError(f"{path}: larger than {LARGEST} bytes; a kubeconfig is much smaller")
    return text
