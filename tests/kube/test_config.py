"""Kubeconfig files, and where the API server is found."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from wigwag.errors import UsageError
from wigwag.kube.config.cluster import Cluster, KubeUser, Plugin, choose, find_cluster
from wigwag.kube.config.kubeconfig import merged
from wigwag.kube.config.tls import ClusterTrust

PEM = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM.encode()).decode()
V1 = "client.authentication.k8s.io/v1"


def config(cluster: Any = None, user: Any = None, context: Any = None, **more: Any) -> bytes:
    """A kubeconfig with one of each. JSON is YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "preferences": {},
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443", **(cluster or {})}}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **(context or {})}}],
            **more,
        }
    ).encode()


def read(text: bytes, context: str = "") -> Cluster:
    return choose(merged([("/etc/kube/config", text)]), context)


@pytest.mark.parametrize(
    ("cluster", "user", "trust"),
    [
        ({}, {}, ClusterTrust()),
        ({"certificate-authority": "ca.crt"}, {}, ClusterTrust("/etc/kube/ca.crt")),
        ({"certificate-authority": "/ca.crt"}, {}, ClusterTrust("/ca.crt")),
        ({"certificate-authority-data": DATA}, {}, ClusterTrust(authority_data=PEM)),
        ({"certificate-authority-data": f"{DATA[:20]}\n  {DATA[20:]}"}, {}, ClusterTrust(authority_data=PEM)),
        ({"insecure-skip-tls-verify": True}, {}, ClusterTrust(insecure=True)),
        ({"tls-server-name": "kubernetes"}, {}, ClusterTrust(server_name="kubernetes")),
        (
            {},
            {"client-certificate": "me.crt", "client-key": "keys/me.key"},
            ClusterTrust("", "/etc/kube/me.crt", "/etc/kube/keys/me.key"),
        ),
        (
            {},
            {"client-certificate-data": DATA, "client-key-data": DATA},
            ClusterTrust(certificate_data=PEM, key_data=PEM),
        ),
    ],
)
def test_whom_to_believe_and_what_to_show(cluster: Any, user: Any, trust: ClusterTrust) -> None:
    assert read(config(cluster, user)).trust == trust


@pytest.mark.parametrize(
    ("given", "user"),
    [
        ({}, KubeUser()),
        (None, KubeUser()),
        ({"token": "t"}, KubeUser("t")),
        ({"token": "t", "tokenFile": "token"}, KubeUser("t", "/etc/kube/token")),
        ({"username": "me", "password": "p"}, KubeUser(basic="me:p")),
        (
            {"token": "t", "as": "jane", "as-uid": "7", "as-groups": ["a", "b"]},
            KubeUser(
                "t",
                impersonation=(
                    ("Impersonate-User", "jane"),
                    ("Impersonate-Uid", "7"),
                    ("Impersonate-Group", "a"),
                    ("Impersonate-Group", "b"),
                ),
            ),
        ),
        (
            {"exec": {"apiVersion": V1, "command": "aws", "args": ["eks"], "env": [{"name": "A", "value": "b"}]}},
            KubeUser(plugin=Plugin(V1, "aws", ("eks",), (("A", "b"),))),
        ),
        (
            {"exec": {"apiVersion": f"{V1}beta1", "command": "bin/aws", "args": None, "installHint": "get it"}},
            KubeUser(plugin=Plugin(f"{V1}beta1", "/etc/kube/bin/aws", hint="get it")),
        ),
    ],
)
def test_how_to_prove_who_we_are(given: Any, user: KubeUser) -> None:
    assert read(config(user=given)).user == user


def test_a_plugin_is_told_about_the_cluster_if_it_wants_to_know() -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster = {"certificate-authority-data": DATA, "tls-server-name": "n", "extensions": [extension]}
    user = {"exec": {"apiVersion": V1, "command": "aws", "provideClusterInfo": True}}
    plugin = read(config(cluster, user)).user.plugin
    assert plugin is not None
    assert json.loads(plugin.cluster) == {
        "server": "https://api.example:6443",
        "certificate-authority-data": DATA,
        "tls-server-name": "n",
        "config": {"audience": "x"},
    }


def test_contexts_namespaces_and_proxies() -> None:
    more = [
        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}},
        {"name": "there", "context": {"cluster": "d"}},
    ]
    clusters = [
        {"name": "c", "cluster": {"server": "https://c/", "proxy-url": "http://proxy:3128"}},
        {"name": "d", "cluster": {"server": "https://d:1/k8s/clusters/x/"}},
    ]
    text = config(user={"token": "t"}, contexts=more, clusters=clusters)
    assert read(text) == Cluster("https://c", user=KubeUser("t"), namespace="team-a", proxy="http://proxy:3128")
    assert read(text, "there") == Cluster("https://d:1/k8s/clusters/x")


