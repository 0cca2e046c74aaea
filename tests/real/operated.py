"""A cluster with the operator at work: a control plane, the test kubelet, and `wigwag operator` as a process.

    with OperatedPlane(folder) as operated:
        operated.cluster.…

The API server calls the operator's webhooks, the controllers act on the objects, and pods run their agents. The
installation is that of the original, as far as the operator counts on it: its namespace, its Deployment, which owns the
proxy and has no pods here, and the proxy's account.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.real import programs
from tests.real.cluster import Cluster
from tests.real.controlplane import ControlPlane
from tests.real.gateway import install_routes
from tests.real.kubelet import Kubelet
from tests.real.operators import OperatorProcess
from tests.real.processes import claim_port, until
from tests.real.workloads import deployment, template
from wigwag.operator.names import ENABLED, OPERATOR_DEPLOYMENT, PROXY_ACCOUNT

SYSTEM = "open-feature-operator-system"
_RBAC = "rbac.authorization.k8s.io"


class OperatedPlane:
    """All of it, until the block ends. `options` and `variables` are the operator's."""

    def __init__(self, folder: Path, *options: str, **variables: str) -> None:
        self.folder, self._options, self._variables = folder, options, variables
        self.plane = ControlPlane(folder / "plane", programs.kubernetes())
        self.cluster = self.plane.cluster
        self._stack, self._port = ExitStack(), claim_port()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.plane)
            install(self.cluster)
            stack.enter_context(Kubelet(self.cluster.access, self.folder / "kubelet"))
            self._stack = stack.pop_all()
        try:
            self.start_operator()
            self._register()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.operator.__exit__(kind, error, trace)
        self._stack.close()

    def start_operator(self) -> None:
        """Start the operator, where the API server looks for it; the one before it has to have ended."""
        config = self.cluster.access.kubeconfig(self.folder / "operator.kubeconfig")
        environment = {"KUBECONFIG": str(config), "POD_NAMESPACE": SYSTEM, **self._variables}
        options = ("--leader-elect", f"--webhook-bind-address=127.0.0.1:{self._port}", *self._options)
        self.operator = OperatorProcess(*options, environment=environment)
        self.operator.__enter__()

    def stop_operator(self) -> None:
        """Stop the operator as Kubernetes does."""
        assert self.operator.stop() == 0
        self.operator.__exit__(None, None, None)

    def _register(self) -> None:
        """Let the API server know of the webhooks, and wait until it calls them: before, it injects nothing."""
        self.operator.register(self.cluster, namespace=SYSTEM)
        about = {"name": "orphan", "annotations": {ENABLED: "true"}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template("orphan")["spec"]}
        path, query = self.cluster.path("v1", "Pod", "default"), {"dryRun": "All"}

        def called() -> bool:
            return b"orphaned pods" in self.cluster.rest.ask("POST", path, pod, query=query).body

        until(called, "a call of the webhooks")


def install(cluster: Cluster) -> None:
    """Make what the operator finds in a cluster where it is installed."""
    install_routes(cluster)
    system = cluster.add_namespace(SYSTEM)
    system.apply(deployment(OPERATOR_DEPLOYMENT, replicas=0))
    system.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": PROXY_ACCOUNT}})
    rule = {"apiGroups": ["core.openfeature.dev"], "resources": ["featureflags"], "verbs": ["get", "list", "watch"]}
    about: dict[str, Any] = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": PROXY_ACCOUNT}}
    cluster.apply({**about, "kind": "ClusterRole", "rules": [rule]})
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": PROXY_ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": PROXY_ACCOUNT, "namespace": SYSTEM}
    cluster.apply({**about, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]})
