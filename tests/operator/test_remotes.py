"""`remoteFlagProvider`: what is refused, what agents get, and whose workloads are rolled when it changes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.known import Laid, admit, agent_of, flagd_object, injected, pod, settings, source_object
from tests.operator.test_rollout import FLAGS, Cluster
from wigwag.kube.kinds import DEPLOYMENT
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.injection.verdict import Allowed, Denied, Verdict
from wigwag.operator.names import ALLOW_FROM, ObjectName
from wigwag.operator.reconcile.flagd import plan_flagd
from wigwag.operator.reconcile.flags import decode_flag, flag_config_maps, flag_status, read_flag
from wigwag.operator.reconcile.sources import SourceStatuses
from wigwag.operator.remoteflags import borrowed_problem, element, read_remote, remote_warnings
from wigwag.operator.resources.remoteflagprovider import TYPES, RemoteFlagProvider
from wigwag.operator.validation import validate_feature_flag
from wigwag.sources.kinds import parse_sources

NOW = 1_800_000_000.0
HTTPS = {"type": "http", "uri": "https://flags.example.com/team-a.json"}
LOCAL = {"source": "shop", "provider": "kubernetes"}


def remote(**members: Any) -> RemoteFlagProvider:
    return msgspec.convert({**HTTPS, **members}, RemoteFlagProvider)


def laid(*entries: dict[str, Any], remotes: dict[str, RemoteFlagProvider], **flags: dict[str, str]) -> Laid:
    known = Laid({"team-a/flags": source_object(*(entries or (LOCAL,)))}, state=ProxyState(1, NOW), remotes=remotes)
    known.flags = {"team-a/shop": {}, **flags}
    return known


def sources_of(container: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(container["args"][container["args"].index("--sources") + 1])
    return found


def validated(given: dict[str, Any], **spec: Any) -> Verdict:
    return validate_feature_flag(json.dumps({"spec": {**spec, "remoteFlagProvider": given}}).encode())


@pytest.mark.parametrize("provider", ["kubernetes", "file", "flagd-proxy"])
@pytest.mark.parametrize(("strategy", "place"), [("merge", 0), ("override", 1)])
def test_the_remote_is_a_source_before_or_behind_that_of_the_flag(provider: str, strategy: str, place: int) -> None:
    other = {"source": "grpc.test:9", "provider": "grpc"}
    known = laid({"source": "shop", "provider": provider}, other, remotes={"team-a/shop": remote(strategy=strategy)})
    agent = agent_of(injected(pod(), known))
    found = sources_of(agent)
    assert found.pop(place) == {"uri": HTTPS["uri"], "provider": "http", "optional": True}
    assert found[1]["uri"] == "grpc.test:9", "other sources keep their place"
    assert parse_sources((), found)


def test_all_settings_are_passed_on() -> None:
    given = remote(
        type="grpc", uri="flags.example.com:8015", selector="flagSetId=a", tls=True, providerID="shop", required=True
    )
    (found, _) = sources_of(agent_of(injected(pod(), laid(remotes={"team-a/shop": given}))))
    expected = {"uri": "flags.example.com:8015", "provider": "grpc", "tls": True}
    assert found == {**expected, "providerID": "shop", "selector": "flagSetId=a"}
    (polled, _) = sources_of(agent_of(injected(pod(), laid(remotes={"team-a/shop": remote(interval=30)}))))
    assert polled["interval"] == 30


def test_a_secret_is_mounted_into_the_agents_container_only_and_need_not_exist() -> None:
    known = laid(remotes={"team-a/shop": remote(credentials={"secret": "team-a-remote"})})
    changed = injected(pod(), known)
    (volume,) = changed["spec"]["volumes"]
    assert volume["secret"] == {"secretName": "team-a-remote", "optional": True}
    folder = "/etc/flagd/credentials/team-a-remote"
    agent, (application,) = agent_of(changed), changed["spec"]["containers"]
    assert agent["volumeMounts"] == [{"name": volume["name"], "mountPath": folder}]
    assert sources_of(agent)[0]["credentialsFolder"] == folder
    assert "volumeMounts" not in application
    assert "team-a-remote" not in json.dumps([application, agent["env"]])


def test_a_flagd_gets_the_same() -> None:
    known = laid(remotes={"team-a/shop": remote(credentials={"secret": "team-a-remote"})})
    plan = plan_flagd(flagd_object(), known, settings())
    (deployment,) = (each.body for each in plan.apply if each.kind == DEPLOYMENT)
    spec = deployment["spec"]["template"]["spec"]
    assert [each["provider"] for each in sources_of(spec["containers"][0])] == ["http", "kubernetes"]
    assert spec["volumes"][0]["secret"] == {"secretName": "team-a-remote", "optional": True}
    assert spec["containers"][0]["volumeMounts"][0]["name"] == spec["volumes"][0]["name"]


@pytest.mark.parametrize(
    "given",
    [
        {"credentials": {"secret": "theirs"}},
        {"uri": "http://127.0.0.1:15000/quitquitquit"},
        {"uri": "http://LocalHost:9/"},
        {"uri": "http://0x7f.1/"},
        {"uri": "http://[::1]/"},
        {"type": "grpc", "uri": "ipv4:10.0.0.1:9,127.0.0.1:9"},
    ],
)
def test_a_flag_of_another_namespace_decides_neither_over_secrets_nor_over_the_pods_own_ports(given: Any) -> None:
    entry = {"source": "ops/shop", "provider": "kubernetes"}
    known = laid(entry, remotes={"ops/shop": remote(**given)}, **{"ops/shop": {ALLOW_FROM: "team-a"}})
    verdict = admit(pod(), known)
    assert isinstance(verdict, Allowed)
    (warning,) = verdict.warnings
    assert "FeatureFlag ops/shop, which is in another namespace, is not used" in warning
    assert [each["provider"] for each in sources_of(agent_of(injected(pod(), known)))] == ["kubernetes"]
    known.remotes["ops/shop"] = remote()
    assert [each["provider"] for each in sources_of(agent_of(injected(pod(), known)))] == ["http", "kubernetes"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a typo": ({"type": "htttp"}, ".type: there is no kind 'htttp'; did you mean http?"),
    "a kind that is not remote": ({"type": "file", "uri": "/etc/passwd"}, ".type: there is no kind 'file'; use one of"),
    "a URI of another kind": ({"uri": "s3://flags/a.json"}, ".uri: 's3://flags/a.json' is not an HTTP URL"),
    "no host": ({"uri": "https:///a.json"}, ".uri: "),
    "a bad port": ({"type": "grpc", "uri": "flags.example.com:99999"}, ".uri: gRPC target"),
    "a Unix socket": ({"type": "grpc", "uri": "unix:/run/flags.sock"}, ".uri: is a Unix socket"),
    "a scheme that gRPC does not have": ({"type": "grpc", "uri": "https://flags.example.com"}, ".uri: gRPC target"),
    "a password": ({"uri": "https://me:hush@flags.example.com/"}, ".uri: has credentials in it"),
    "a token": ({"uri": "https://flags.example.com/?access_token=hush"}, ".uri: has credentials in it"),
    "a signature": ({"uri": "https://flags.example.com/a.json?X-Amz-Signature=hush"}, ".uri: has credentials in it"),
    "a password for gRPC": ({"type": "grpc", "uri": "me:hush@flags:8015"}, ".uri: has credentials or a query in it"),
    "a password for a store": ({"type": "s3", "uri": "s3://me:hush@flags/a.json"}, ".uri: has credentials in it"),
    "a token of Consul": ({"type": "consul", "uri": "consul://c:8500/a?token=hush"}, ".uri: has credentials in it"),
    "an unknown option of Consul": ({"type": "consul", "uri": "consul://c:8500/a?dcc=x"}, "did you mean dc?"),
    "Consul on no host": ({"type": "consul", "uri": "consul:///a"}, ".uri: names no host"),
    "a metadata service": ({"uri": "http://169.254.169.254/latest"}, "where clouds hand out credentials"),
    "a metadata service as a number": ({"uri": "http://2852039166/latest"}, "where clouds hand out credentials"),
    "a metadata service of IPv6": ({"uri": "http://[fd00:ec2::254]/"}, "where clouds hand out credentials"),
    "a metadata service by name": ({"uri": "http://metadata.google.internal/"}, "where clouds hand out credentials"),
    "a metadata service for gRPC": ({"type": "grpc", "uri": "169.254.169.254:80"}, "where clouds hand out"),
    "a metadata service as a store": (
        {"type": "s3", "uri": "s3://flags/a.json?endpoint=http://169.254.169.254"},
        "where clouds hand out credentials",
    ),
    "a metadata service in other digits": ({"uri": "http://\uff11\uff16\uff19.254.169.254/"}, ".uri: "),
    "a metadata service with a dot": ({"uri": "http://169.254.169.254./"}, "where clouds hand out credentials"),
    "an account that is an address": (
        {"type": "azblob", "uri": "azblob://a/b?storage_account=169.254.169.254%2f"},
        ".uri: has an option storage_account that cannot be right",
    ),
    "a region with a user in it": ({"type": "s3", "uri": "s3://a/b?region=x%40169.254.169.254"}, "an option region"),
    "an endpoint that is none": ({"type": "s3", "uri": "s3://a/b?endpoint=http://[x"}, ".uri: "),
    "a strategy that there is not": ({"strategy": "replace"}, "Invalid enum value 'replace'"),
    "an interval of a week": ({"interval": 700_000}, "<= 86400"),
    "a name that no Secret has": ({"credentials": {"secret": "../passwd"}}, "credentials.secret"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_remote_is_refused_with_path_and_remedy_and_without_its_secret(case: str) -> None:
    given, words = BAD[case]
    verdict = validated({**HTTPS, **given})
    assert isinstance(verdict, Denied), verdict
    assert verdict.code == 403
    assert verdict.message.startswith("spec.remoteFlagProvider")
    assert words in verdict.message
    assert "hush" not in verdict.message


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"uri": "https://flags.example.com/a.json?v=2"},
        {"type": "grpc", "uri": "grpcs://flags.example.com:8015", "selector": "x"},
        {"type": "grpc", "uri": "dns:///flags.example.com:8015"},
        {"type": "consul", "uri": "consuls://consul.example.com/flags/a.json?dc=east"},
        {"type": "s3", "uri": "s3://flags/a.json?region=eu-west-1"},
        {"type": "gcs", "uri": "gs://flags/a.json"},
        {"type": "azblob", "uri": "azblob://flags/a.json?storage_account=team"},
        {"uri": "http://127.0.0.1:8080/flags.json"},
    ],
)
def test_every_kind_that_reaches_elsewhere_is_accepted(given: dict[str, Any]) -> None:
    assert validated({**HTTPS, **given}) == Allowed()


URIS = st.one_of(
    st.text(max_size=60),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(
            ["http://", "https://", "s3://", "consul://", "azblob://", "gs://", "grpc://", "", "dns:", "ipv4:"]
        ),
        st.text("a:/@?#[]%.0x1&=;é \n", max_size=20),
        st.sampled_from(["", "?endpoint=", "?domain=[", "/a", ":99", "?region=%"]),
    ),
)


@given(st.sampled_from(TYPES), URIS)
def test_no_address_is_too_strange_to_be_checked(kind: str, uri: str) -> None:
    """A FeatureFlag is decoded in a watch, for all namespaces: one that raises would be the end of all."""
    written = read_remote(json.dumps({"type": kind, "uri": uri}).encode())
    assert written.is_there
    if written.usable:
        assert parse_sources((), [element(written.usable)])
        assert isinstance(borrowed_problem(written.usable), str)


def test_flagds_own_image_reads_no_secret_and_a_warning_says_so() -> None:
    known = laid(remotes={"team-a/shop": remote(credentials={"secret": "team-a-remote"})})
    verdict = admit(pod(), known, settings({"SIDECAR_IMAGE": "registry.test/flagd"}))
    assert isinstance(verdict, Allowed)
    assert "without the Secret team-a-remote" in verdict.warnings[0]


def test_what_has_no_effect_and_what_is_unsafe_is_a_warning() -> None:
    given = remote(type="grpc", uri="flags:8015", interval=5, credentials={"secret": "s"})
    assert remote_warnings(given) == [
        "spec.remoteFlagProvider.interval has no effect on a source of the kind grpc",
        "spec.remoteFlagProvider.uri: the credentials are sent without encryption; use TLS",
    ]
    assert not remote_warnings(remote(credentials={"secret": "s"}))
    assert validated({**HTTPS, "selector": "x"}).warnings == (  # type: ignore[union-attr]
        "spec.remoteFlagProvider.selector has no effect on a source of the kind http",
    )


def flag_object(given: Any, generation: int = 1) -> bytes:
    about = {"name": "shop", "namespace": "team-a", "generation": generation}
    return json.dumps({"metadata": about, "spec": {"remoteFlagProvider": given}}).encode()


def test_an_object_that_the_webhook_never_saw_is_used_without_its_bad_remote() -> None:
    cases: list[Any] = [{**HTTPS, "type": "ftp"}, {"type": "http"}, [], {**HTTPS, "uri": "http://169.254.169.254/"}]
    for bad in cases:
        assert decode_flag(msgspec.Raw(flag_object(bad))).remote is None
        status = flag_status(read_flag(flag_object(bad)), flag_config_maps(read_flag(flag_object(bad)), (), {}), NOW)
        states = {each.type: (each.status, each.reason) for each in status.conditions}
        assert states["Accepted"] == ("False", "Invalid")
        assert states["Resolved"] == ("False", "RemoteUnusable")
    assert decode_flag(msgspec.Raw(flag_object(HTTPS))).remote == remote()
    assert read_remote(b"null") == read_remote(b"")


def test_the_status_says_what_agents_get() -> None:
    observed = read_flag(flag_object({**HTTPS, "strategy": "override", "credentials": {"secret": "team-a-remote"}}))
    status = flag_status(observed, flag_config_maps(observed, (), {}), NOW)
    found = {each.type: each for each in status.conditions}
    assert (found["Accepted"].status, found["Resolved"].reason) == ("True", "RemoteAccepted")
    assert "Secret team-a-remote of their own namespace" in found["Resolved"].message
    without = read_flag(b'{"metadata": {"name": "shop", "namespace": "team-a"}}')
    status = flag_status(without, flag_config_maps(without, (), {}), NOW)
    assert "Resolved" not in {each.type for each in status.conditions}


def settle(cluster: Cluster) -> list[str]:
    """Reconcile until the source says that nobody is behind; return who was rolled."""
    before = len(cluster.rolled)
    cluster.settle()
    source = cluster.sources[str(FLAGS)]
    statuses = SourceStatuses(known=cluster, settings=settings(), now=NOW)
    status = statuses.of_source(FLAGS, source, cluster.workloads(), cluster.plan())
    cluster.sources[str(FLAGS)] = msgspec.structs.replace(source, status=status)
    assert cluster.plan().is_complete
    return cluster.rolled[before:]


def test_a_remote_that_changes_rolls_the_workloads_that_use_it_once() -> None:
    cluster = Cluster()
    cluster.source(FLAGS, sources=[LOCAL])
    cluster.workload("web")
    assert settle(cluster) == []
    for change in (remote(), remote(strategy="override"), remote(interval=7)):
        cluster.remotes["team-a/shop"] = change
        assert settle(cluster) == ["web"]
        assert settle(cluster) == []
    cluster.remotes["team-b/shop"] = remote()
    assert settle(cluster) == [], "pods of team-a use another flag of that name"
    cluster.source(FLAGS, 2, sources=[LOCAL])
    assert settle(cluster) == ["web"]
    del cluster.remotes["team-a/shop"]
    assert settle(cluster) == ["web"]
    assert cluster.sources[str(FLAGS)].status.remotes == {}


def test_a_change_of_a_remote_that_is_taken_back_half_way_rolls_those_again_that_had_it() -> None:
    cluster = Cluster()
    cluster.source(FLAGS, sources=[LOCAL])
    cluster.workload("a")
    cluster.workload("b")
    assert settle(cluster) == []
    cluster.remotes["team-a/shop"] = remote()
    assert cluster.settle(most=1) == 1
    del cluster.remotes["team-a/shop"]
    assert settle(cluster) == ["a"]
    assert cluster.rolled == ["a", "a"]


def test_without_rollout_on_change_a_remote_rolls_nothing_then_or_later() -> None:
    cluster = Cluster()
    cluster.source(FLAGS, sources=[LOCAL], rollout=False)
    cluster.workload("web")
    assert settle(cluster) == []
    cluster.remotes["team-a/shop"] = remote()
    assert settle(cluster) == []
    cluster.source(FLAGS, sources=[LOCAL], rollout=True)
    assert settle(cluster) == []
    assert list(cluster.sources[str(FLAGS)].status.remotes) == [str(ObjectName("team-a", "shop"))]
