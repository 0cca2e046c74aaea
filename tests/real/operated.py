"""A cluster with the operator at work: a control plane, the test kubelet, and `wigwag operator` as a process.

    with OperatedPlane(folder) as operated:
        operated.cluster.…

The API server calls the operator's webhooks, the controllers act on the objects, and pods run their agents. Everybody
has the rights that `deploy` gives them, and no others: the operator, the proxy and the agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.real import programs
from tests.real.cluster import Cluster, Namespace
from tests.real.controlplane import ControlPlane
from tests.real.fakenodes import FakeNodes
from tests.real.gateway import install_routes
from tests.real.kubelet import Kubelet
from tests.real.operators import OperatorProcess
from tests.real.processes import claim_port, until
from tests.real.workloads import template
from tools.manifests import KUSTOMIZE
from wigwag.operator.names import ENABLED, OPERATOR_ACCOUNT

SYSTEM = "open-feature-operator-system"


class OperatedPlane:
    """All of it, until the block ends. `server` are flags of the API server, `variables` the operator's.

    With `proxy_auth`, the component of that name is installed, too.
    With `fake_nodes`, there are so many in place of the kubelet: for thousands of pods in which nothing runs.
    """

    def __init__(
        self,
        folder: Path,
        server: Sequence[str] = (),
        fake_nodes: int = 0,
        *,
        proxy_auth: bool = False,
        options: Sequence[str] = (),
        **variables: str,
    ) -> None:
        self.folder, self._variables, self._proxy_auth, self._options = folder, variables, proxy_auth, options
        self.plane = ControlPlane(folder / "plane", programs.kubernetes(), server)
        self.cluster = self.plane.cluster
        self.kubelet = Kubelet(self.cluster.access, folder / "kubelet")
        self._nodes = FakeNodes(self.plane, fake_nodes) if fake_nodes else self.kubelet
        self._stack, self._port = ExitStack(), claim_port()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.plane)
            install(self.cluster)
            if self._proxy_auth:
                self.cluster.apply_files([KUSTOMIZE / "components" / "proxy-auth" / "rbac.yaml"])
            stack.enter_context(self._nodes)
            self._stack = stack.pop_all()
        try:
            self.start_operator()
            self.register()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.operator.__exit__(kind, error, trace)
        self._stack.close()

    def start_operator(self, *more: str, **variables: str) -> None:
        """Start the operator, where the API server looks for it; the one before it has to have ended.

        `more` are options of this one; `variables` are for it and those after it.
        """
        self._variables |= variables
        access = Namespace(self.cluster, SYSTEM).account(OPERATOR_ACCOUNT)
        config = access.kubeconfig(self.folder / "operator.kubeconfig")
        environment = {"KUBECONFIG": str(config), "POD_NAMESPACE": SYSTEM, **self._variables}
        options = [*self._options, "--leader-elect", f"--webhook-bind-address=127.0.0.1:{self._port}", *more]
        options += ["--proxy-auth=kubernetes"] if self._proxy_auth else []
        self.operator = OperatorProcess(*options, environment=environment)
        self.operator.__enter__()

    def restart_operator(self, *more: str, **variables: str) -> None:
        """Stop the operator, and start another one, as for `start_operator`."""
        self.stop_operator()
        self.start_operator(*more, **variables)

    def stop_operator(self) -> None:
        """Stop the operator as Kubernetes does."""
        assert self.operator.stop() == 0
        self.operator.__exit__(None, None, None)

    def register(self, revision: str = "") -> None:
        """Let the API server know of the webhooks, and wait until it calls them: before, it injects nothing."""
        self.operator.register(self.cluster, namespace=SYSTEM, revision=revision)
        until(self.is_called, "a call of the webhooks")

    def is_called(self) -> bool:
        """Tell whether the API server calls the webhook for pods: it takes a moment to notice a configuration."""
        about = {"name": "orphan", "annotations": {ENABLED: "true"}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template("orphan")["spec"]}
        path, query = self.cluster.path("v1", "Pod", "default"), {"dryRun": "All"}
        return b"orphaned pods" in self.cluster.rest.ask("POST", path, pod, query=query).body


def install(cluster: Cluster) -> None:
    """Install what the operator finds in a cluster, from `deploy`."""
    install_routes(cluster)
    operator = KUSTOMIZE / "operator"
    rights = sorted((KUSTOMIZE / "rbac").glob("[!k]*.yaml"))
    cluster.apply_files([operator / "namespace.yaml", *rights])
    cluster.apply(operator_deployment())


def operator_deployment() -> dict[str, Any]:
    """Return the operator's Deployment, which owns the proxy. It has no pods here."""
    manifest = yaml.safe_load((KUSTOMIZE / "operator" / "deployment.yaml").read_text())
    return {**manifest, "spec": {**manifest["spec"], "replicas": 0}}
