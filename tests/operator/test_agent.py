"""The agent's container.

| group | test |
|---|---|
| U26 to U31 | `test_u26_to_u31_arguments_have_an_order` |
| U32 | `test_u32_a_block_of_resources_replaces_that_of_the_operator` |
| U33 | `test_u33_arguments_of_sync_providers_are_not_passed_on` |
| U47 | `test_u47_standalone_it_is_a_regular_container` |
| U49 | `test_u49_the_security_context_is_the_originals` |
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.known import source_object
from wigwag.agent.options import AgentOptions
from wigwag.operator.injection.agent import AgentParts, agent_container, arguments, native_sidecar, socket_directory
from wigwag.operator.injection.sources import AgentSource
from wigwag.operator.resources.kubernetes import ResourceRequirements
from wigwag.options import declared
from wigwag.sources.kinds import parse_sources

RESOURCES = ResourceRequirements({"cpu": "0.2", "memory": "32M"}, {"cpu": "0.5", "memory": "64M"})
PARTS = AgentParts(image="flagd:1", sources=[AgentSource(uri="a", provider="http")], resources=RESOURCES, mounts={})
SOURCES = ["--sources", '[{"uri":"a","provider":"http"}]']
FIRST = ["start", "--management-port", "8014", "--port", "8013"]
OFREP = ["--ofrep-port", "8016"]


def container(**spec: Any) -> dict[str, Any]:
    return agent_container(source_object(**spec).spec, PARTS)


@pytest.mark.parametrize(
    ("spec", "added"),
    [
        ({}, []),
        ({"debugLogging": True}, ["--debug"]),
        ({"otelCollectorUri": "o:4317"}, ["--metrics-exporter", "otel", "--otel-collector-uri", "o:4317"]),
        ({"contextValues": {"b": "2", "a": "1"}}, ["--context-value", "a=1", "--context-value", "b=2"]),
        (
            {"headerToContextMappings": {"X-B": "b", "X-A": "a"}},
            ["--context-from-header", "X-A=a", "--context-from-header", "X-B=b"],
        ),
        ({"cors": ["https://b", "https://a"]}, ["--cors-origin", "https://b", "--cors-origin", "https://a"]),
    ],
)
def test_u26_to_u31_arguments_have_an_order(spec: dict[str, Any], added: list[str]) -> None:
    assert container(**spec)["args"] == [*FIRST, *SOURCES, *added, *OFREP]


def test_all_arguments_together_are_in_the_order_of_the_original() -> None:
    spec = source_object(
        debugLogging=True,
        otelCollectorUri="o",
        contextValues={"a": "1"},
        headerToContextMappings={"H": "h"},
        cors=["*"],
        ofrepPort=9,
    ).spec
    assert arguments(spec, []) == [
        *FIRST,
        "--debug",
        *("--metrics-exporter", "otel", "--otel-collector-uri", "o"),
        *("--context-value", "a=1", "--context-from-header", "H=h", "--cors-origin", "*", "--ofrep-port", "9"),
    ]


def test_our_agent_has_every_option_that_is_passed() -> None:
    spec = source_object(
        debugLogging=True,
        otelCollectorUri="o",
        contextValues={"a": "1"},
        headerToContextMappings={"H": "h"},
        cors=["*"],
        socketPath="/run/flagd/s",
    ).spec
    known = {each.long for each in declared(AgentOptions)}
    assert {each for each in arguments(spec, PARTS.sources) if each.startswith("--")} <= known


def test_our_agent_reads_the_sources_that_are_passed() -> None:
    sources = [
        AgentSource(uri="team-a/shop", provider="kubernetes"),
        AgentSource(uri="/etc/flagd/team-a_shop/team-a_shop.flagd.json", provider="file"),
        AgentSource(uri="https://a.test", provider="http", bearer_token="x", auth_header="Bearer x", interval=5),
        AgentSource(uri="a.test:1", provider="grpc", tls=True, cert_path="/c", provider_id="p", selector="s"),
        AgentSource(uri="s3://bucket/flags.json", provider="s3", interval=5),
    ]
    passed = arguments(source_object().spec, sources)
    remarks: list[str] = []
    parsed = parse_sources((), passed[passed.index("--sources") + 1], remarks.append)
    assert [each.provider for each in parsed] == [each.provider for each in sources]
    assert [each for each in remarks if "bearerToken" not in each] == []


def test_without_sources_and_without_ofrep_both_are_left_out() -> None:
    assert arguments(source_object(ofrepPort=0).spec, []) == FIRST


def test_u32_a_block_of_resources_replaces_that_of_the_operator() -> None:
    assert container()["resources"] == {
        "requests": {"cpu": "0.2", "memory": "32M"},
        "limits": {"cpu": "0.5", "memory": "64M"},
    }
    assert container(resources={"limits": {"cpu": "1"}})["resources"] == {
        "requests": {"cpu": "0.2", "memory": "32M"},
        "limits": {"cpu": "1"},
    }


def test_u33_arguments_of_sync_providers_are_not_passed_on() -> None:
    """Neither flagd 0.15 nor wigwag has `--sync-provider-args`: the container would exit."""
    assert container(syncProviderArgs=["a=b"])["args"] == container()["args"]


def test_u47_standalone_it_is_a_regular_container() -> None:
    assert "restartPolicy" not in container()
    assert native_sidecar(container()) == {**container(), "restartPolicy": "Always"}


def test_u49_the_security_context_is_the_originals() -> None:
    assert container()["securityContext"] == {
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container(securityContext={"runAsNonRoot": True})["securityContext"] == {"runAsNonRoot": True}


def test_the_container_is_the_originals_with_a_startup_probe() -> None:
    made = container(managementPort=9014, port=9013)
    assert (made["name"], made["image"], made["imagePullPolicy"]) == ("flagd", "flagd:1", "Always")
    assert made["ports"] == [{"name": "management", "containerPort": 9014}, {"name": "flagd", "containerPort": 9013}]
    ready = {"httpGet": {"path": "/readyz", "port": 9014}}
    assert made["livenessProbe"] == {"httpGet": {"path": "/healthz", "port": 9014}, "initialDelaySeconds": 5}
    assert made["readinessProbe"] == {**ready, "initialDelaySeconds": 5}
    assert made["startupProbe"] == {**ready, "periodSeconds": 1, "failureThreshold": 300}
    assert "volumeMounts" not in made
    assert container(imagePullPolicy="IfNotPresent")["imagePullPolicy"] == "IfNotPresent"


def test_probes_can_be_turned_off() -> None:
    assert not {"livenessProbe", "readinessProbe", "startupProbe"} & container(probesEnabled=False).keys()


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        ("/run/flagd/a.sock", "/run/flagd"),
        ("/run//flagd/../x/s", "/run/x"),
        ("/s", ""),
        ("s", ""),
        ("a/s", ""),
        ("", ""),
    ],
)
def test_the_directory_of_a_socket_is_shared_if_there_is_one(path: str, directory: str) -> None:
    assert socket_directory(source_object(socketPath=path).spec) == directory
