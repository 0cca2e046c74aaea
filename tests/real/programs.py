"""Where the programs of a control plane come from. `scripts/controlplane` builds what is not given, in the same order.

1. KUBEBUILDER_ASSETS, a folder with etcd and kube-apiserver. Without a kube-controller-manager in it there are no
   default service accounts, no garbage collection and no Deployments, and tests that need them are skipped.
2. The PATH, if the whole set is there, or for Consul the one program.
3. `.cache/controlplane`.

kwok comes from the PATH or from `.cache/tools`, where `scripts/tools` builds it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CACHE = Path(__file__).parent.parent.parent / ".cache" / "controlplane"
TOOLS = CACHE.parent / "tools"
BUILD = "run scripts/controlplane, and read what it says"


class UnavailableError(Exception):
    """There is no such program here; the message says what to do."""


class Programs(NamedTuple):
    """The servers of a Kubernetes control plane, and its command-line client."""

    etcd: Path
    apiserver: Path
    controllers: Path | None
    kubectl: Path | None
    scheduler: Path | None = None


def kubernetes(environment: Mapping[str, str] = os.environ, cache: Path = CACHE) -> Programs:
    """Find the programs of Kubernetes."""
    if assets := environment.get("KUBEBUILDER_ASSETS"):
        return _in_folder(Path(assets), f"KUBEBUILDER_ASSETS={assets} has no etcd or no kube-apiserver")
    search = environment.get("PATH", os.defpath)
    etcd, apiserver, controllers, kubectl, scheduler = (
        _found(shutil.which(name, path=search))
        for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kube-scheduler")
    )
    if etcd and apiserver and controllers:
        return Programs(etcd, apiserver, controllers, kubectl, scheduler)
    return _in_folder(cache / "k8s", f"kube-apiserver and etcd are not built: {BUILD}")


def consul(environment: Mapping[str, str] = os.environ, cache: Path = CACHE) -> Path:
    """Find Consul."""
    found = _found(shutil.which("consul", path=environment.get("PATH", os.defpath)))
    built = cache / "consul" / "consul"
    if found is None and not built.exists():
        raise UnavailableError(f"Consul is not built: {BUILD}")
    return found or _resolved(built)


def kwok(environment: Mapping[str, str] = os.environ, tools: Path = TOOLS) -> Path:
    """Find kwok."""
    found = _found(shutil.which("kwok", path=environment.get("PATH", os.defpath)))
    built = tools / "kwok"
    if found is None and not built.exists():
        raise UnavailableError("kwok is not built: run scripts/tools, and read what it says")
    return found or built


def _in_folder(folder: Path, otherwise: str) -> Programs:
    etcd, apiserver = folder / "etcd", folder / "kube-apiserver"
    if not (etcd.exists() and apiserver.exists()):
        raise UnavailableError(otherwise)
    others = (folder / name for name in ("kube-controller-manager", "kubectl", "kube-scheduler"))
    controllers, kubectl, scheduler = (_resolved(path) if path.exists() else None for path in others)
    return Programs(_resolved(etcd), _resolved(apiserver), controllers, kubectl, scheduler)


def _resolved(path: Path) -> Path:
    """Follow the link to this build, but keep the program's name: one binary is many programs by it."""
    return path.parent.resolve() / path.name


def _found(path: str | None) -> Path | None:
    return Path(path) if path else None
