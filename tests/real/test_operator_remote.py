"""Remote providers of FeatureFlags, end to end: what clients of an agent see while a remote and its Secret come and go.

Remotes are servers on loopback, which the agents of the test kubelet reach as any address.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
import yaml
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from tests.agent.process import fetch
from tests.agent.upstreams import HttpUpstream
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.conftest import of_the_run
from tests.real.consul import ConsulServer
from tests.real.processes import until
from tests.real.workloads import App, agent_of, deployment, flagd, resolve, source, sources_of
from tests.sources.faulty import Asked, Behaviour, Server, answer
from tests.sources.grpc_server import SyncServer
from tools.manifests import ROOT
from wigwag.operator.names import ALLOW_FROM

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


@pytest.fixture
def log(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Callable[[Mapping[str, Any]], str]:
    """Return what the agent of a pod has logged."""
    kubelet = of_the_run(tmp_path_factory, pytestconfig, "operated") / "data" / "kubelet"
    return lambda pod: (kubelet / pod["metadata"]["uid"][:8] / "flagd.log").read_text()


def test_a_secret_may_come_later_and_is_rotated_without_a_restart(
    namespace: Namespace, log: Callable[[Mapping[str, Any]], str]
) -> None:
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
        assert (live["metadata"]["uid"], agent_restarts(live)) == (pod["metadata"]["uid"], 0)
        check_secrecy(live, log(live))


def agent_restarts(pod: Mapping[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"]["initContainerStatuses"])


def check_secrecy(pod: Mapping[str, Any], log: str) -> None:
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
    assert "is serving" in log
    for each in (SECRET, NEXT):
        assert each not in shown + log
        assert each not in json.dumps(pod)


class GuardedSync(SyncServer):
    """Streams to whoever has the token; when that is another one, streams with the old one are ended."""

    def __init__(self, document: str, token: str) -> None:
        super().__init__(document)
        self._token, self.refused = token, 0

    def rotate(self, document: str, token: str) -> None:
        with self._changed:
            self._document, self._token = document, token
            self._changed.notify_all()

    def SyncFlags(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802 - the service's name
        given = dict(context.invocation_metadata()).get("authorization")
        sent = ""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._document != sent)  # noqa: B023 - called at once
                if self._over:
                    return
                if given != f"Bearer {self._token}":
                    self.refused += 1
                    context.abort(grpc.StatusCode.UNAUTHENTICATED, f"not with {given!r}")
                sent = self._document
            yield sync_pb2.SyncFlagsResponse(flag_configuration=sent)


def test_a_grpc_stream_that_is_refused_comes_back_with_the_secret_of_now(namespace: Namespace) -> None:
    with GuardedSync(document(only="remote"), SECRET) as server:
        namespace.apply(secret(token=SECRET, uri=f"grpc://127.0.0.1:{server.port}"))
        remote = {"type": "grpc", "uri": f"127.0.0.1:{server.port}", "credentials": {"secret": "remote"}, "interval": 0}
        namespace.apply(feature_flag({**remote, "selector": "team=a"}, own="local"))
        pod = run_app(namespace, "file")
        sees(pod, own="local", only="remote")
        server.rotate(document(only="rotated"), NEXT)
        until(lambda: server.refused, "the end of the stream with the old token")
        sees(pod, own="local", only="remote")
        namespace.apply(secret(token=NEXT, uri=f"grpc://127.0.0.1:{server.port}"))
        sees(pod, own="local", only="rotated")
        assert agent_restarts(App(namespace, "web").ready()) == 0
        assert SECRET not in json.dumps(remote_status(pod, "grpc"))


def test_keys_of_consul_are_a_remote_of_a_flagd(
    namespace: Namespace, private_consul: Callable[..., ConsulServer]
) -> None:
    consul = private_consul(acl=True).consul
    consul.put("team/flags.json", document(both="remote", only="remote"))
    _, token = consul.add_token('key_prefix "team/" { policy = "read" }')
    uri = f"consul://{consul.address.removeprefix('http://')}/team/flags.json"
    remote = {"type": "consul", "uri": uri, "strategy": "override", "credentials": {"secret": "remote"}, "interval": 0}
    namespace.apply(secret(token=token))
    namespace.apply(feature_flag(remote, both="local", own="local"))
    namespace.apply(source("source", {"source": "flags"}))
    namespace.apply(flagd("served", "source"))
    pod = App(namespace, "served").ready()
    sees(pod, both="remote", only="remote", own="local")
    consul.put("team/flags.json", document(only="changed"))
    sees(pod, both="local", only="changed", own="local")
    assert token not in json.dumps(pod)


def test_a_bad_remote_is_refused_and_a_good_one_is_in_the_status(namespace: Namespace) -> None:
    path, rest = namespace.path(OPENFEATURE, "FeatureFlag"), namespace.cluster.rest
    cases = {
        "did you mean http?": {"type": "htpp", "uri": "https://flags.example.com/a.json"},
        "spec.remoteFlagProvider.uri": {"type": "http", "uri": "https://me:hush@flags.example.com/a.json"},
        "credentials.secret": {"type": "http", "uri": "https://flags.example.com/a.json?token=hush"},
        "write s3://BUCKET/OBJECT": {"type": "s3", "uri": "https://flags.example.com/a.json"},
        "Unsupported value": {"type": "http", "uri": "https://flags.example.com/a.json", "strategy": "replace"},
    }
    for words, remote in cases.items():
        refused = rest.ask("POST", path, feature_flag(remote, own="local"))
        assert refused.status in (403, 422), refused.body
        assert words in refused.json["message"]
    good = {"type": "http", "uri": "https://flags.example.com/a.json", "credentials": {"secret": "remote"}}
    namespace.apply(feature_flag(good))

    def resolved() -> str:
        conditions = namespace.cluster.get(f"{path}/flags").get("status", {}).get("conditions") or []
        return next((each["message"] for each in conditions if each["type"] == "Resolved"), "")

    until(resolved, "the condition Resolved")
    assert "Secret remote of their own namespace" in resolved()


def test_another_namespaces_remote_gets_none_of_our_secrets_and_a_change_rolls_workloads(
    cluster: Cluster, namespace: Namespace
) -> None:
    other = cluster.add_namespace()
    with http_remote(document(only="remote")) as upstream:
        namespace.apply(secret(token=SECRET))
        evil = {"type": "http", "uri": url_of(upstream), "credentials": {"secret": "remote"}}
        granted = {"metadata": {"name": "flags", "annotations": {ALLOW_FROM: namespace.name}}}
        other.apply({**feature_flag(evil, both="theirs"), **granted})
        namespace.apply(feature_flag({"type": "http", "uri": url_of(upstream)}, own="local"))
        entries = ({"source": f"{other.name}/flags", "provider": "kubernetes"}, {"source": "flags"})
        namespace.apply(source("source", *entries, rolloutOnChange=True))
        namespace.apply(deployment("web", "source"))
        pod = App(namespace, "web").ready()
        sees(pod, both="theirs", own="local", only="remote")
        assert not [each for each in pod["spec"]["volumes"] if "secret" in each]
        assert len(sources_of(agent_of(pod))) == 3, "their flags, ours, and our remote"
        path = namespace.path(OPENFEATURE, "FeatureFlagSource", "source")
        until(lambda: cluster.get(path).get("status", {}).get("remotes"), "the remotes that workloads run with")

        override = {"type": "http", "uri": url_of(upstream), "strategy": "override"}
        namespace.apply(feature_flag(override, own="local", only="local"))
        again = App(namespace, "web").ready(without=[pod["metadata"]["uid"]])
        sees(again, own="local", only="remote")
    other.remove()


EXAMPLE = ROOT / "deploy" / "examples" / "remote-flags.yaml"


def test_the_guides_manifest_works_with_the_address_of_a_server_here(namespace: Namespace) -> None:
    with http_remote("") as upstream:
        upstream.behave(guarded(document(**{"new-checkout": "remote", "banner": "spring"}), {"CHANGE-ME"}))
        text = EXAMPLE.read_text().replace("https://flags.example.com/team-a.json", url_of(upstream))
        for manifest in yaml.safe_load_all(text):
            namespace.apply(manifest)
        pod = App(namespace, "checkout").ready()
        sees(pod, banner="spring")
        assert resolve(pod, "new-checkout")["variant"] == "off", "the local definition wins"
    shown = (ROOT / "docs" / "guides" / "remote-flags.md").read_text()
    assert EXAMPLE.read_text().rstrip() in shown
