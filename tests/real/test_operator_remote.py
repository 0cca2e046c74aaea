"""Remote providers of FeatureFlags, end to end: what clients of an agent see while a remote and its Secret come and go.

Remotes are servers on loopback, which the agents of the test kubelet reach as any address.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.agent.process import fetch
from tests.agent.upstreams import HttpUpstream
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.processes import until
from tests.real.workloads import App, agent_of, deployment, resolve, source, sources_of
from tests.sources.faulty import Asked, Behaviour, Server, answer

SECRET, NEXT = "s3cr3t-of-the-remote", "the-next-s3cr3t"


@pytest.fixture(scope="session")
def cluster(operated: Cluster) -> Cluster:
    return operated


def flag(variant: str) -> dict[str, Any]:
    return {"state": "ENABLED", "variants": {variant: variant}, "defaultVariant": variant}


def document(**variants: str) -> str:
    return json.dumps({"flags": {key: flag(variant) for key, variant in variants.items()}})


def feature_flag(remote: Mapping[str, Any], **variants: str) -> dict[str, Any]:
    """Return a FeatureFlag `flags` with these flags, and a remote; without flags, it has no `flagSpec`."""
    spec = {"flagSpec": json.loads(document(**variants))} if variants else {}
    about = {"apiVersion": OPENFEATURE, "kind": "FeatureFlag", "metadata": {"name": "flags"}}
    return {**about, "spec": {**spec, "remoteFlagProvider": {"interval": 1, **remote}}}


def secret(name: str = "remote", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def run_app(namespace: Namespace, provider: str = "kubernetes", **spec: Any) -> dict[str, Any]:
    """Run a workload with an agent that uses the FeatureFlag; return its pod when it is ready."""
    namespace.apply(source("source", {"source": "flags", "provider": provider}, **spec))
    namespace.apply(deployment("web", "source"))
    return App(namespace, "web").ready()


def variant(pod: Mapping[str, Any], key: str) -> Any:
    return resolve(pod, key, kind="String").get("variant")


def sees(pod: Mapping[str, Any], **variants: str | None) -> None:
    """Wait until clients of the pod's agent get these variants."""
    until(lambda: all(variant(pod, key) == wanted for key, wanted in variants.items()), f"the variants {variants}")


