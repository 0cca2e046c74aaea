"""Real servers as fixtures. They start when the first test asks for them, once for all workers of a run.

| fixture | what a test gets |
|---|---|
| `cluster` | the shared Kubernetes, asked as its administrator |
| `namespace` | a namespace of its own in it |
| `operated` | another shared Kubernetes, with the operator and a kubelet at work |
| `consul` | the shared Consul |
| `prefix` | a place of its own among the keys of it |
| `private_plane`, `private_consul` | makes servers of its own, to be killed, paused and restored |
| `consul_cluster` | two servers of Consul, to be without a leader |
| `kubeconfig` | has agents ask as somebody |
| `tapped` | has a line to an API server that can be listened to and cut |

With WIGWAG_TEST_KUBECONFIG=FILE, `cluster` is the one that the file's current context names. KUBECONFIG alone is not
enough, because the tests make namespaces, roles and custom resource definitions there. The definitions stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.real import programs
from tests.real.access import Access
from tests.real.cluster import Cluster, Namespace
from tests.real.consul import Consul, ConsulCluster, ConsulServer
from tests.real.controlplane import DEFINITIONS, ControlPlane
from tests.real.shared import shared
from tests.real.tap import Tap


@contextmanager
def loudly(server: str) -> Iterator[None]:
    """Skip what needs programs that are not here; with CI=true a skip is a failure."""
    try:
        yield
    except programs.UnavailableError as error:
        pytest.skip(f"NOTHING WAS TESTED AGAINST A REAL {server}: {error}")


def of_the_run(factory: pytest.TempPathFactory, config: pytest.Config, name: str) -> Path:
    """Return a folder that all workers of this run have in common."""
    base = factory.getbasetemp()
    return (base.parent if hasattr(config, "workerinput") else base) / name


@pytest.fixture(scope="session")
def plane_state(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[dict[str, Any]]:
    """What the keeper tells about the shared control plane."""
    with loudly("KUBERNETES"):
        programs.kubernetes()
    with shared("kubernetes", of_the_run(tmp_path_factory, pytestconfig, "kubernetes")) as state:
        yield state


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    given = os.environ.get("WIGWAG_TEST_KUBECONFIG")
    if given:
        found = Cluster(Access.from_kubeconfig(Path(given)))
        found.install(DEFINITIONS)
        return found
    return _cluster(request.getfixturevalue("plane_state"))


def _cluster(state: dict[str, Any]) -> Cluster:
    return Cluster(Access(state["server"], state["authority"], state["tokens"]["admin"]), state["controllers"])


@pytest.fixture(scope="session")
def operated(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    with loudly("KUBERNETES"):
        programs.kubernetes()
    with shared("operated", of_the_run(tmp_path_factory, pytestconfig, "operated")) as state:
        yield _cluster(state)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    made = cluster.add_namespace()
    yield made
    made.remove()


@pytest.fixture(scope="session")
def consul(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Consul]:
    with loudly("CONSUL"):
        programs.consul()
    with shared("consul", of_the_run(tmp_path_factory, pytestconfig, "consul")) as state:
        yield Consul(state["address"])


@pytest.fixture
def prefix(consul: Consul) -> Iterator[str]:
    made = f"test-{uuid4().hex[:12]}"
    yield made
    consul.delete(f"{made}/", below=True)


@pytest.fixture
def private_plane(tmp_path: Path) -> Iterator[Callable[..., ControlPlane]]:
    """`private_plane(flags=["--watch-cache=false"])` starts a control plane, which ends with the test."""
    with loudly("KUBERNETES"):
        found = programs.kubernetes()
    with ExitStack() as planes:
        yield lambda **options: planes.enter_context(ControlPlane(tmp_path / uuid4().hex[:8], found, **options))


@pytest.fixture
def consul_cluster(tmp_path: Path) -> Iterator[ConsulCluster]:
    """Two servers: without either of them there is no leader."""
    with loudly("CONSUL"):
        found = programs.consul()
    with ConsulCluster(tmp_path / "consul", found) as servers:
        yield servers


@pytest.fixture
def private_consul(tmp_path: Path) -> Iterator[Callable[..., ConsulServer]]:
    """`private_consul(acl=True)` starts a Consul, which ends with the test."""
    with loudly("CONSUL"):
        found = programs.consul()
    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(ConsulServer(tmp_path / uuid4().hex[:8], found, **options))


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Access], Path]:
    """Have agents ask as somebody."""

    def use(access: Access) -> Path:
        path = access.kubeconfig(tmp_path / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", str(path))
        return path

    return use


@pytest.fixture
def tapped(tmp_path: Path) -> Iterator[Callable[[Access], Tap]]:
    """`tapped(cluster.access)` begins to listen, until the test ends."""
    with ExitStack() as taps:
        yield lambda access: taps.enter_context(Tap(access, tmp_path))