def test_of_several_files_the_first_word_counts_and_paths_belong_to_their_file() -> None:
    first = config(user={"tokenFile": "token"}, clusters=None, **{"current-context": None})
    second = config({"server": "https://second", "certificate-authority": "ca"}, {"token": "not this one"})
    found = choose(merged([("/a/config", first), ("/b/config", second)]))
    assert found == Cluster("https://second", ClusterTrust("/b/ca"), KubeUser("", "/a/token"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "not a kubeconfig: not valid YAML"),
        (b"- 1", "not a kubeconfig: Expected `object`, got `array`"),
        (b"clusters: {}", "not a kubeconfig: Expected `array`, got `object` - at `$.clusters`"),
        (config(user={"token": 5}), "not a kubeconfig: Expected `str`, got `int` - at `$.users[0].user.token`"),
        (b"", "the kubeconfig has no current-context"),
        (config(**{"current-context": "x"}), "the kubeconfig has no context 'x'"),
        (config(context={"cluster": "x"}), "/etc/kube/config: context 'here' has no cluster 'x'"),
        (config(context={"user": "x"}), "/etc/kube/config: context 'here' has no user 'x'"),
        (config({"server": ""}), "cluster 'c': the cluster's server: the URL is not of the scheme http or https"),
        (config({"proxy-url": "socks5://x"}), "cluster 'c': the cluster's proxy-url: only http:// proxies"),
        (config({"certificate-authority-data": "!"}), "cluster 'c': certificate-authority-data is not base64 of PEM"),
        (
            config({"certificate-authority": "x", "insecure-skip-tls-verify": True}),
            "cluster 'c': certificate-authority and insecure-skip-tls-verify exclude each other",
        ),
        (config(user={"client-certificate": "x"}), "user 'u': a client certificate needs its key"),
        (config(user={"client-key-data": DATA}), "user 'u': a client certificate needs its key"),
        (config(user={"auth-provider": {"name": "gcp"}}), "user 'u': auth-provider is no longer supported"),
        (
            config(user={"exec": {"apiVersion": f"{V1}alpha1", "command": "x"}}),
            "user 'u': exec: apiVersion must be client.authentication.k8s.io/v1 or v1beta1",
        ),
        (config(user={"exec": {"apiVersion": V1}}), "user 'u': exec: has no command"),
        (
            config(user={"exec": {"apiVersion": V1, "command": "x", "interactiveMode": "Always"}}),
            "user 'u': exec: interactiveMode is Always, but nobody can answer",
        ),
        (
            config(user={"exec": {"apiVersion": V1, "command": "x", "env": [{"value": "x"}]}}),
            "user 'u': exec: env has a variable without a proper name",
        ),
    ],
)
def test_what_cannot_be_is_told_with_its_place(text: bytes, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert said in str(caught.value)


def test_no_secret_is_shown() -> None:
    user = {"token": "SECRET", "username": "u", "password": "SECRET", "client-key-data": DATA}
    exec_ = {"apiVersion": V1, "command": "x", "args": ["SECRET"], "env": [{"name": "A", "value": "SECRET"}]}
    shown = repr(read(config(user={**user, "client-certificate-data": DATA, "exec": exec_})))
    assert "SECRET" not in shown
    assert "BEGIN" not in shown
    with pytest.raises(UsageError) as caught:
        read(config(user={"token": ["SECRET"]}))
    assert "SECRET" not in str(caught.value)


def account(folder: Path) -> Path:
    """A service account as a pod has it."""
    folder.mkdir()
    (folder / "token").write_text("t")
    (folder / "ca.crt").write_text(PEM)
    (folder / "namespace").write_text("team-a\n")
    return folder


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_pod_finds_its_api_server(tmp_path: Path) -> None:
    folder = account(tmp_path / "account")
    found = find_cluster(POD, account=str(folder))
    assert found == Cluster(
        "https://10.0.0.1:443", ClusterTrust(f"{folder}/ca.crt"), KubeUser(token_file=f"{folder}/token"), "team-a"
    )
    assert find_cluster({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, account=str(folder)).server == (
        "https://[fd00::1]:443"
    )


def test_what_is_said_explicitly_goes_before_kubeconfig_before_the_pod_before_the_home(tmp_path: Path) -> None:
    folder = account(tmp_path / "account")
    (tmp_path / ".kube").mkdir()
    for name in ("explicit", "named", ".kube/config"):
        (tmp_path / name).write_bytes(config({"server": f"https://{name.removeprefix('.kube/')}"}))
    environment = {**POD, "KUBECONFIG": f":{tmp_path}/missing:{tmp_path}/named", "HOME": str(tmp_path)}

    def server(path: str = "", without: str = "") -> str:
        left = {name: value for name, value in environment.items() if not name.startswith(without or "-")}
        return find_cluster(left, path, account=str(folder)).server

    assert server(str(tmp_path / "explicit")) == "https://explicit"
    assert server() == "https://named"
    assert server(without="KUBECONFIG") == "https://10.0.0.1:443"
    assert server(without="KUBE") == "https://config"
    with pytest.raises(UsageError, match="no Kubernetes is configured"):
        find_cluster({}, account=str(folder))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "missing"}, "missing: no such file; name the kubeconfig that you mean"),
        ({"path": "."}, ": Is a directory; name a kubeconfig that can be read"),
        ({"environment": {"KUBECONFIG": "missing:gone"}}, "missing:gone: no such file; KUBECONFIG must name"),
    ],
)
def test_files_that_are_not_there(tmp_path: Path, given: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_cluster(**{"environment": {}, "home": str(tmp_path), **given})
    assert said in str(caught.value)