def remote_status(pod: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return what the agent says about its remote."""
    sources = json.loads(fetch(f"{pod['status']['podIP']}:8014", "/debug/sources")[1])
    return next(each for each in sources if each["provider"] == kind)


def is_told(pod: Mapping[str, Any], kind: str, *words: str) -> None:
    def told() -> bool:
        return all(word in (remote_status(pod, kind)["error"] or "") for word in words)

    until(told, f"the error {words}")


def guarded(body: str, tokens: set[str]) -> Behaviour:
    """Serve a document to whoever has one of the tokens."""

    async def behave(asked: Asked, server: Server) -> bytes | bool:
        given = asked.headers.get("authorization", "").removeprefix("Bearer ")
        return await (answer(body.encode()) if given in tokens else answer(b"who?", "401 Unauthorized"))(asked, server)

    return behave


@contextmanager
def http_remote(body: str) -> Iterator[HttpUpstream]:
    with HttpUpstream() as upstream:
        upstream.serve(body)
        yield upstream


def url_of(upstream: HttpUpstream) -> str:
    return f"http://{upstream.address}/flags.json"


@pytest.mark.parametrize("provider", ["kubernetes", "file", "flagd-proxy"])
def test_a_remote_is_merged_and_its_outage_and_garbage_keep_all_flags(provider: str, namespace: Namespace) -> None:
    with http_remote(document(both="remote", only="remote")) as upstream:
        namespace.apply(feature_flag({"type": "http", "uri": url_of(upstream)}, both="local", own="local"))
        pod = run_app(namespace, provider)
        sees(pod, both="local", own="local", only="remote")
        upstream.behave(answer(b"<html>maintenance</html>"))
        until(lambda: remote_status(pod, "http")["error"], "the error of a document that is none")
        sees(pod, both="local", own="local", only="remote")
        upstream.refuse()
        is_told(pod, "http", "refused")
        namespace.apply(feature_flag({"type": "http", "uri": url_of(upstream)}, both="changed", own="local"))
        sees(pod, both="changed", own="local", only="remote")
        upstream.serve(document(both="remote", only="again"))
        sees(pod, both="changed", own="local", only="again")
        assert App(namespace, "web").ready()["metadata"]["uid"] == pod["metadata"]["uid"]


def test_the_remote_wins_with_override_and_flags_may_be_remote_only(namespace: Namespace) -> None:
    with http_remote(document(both="remote", only="remote")) as upstream:
        remote = {"type": "http", "uri": url_of(upstream), "strategy": "override"}
        namespace.apply(feature_flag(remote))
        pod = run_app(namespace)
        sees(pod, both="remote", only="remote")
        assert [each["provider"] for each in sources_of(agent_of(pod))] == ["kubernetes", "http"]
        namespace.apply(feature_flag(remote, both="local", own="local"))
        sees(pod, both="remote", only="remote", own="local")
        upstream.serve(document(only="remote"))
        sees(pod, both="local", only="remote", own="local")


def test_the_local_flags_are_served_though_the_remote_was_never_reached(namespace: Namespace) -> None:
    with http_remote(document(only="remote")) as upstream:
        upstream.refuse()
        namespace.apply(feature_flag({"type": "http", "uri": url_of(upstream)}, own="local"))
        pod = run_app(namespace)
        sees(pod, own="local", only=None)
        is_told(pod, "http", "refused")
        upstream.serve(document(only="remote"))
        sees(pod, own="local", only="remote")


def test_a_secret_may_come_later_and_is_rotated_without_a_restart(namespace: Namespace) -> None:
    """And nobody but the remote ever sees it."""
    with http_remote("") as upstream:
        tokens = {SECRET}
        upstream.behave(guarded(document(only="remote"), tokens))
        remote = {"type": "http", "uri": url_of(upstream), "credentials": {"secret": "remote"}}
        namespace.apply(feature_flag(remote, own="local"))
        pod = run_app(namespace, debugLogging=True)
        sees(pod, own="local", only=None)
        is_told(pod, "http", "token", "Secret")
        assert not upstream.asked, "nothing is sent without credentials"
        namespace.apply(secret(token=SECRET))
        sees(pod, own="local", only="remote")

        tokens.clear()
        is_told(pod, "http", "401")
        sees(pod, own="local", only="remote")
        tokens.add(NEXT)
        upstream.behave(guarded(document(only="rotated"), tokens))
        namespace.apply(secret(token=NEXT))
        sees(pod, own="local", only="rotated")

        live = App(namespace, "web").ready()
        assert live["metadata"]["uid"] == pod["metadata"]["uid"]
        statuses = live["status"]["initContainerStatuses"]
        assert [each["restartCount"] for each in statuses] == [0]
        check_secrecy(live)


def check_secrecy(pod: Mapping[str, Any]) -> None:
    """Check that the Secret reached the agent's container only, by a mount, and that nothing shows it."""
    (application,) = pod["spec"]["containers"]
    (volume,) = (each["name"] for each in pod["spec"]["volumes"] if "secret" in each)
    assert volume in {each["name"] for each in agent_of(pod)["volumeMounts"]}
    assert volume not in {each["name"] for each in application.get("volumeMounts") or []}
    assert "secretKeyRef" not in json.dumps(pod)
    address = pod["status"]["podIP"]
    pages = ("/metrics", "/debug/sources", "/debug/snapshots", "/debug/flags", "/readyz")
    shown = "".join(fetch(f"{address}:8014", page)[1].decode() for page in pages)
    assert "http" in shown
    for each in (SECRET, NEXT):
        assert each not in shown
        assert each not in json.dumps(pod)
