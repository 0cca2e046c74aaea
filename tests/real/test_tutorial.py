"""docs/tutorial/kubernetes.md on a real API server: its manifests give agent and proxy all they need."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.agent.process import AgentProcess
from tests.documents import ROOT, contents
from tests.proxy.process import ProxyProcess
from tests.real.access import Access
from tests.real.agents import Client
from tests.real.cluster import Namespace

V1BETA1 = "core.openfeature.dev/v1beta1"


def manifests(text: str) -> list[Any]:
    return [manifest for block in contents(text, "yaml") for manifest in yaml.safe_load_all(block)]


def arguments(made: list[Any], name: str) -> list[str]:
    """Return what our container of a Deployment is called with, without its command."""
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in made
        if each["kind"] == "Deployment" and each["metadata"]["name"] == name
    )
    found: list[str] = (pod.get("initContainers") or pod["containers"])[0]["args"]
    return found


def test_the_steps_of_the_tutorial_lead_where_they_say(
    namespace: Namespace, kubeconfig: Callable[[Access], Path], tmp_path: Path
) -> None:
    text = (ROOT / "docs/tutorial/kubernetes.md").read_text()
    text = re.sub(r"namespace: shop\b", f"namespace: {namespace.name}", text)
    text = text.replace("core.openfeature.dev/shop/", f"core.openfeature.dev/{namespace.name}/")
    made = manifests(text)
    for manifest in made:
        namespace.cluster.apply(manifest)
    (patch,) = re.findall(r"^kubectl .* patch .*$", text, re.MULTILINE)
    change = json.loads(shlex.split(patch)[-1])

    kubeconfig(namespace.account("checkout"))
    start, *options = arguments(made, "checkout")
    assert start == "start"
    with AgentProcess(*options) as agent, Client(agent) as client:
        assert client.value("new-checkout") is False
        namespace.cluster.patch(namespace.path(V1BETA1, "FeatureFlag", "checkout"), change)
        client.sees(True, "new-checkout")

    kubeconfig(namespace.account("flags-proxy"))
    assert arguments(made, "flags-proxy")[:2] == ["proxy", "start"]
    places = [each.replace("/var/empty", str(tmp_path)) for each in arguments(made, "flags-proxy")[2:]]
    (through,) = (json.loads(block) for block in contents(text, "json"))
    with ProxyProcess(*places) as proxy:
        options = [each.replace("flags-proxy.shop.svc:8015", proxy.address("sync")) for each in through[1:]]
        with AgentProcess(*options) as agent, Client(agent) as client:
            assert client.value("new-checkout") is True
