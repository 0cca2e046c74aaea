"""A real operator in a process of its own, on loopback, whose webhooks a real API server calls.

    kubeconfig(plane.cluster.access)                      # as whom it asks; sets KUBECONFIG
    with OperatorProcess("--leader-elect", environment={"SIDECAR_TAG": "v1"}) as operator:
        operator.register(plane.cluster)                  # the API server calls its webhooks from now on
        …
        assert operator.stop() == 0

It is ready when the block begins: all objects are read, and webhooks, metrics and probes are served. Webhook
configurations are of the whole cluster: use a control plane of your own, such as `tests.real.test_admission.plane`, and
delete the configurations when the test ends.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from tests.agent.process import AgentProcess
from tests.real.cluster import OPENFEATURE, Cluster
from tests.real.processes import tether, until
from wigwag.operator.admission.registration import MUTATING, VALIDATING, WebhookEndpoint, mutating, validating

_OF_OPERATORS = ("OPERATOR_", "SIDECAR_", "IN_PROCESS_", "FLAGD_", "POD_", "FLAGS_")


class OperatorProcess(AgentProcess):
    """`with OperatorProcess("--leader-elect") as operator:`; without POD_NAMESPACE it is in `default`."""

    command: ClassVar[tuple[str, ...]] = ("operator",)
    ports: ClassVar[tuple[str, ...]] = ("webhook-bind-address", "metrics-bind-address", "health-probe-bind-address")

    def __init__(self, *arguments: str, ready: bool = True, environment: Mapping[str, str] | None = None) -> None:
        """Without `ready`, the block begins as soon as it serves. `environment` is added to that of the test."""
        super().__init__(*arguments, ready=False)
        self._awaited, self._environment = ready, {"POD_NAMESPACE": "default", **(environment or {})}

    def spawn(self) -> subprocess.Popen[str]:
        """Start the process."""
        given = {each.partition("=")[0].lstrip("-") for each in self._arguments}
        addresses = [f"--{name}=127.0.0.1:0" for name in self.ports if name not in given]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_OPERATORS)}
        return subprocess.Popen(
            [*tether(), *self.program, *self.command, "--log-format=json", *addresses, *self._arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**inherited, **self._environment},
        )

    def __enter__(self) -> Self:
        super().__enter__()
        if self._awaited:
            until(lambda: self.fetch("probes", "/readyz")[0] == 200, "a ready operator")
        return self

    @property
    def url(self) -> str:
        """Where the webhooks are; the certificate is for this name."""
        return f"https://localhost:{self.port('admission')}"

    def register(self, cluster: Cluster, *, fail: bool = True, namespace: str = "operator", revision: str = "") -> None:
        """Have the API server call the webhooks from now on; see `register`."""
        register(cluster, self.url, fail=fail, namespace=namespace, revision=revision)


def register(cluster: Cluster, url: str, *, fail: bool = True, namespace: str = "operator", revision: str = "") -> None:
    """Register webhooks as a manifest does, without a CA, and wait until the operator has added it.

    Pods of `namespace` are not injected, as those of the operator's own namespace are not.
    """
    endpoint = WebhookEndpoint("", namespace=namespace, url=url)
    made = mutating(endpoint, fail=fail, revision=revision), validating(endpoint, fail=fail, revision=revision)
    for each in made:
        cluster.apply(each)
    until(lambda: all(trusted(cluster, each) for each in made), "the CA in both configurations")
    until(lambda: refuses_flags(cluster), "the API server calling the webhooks")


def refuses_flags(cluster: Cluster) -> bool:
    """Tell whether a flag that is wrong is refused: the API server knows of a configuration a moment later."""
    flag = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "none"}
    about = {"apiVersion": OPENFEATURE, "kind": "FeatureFlag", "metadata": {"name": "probe"}}
    body = {**about, "spec": {"flagSpec": {"flags": {"x": flag}}}}
    path = cluster.path(OPENFEATURE, "FeatureFlag", "default")
    return cluster.rest.ask("POST", path, body, query={"dryRun": "All"}).status == 403


def trusted(cluster: Cluster, made: Mapping[str, Any]) -> bool:
    """Tell whether all webhooks of a configuration have a CA."""
    kind = MUTATING if made["kind"] == MUTATING.kind else VALIDATING
    webhooks = cluster.get(kind.path(name=made["metadata"]["name"]))["webhooks"]
    return len(webhooks) == len(made["webhooks"]) and all(each["clientConfig"].get("caBundle") for each in webhooks)
