"""watt against real servers that are killed, frozen and forbidding, and with hooks that misbehave.

Each test names what the original does in the same situation, where that was measured.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from tests.real.access import Access
from tests.real.cluster import Cluster, Namespace
from tests.real.consul import Consul, ConsulServer
from tests.real.controlplane import ControlPlane
from tests.real.processes import claim_port, until
from tests.real.tap import Tap
from tests.real.test_watt import addresses, config_map, register
from tests.watt.process import PORT, Notified, WattProcess

Kubeconfig = Callable[[Access], Path]
VERBS = ["get", "list", "watch"]


class WatchSet:
    """A watch hook that prints a file; the test says what is in it, and how the hook ends."""

    def __init__(self, folder: Path, **watches: Any) -> None:
        self._answer, self._calls = folder / "watch-set.json", folder / "watch-hook-calls"
        self.command = f"cat > /dev/null; echo >> {self._calls}; . {self._answer}"
        self.answer(**watches)

    def answer(self, **watches: Any) -> None:
        """Have it answer with a watch set: `kubernetes_watches=[…]`."""
        content = json.dumps({name.replace("_", "-"): value for name, value in watches.items()})
        self.script(f"printf %s {shlex.quote(content)}")

    def script(self, text: str) -> None:
        """Have it run a script."""
        fresh = self._answer.with_suffix(".new")
        fresh.write_text(f"{text}\n")
        fresh.replace(self._answer)

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().splitlines()) if self._calls.exists() else 0


def config(folder: Path, **settings: Any) -> str:
    path = folder / "watt.json"
    path.write_text(json.dumps({name.replace("_", "-"): value for name, value in settings.items()}))
    return f"--config={path}"


def service(name: str, **labels: str) -> dict[str, Any]:
    spec = {"ports": [{"port": 80}], "clusterIP": "None"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": spec}


def plain(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def names(snapshot: Any, kind: str) -> set[str]:
    found = snapshot["Kubernetes"].get(kind, [])
    return {each["metadata"]["name"] for each in found} - {"kube-root-ca.crt"}


def state(watt: WattProcess, watch: str) -> Any:
    """Return how the watch is doing whose name contains a text; nothing is known of one that has not begun."""
    unknown = {"error": None, "stale": False, "state": None}
    return next((each for name, each in watt.watches().items() if watch in name), unknown)


def metric(watt: WattProcess, name: str) -> float:
    lines = watt.get("/metrics")[1].decode().splitlines()
    return float(next(line.rpartition(" ")[2] for line in lines if line.startswith(name)))


@pytest.mark.parametrize(
    "bad",
    ["exit 1", "echo garbage", """echo '{"kubernetes-watchez": []}'""", "kill -9 $$", "sleep 60 & wait"],
    ids=["exit 1", "garbage", "unknown field", "killed", "hangs"],
)
def test_a_watch_hook_that_fails_once(bad: str, namespace: Namespace, kubeconfig: Kubeconfig, tmp_path: Path) -> None:
    """The original tears down all derived watches, and does not repair them by itself."""
    kubeconfig(namespace.cluster.access)
    hook = WatchSet(tmp_path, kubernetes_watches=[{"kind": "cm", "namespace": namespace.name}])
    namespace.apply(plain("kept"))
    watch = [{"command": hook.command, "timeout": "2s"}]
    options = config(tmp_path, watch=watch)
    with WattProcess("-s", "services", "-n", namespace.name, options) as watt:
        watt.until(lambda latest: "kept" in names(latest, "cm"), "the derived watch")
        until(lambda: watt.get("/readyz")[0] == 200, "all is well")
        hook.script(bad)
        namespace.apply(service("web"))
        namespace.apply(plain("meanwhile"))
        until(lambda: watt.get("/readyz")[0] == 412, "degraded")
        latest = watt.until(lambda latest: "web" in names(latest, "services"), "the change")
        assert "kept" in names(latest, "cm"), "the last good set stays"
        watt.until(lambda latest: "meanwhile" in names(latest, "cm"), "changes of derived watches")
        [status] = watt.debug()["watch-hooks"]
        assert (status["state"], bool(status["error"])) == ("degraded", True)
        assert metric(watt, "wigwag_watt_hook_up{") == 0
        hook.answer(kubernetes_watches=[{"kind": "endpoints", "namespace": namespace.name}])
        watt.until(lambda latest: "endpoints" in latest["Kubernetes"], "the repaired hook, with nothing changed")
        until(lambda: watt.get("/readyz")[0] == 200, "all is well")
        assert "cm" not in watt.snapshot()["Kubernetes"]
        assert watt.stop() == 0


def test_a_notify_hook_that_hangs_is_killed_with_its_children_and_gets_the_newest_next(
    namespace: Namespace, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    """The original sends three stale snapshots first."""
    kubeconfig(namespace.cluster.access)
    hook, pids = Notified(tmp_path), tmp_path / "pids"
    first = f"if [ ! -e {pids} ]; then trap '' TERM; sleep 300 & echo $$ $! > {pids}; wait; fi; :"
    notify = [{"command": f"{first} && {hook.command}", "timeout": "8s"}]  # time for all changes, on a slow machine
    with WattProcess("-s", "services", "-n", namespace.name, config(tmp_path, notify=notify)) as watt:
        until(pids.exists, "the hook that hangs")
        for number in range(5):
            namespace.apply(service(f"s{number}"))
        latest = watt.until(lambda latest: len(names(latest, "services")) == 5, "all services")
        until(hook.ids, "the call after the one that was killed", timeout=20)
        newest = watt.snapshot(hook.ids()[0])
        assert names(newest, "services") == names(latest, "services"), "the newest is next"
        for pid in pids.read_text().split():
            until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "the end of the group")  # type: ignore[misc]
        until(lambda: watt.debug()["notify-hooks"][0]["state"] == "ok", "the end of the call")
        assert watt.debug()["notify-hooks"][0]["failures"] == 1
        assert watt.stop() == 0


def test_a_watch_hook_whose_failure_is_fatal_ends_the_process(
    namespace: Namespace, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    kubeconfig(namespace.cluster.access)
    hook = WatchSet(tmp_path)
    options = config(tmp_path, watch=[{"command": hook.command, "on-failure": "fatal", "name": "derive"}])
    with WattProcess("-s", "services", "-n", namespace.name, options) as watt:
        watt.until(bool, "the first snapshot")
        hook.script("echo cannot derive >&2; exit 3")
        namespace.apply(service("web"))
        assert watt.process.wait(20) == 1
        watt.wait_for_log(lambda line: "derive" in line["msg"] and "exit status 3" in line["msg"])


@pytest.mark.parametrize("policy", ["retry", "skip", "fatal"])
def test_a_notify_hook_that_exits_1(policy: str, namespace: Namespace, kubeconfig: Kubeconfig, tmp_path: Path) -> None:
    """The original ignores it."""
    kubeconfig(namespace.cluster.access)
    hook, broken = Notified(tmp_path), tmp_path / "broken"
    broken.touch()
    command = f"test -e {broken} && echo cannot reload >&2 && exit 1; {hook.command}"
    options = config(tmp_path, notify=[{"command": command, "on-failure": policy, "name": "reload"}])
    with WattProcess("-s", "services", "-n", namespace.name, options) as watt:
        if policy == "fatal":
            assert watt.process.wait(20) == 1
            watt.wait_for_log(lambda line: "reload" in line["msg"] and "cannot reload" in line["msg"])
            return
        until(lambda: watt.debug()["notify-hooks"][0]["state"] == "degraded", "the failure")
        assert watt.get("/readyz")[0] == (200 if policy == "skip" else 412)
        broken.unlink()
        if policy == "skip":
            namespace.apply(service("web"))
        until(hook.ids, "the next call")
        assert hook.ids()[0] == (1 if policy == "retry" else 2)
        until(lambda: watt.get("/readyz")[0] == 200, "all is well")


def test_a_watch_hook_that_flips_for_ever_is_slowed_down_with_a_message_and_others_go_on(
    namespace: Namespace, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    """It wants ConfigMaps if, and only if, it does not have them."""
    kubeconfig(namespace.cluster.access)
    program = tmp_path / "flip.py"
    watch = {"kubernetes-watches": [{"kind": "configmaps", "namespace": namespace.name}]}
    program.write_text(
        "import json, sys\n"
        "has = 'configmaps' in json.load(sys.stdin)['Kubernetes']\n"
        f"print('{{}}' if has else {json.dumps(json.dumps(watch))})\n"
    )
    namespace.apply(plain("flag"))
    command = f"{sys.executable} -I -S {program}"
    with WattProcess("-s", "services", "-n", namespace.name, "-w", command, "-i", "10ms") as watt:
        until(lambda: "keep changing" in (watt.debug()["error"] or ""), "the message")
        runs = watt.debug()["watch-hooks"][0]["runs"]
        assert watt.get("/readyz")[0] == 412
        namespace.apply(service("web"))
        watt.until(lambda latest: "web" in names(latest, "services"), "the others")
        assert runs < 60
        assert watt.stop() == 0


@pytest.fixture
def lasting_consul(private_consul: Callable[..., ConsulServer]) -> ConsulServer:
    """A Consul that keeps its data when it is killed."""
    return private_consul(gossip=[claim_port()])


def test_consul_away_and_back(
    lasting_consul: ConsulServer, namespace: Namespace, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    """The original is back 38 s after a Consul that was away for 32 s."""
    consul, hook = lasting_consul.consul, Notified(tmp_path)
    kubeconfig(namespace.cluster.access)
    register(consul, "web", "10.0.0.1")
    expected = {"web": ["10.0.0.1"]} | {f"none{number}": [] for number in range(250)}
    namespace.apply(config_map("dc", consul, *expected))
    with WattProcess("-s", "configmaps", "-n", namespace.name, "--notify", hook.command) as watt:
        watt.until(lambda latest: addresses(latest) == expected, "the endpoints")
        until(hook.ids, "the notification")
        before = hook.ids()
        lasting_consul.server.kill()
        until(lambda: state(watt, "|web")["stale"], "the watch to fail")
        until(lambda: sum(each["stale"] for each in watt.watches().values()) == len(expected), "all of them to fail")
        document = watt.snapshot(query="?format=v2")
        assert sum(each["stale"] for name, each in document["sources"].items() if "consul" in name) == len(expected)
        assert addresses(watt.snapshot()) == expected, "kept"
        namespace.apply(plain("other"))
        watt.until(lambda latest: "other" in names(latest, "configmaps"), "Kubernetes goes on")
        lasting_consul.server.start()
        until(lambda: not any(each["stale"] for each in watt.watches().values()), "Consul to be back")
        until(lambda: len(hook.ids()) == len(before) + 1, "the ConfigMap")
        register(consul, "web", "10.0.0.2")
        watt.until(lambda latest: len(addresses(latest)["web"]) == 2, "endpoints are followed again")
        until(lambda: len(hook.ids()) == len(before) + 2, "one notification")
        contents = [addresses(watt.snapshot(number))["web"] for number in hook.ids()]
        assert [] not in contents, "never empty"
        assert len(hook.ids()) == len(before) + 2, "no storm: one for the ConfigMap, one for the new endpoint"


@pytest.mark.timeout(240)
def test_the_api_server_away_frozen_and_back(
    private_plane: Callable[..., ControlPlane], kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    """Killed and started again, then frozen while the watch set changes many times: there the original deadlocks."""
    plane = private_plane(definitions=())
    namespace, notify = plane.cluster.add_namespace("team"), Notified(tmp_path)
    namespace.apply(service("web"))
    namespace.apply(plain("one"))
    hook, files = WatchSet(tmp_path), tmp_path / "files"
    files.mkdir()
    kubeconfig(plane.cluster.access)
    initial = [
        {"source": "kubernetes", "kind": "services", "namespace": "team"},
        {"source": "directory", "path": str(files)},
    ]
    options = config(tmp_path, watches=initial, watch=[hook.command], notify=[notify.command], interval="50ms")
    with WattProcess(options) as watt:
        watt.until(lambda latest: names(latest, "services") == {"web"}, "the first snapshot")
        until(notify.ids, "the first notification")
        killed_and_back(plane, namespace, watt, notify)
        plane.apiserver.pause()
        try:
            for number in range(30):  # each is a change that the hook is called for
                kinds = ["cm", "secrets", "endpoints", f"nosuch{number}"][: 1 + number % 4]
                selectors = [{"kind": kind, "label-selector": f"v!={number}"} for kind in kinds]
                hook.answer(kubernetes_watches=selectors)
                calls = hook.calls
                (files / "number").write_text(str(number))
                until(lambda calls=calls: hook.calls > calls, f"the hook, for change {number}")  # type: ignore[misc]
            until(lambda: len([name for name in watt.watches() if "v!=29" in name]) == 2, "the last watch set")
            assert len([name for name in watt.watches() if "v!=" in name]) == 2, "and nothing of the sets before"
            assert names(watt.snapshot(), "services") == {"web", "api"}, "kept"
        finally:
            plane.apiserver.resume()
        hook.answer(kubernetes_watches=[{"kind": "cm", "namespace": "team"}])
        (files / "number").write_text("last")
        watt.until(lambda latest: names(latest, "cm") == {"one"}, "convergence")
        latest = watt.until(lambda latest: not [kind for kind in latest["Kubernetes"] if "secret" in kind], "no rest")
        assert set(latest["Kubernetes"]) == {"services", "cm"}
        assert len(watt.watches()) == 3
        namespace.apply(plain("two"))
        watt.until(lambda latest: names(latest, "cm") == {"one", "two"}, "the derived watch")
        namespace.apply(service("last"))
        watt.until(lambda latest: "last" in names(latest, "services"), "the initial watch")
        assert watt.stop() == 0


def test_an_api_server_that_is_away_at_the_start_is_waited_for(
    namespace: Namespace, kubeconfig: Kubeconfig, tapped: Callable[[Access], Tap], tmp_path: Path
) -> None:
    tap, notify = tapped(namespace.cluster.access), Notified(tmp_path)
    kubeconfig(tap.access)
    tap.refuse()
    with WattProcess("-s", "services", "-n", namespace.name, "--notify", notify.command) as watt:
        until(lambda: state(watt, "services")["error"], "the reason")
        assert [watt.get(path)[0] for path in ("/snapshots/latest", "/readyz", "/healthz")] == [404, 412, 200]
        tap.listen()
        watt.until(bool, "the first snapshot")
        until(lambda: notify.ids() == [1], "the first notification")


def killed_and_back(plane: ControlPlane, namespace: Namespace, watt: WattProcess, notify: Notified) -> None:
    plane.apiserver.kill()
    until(lambda: state(watt, "services")["stale"], "the watch to fail")
    assert names(watt.snapshot(), "services") == {"web"}, "kept"
    before = notify.ids()
    plane.apiserver.start()
    until(lambda: state(watt, "services")["state"] == "live", "the server to be back")
    assert notify.ids() == before, "nothing has changed, so nobody is told"
    namespace.apply(service("api"))
    watt.until(lambda latest: names(latest, "services") == {"web", "api"}, "it is followed again")
    until(lambda: len(notify.ids()) == len(before) + 1, "one notification")


def definition(name: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": name, "singular": name[:-1], "kind": name[:-1].title()},
            "versions": [version],
        },
    }


@pytest.fixture
def kind(cluster: Cluster, namespace: Namespace) -> Iterator[str]:
    """The name of a kind that nobody has defined; its definition goes with the test."""
    name = f"things{namespace.name.removeprefix('test-')}s"
    yield name
    cluster.rest.ask("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.example.com")


@pytest.mark.parametrize(
    ("trouble", "policy"),
    [("missing", "required"), ("missing", "grace"), ("forbidden", "required"), ("forbidden", "optional")],
)
def test_a_kind_that_is_missing_or_forbidden_at_the_start(
    trouble: str, policy: str, namespace: Namespace, kind: str, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    """The original exits."""
    account = namespace.account("watt")
    namespace.allow("watt", "services", VERBS)
    kubeconfig(account)
    wanted = kind if trouble == "missing" else "secrets"
    further: dict[str, Any] = {"source": "kubernetes", "kind": wanted, "namespace": namespace.name}
    further |= {"required": False} if policy == "optional" else {"grace": "1s"} if policy == "grace" else {}
    with WattProcess("-s", "services", "-n", namespace.name, config(tmp_path, watches=[further])) as watt:
        until(lambda: state(watt, wanted)["error"], "the reason")
        error = state(watt, wanted)["error"]
        if trouble == "forbidden":
            assert "watt may not" in error
            assert '{apiGroups: [""], resources: [secrets], verbs: [get, list, watch]}' in error, "what allows it"
        else:
            assert wanted in error
        if policy == "required":
            assert watt.snapshot() is None
            assert watt.get("/readyz")[0] == 412
            assert [name for name in watt.debug()["waiting"] if wanted in name]
        else:
            watt.until(lambda latest: "services" in latest["Kubernetes"], "the others to go on")
            document = watt.snapshot(query="?format=v2")
            assert not document["complete"]
            assert [name for name in document["unresolved"] if wanted in name]
        if trouble == "forbidden":
            namespace.allow("watt", "*", VERBS)
        else:
            namespace.cluster.apply(definition(kind))
            namespace.allow("watt", "*", VERBS, group="*")
        watt.until(lambda latest: wanted in latest["Kubernetes"] and "services" in latest["Kubernetes"], "all")
        assert watt.snapshot(query="?format=v2")["complete"]


def test_a_derived_kind_that_is_missing_or_forbidden_is_marked_and_the_others_go_on(
    namespace: Namespace, kind: str, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    """The original publishes nothing, and panics in a loop."""
    account = namespace.account("watt")
    namespace.allow("watt", "services", VERBS)
    kubeconfig(account)
    derived = [
        {"source": "kubernetes", "kind": each, "namespace": namespace.name, "grace": grace}
        for each, grace in ((kind, "1s"), ("secrets", "1s"), ("services", "30s"))
    ]
    hook = WatchSet(tmp_path, watches=derived)
    namespace.apply(service("web"))
    with WattProcess("-s", "svc", "-n", namespace.name, "-w", hook.command) as watt:
        watt.until(lambda latest: names(latest, "svc") == {"web"}, "the first snapshot")
        unresolved = watt.snapshot(query="?format=v2")["unresolved"]
        assert sorted(name.partition("|")[0] for name in unresolved) == ["kubernetes secrets", f"kubernetes {kind}"]
        namespace.apply(service("api"))
        watt.until(lambda latest: names(latest, "svc") == {"web", "api"}, "a change")
        namespace.allow("watt", "*", VERBS)
        watt.until(lambda latest: "secrets" in latest["Kubernetes"], "the role")


def test_an_object_that_two_watches_match_is_there_once(
    namespace: Namespace, kubeconfig: Kubeconfig, tmp_path: Path
) -> None:
    """In the original it is there twice."""
    kubeconfig(namespace.cluster.access)
    namespace.apply(service("web", tier="front", team="a"))
    watches = [
        {"source": "kubernetes", "kind": kind, "namespace": namespace.name, "labels": labels}
        for kind, labels in (("services", "tier=front"), ("svc", "team=a"), ("service.v1.", ""))
    ]
    with WattProcess(config(tmp_path, watches=watches)) as watt:
        first = watt.until(bool, "the first snapshot")
        found = [each["metadata"]["name"] for kind in first["Kubernetes"].values() for each in kind]
        assert found == ["web"]
        assert len(watt.watches()) == 3


def test_it_listens_on_loopback_only_and_has_probes_and_metrics(namespace: Namespace, kubeconfig: Kubeconfig) -> None:
    """The original listens on all interfaces, and has neither."""
    kubeconfig(namespace.cluster.access)
    with WattProcess("-s", "services", "-n", namespace.name) as watt:
        watt.until(bool, "the first snapshot")
        files = Path(f"/proc/{watt.process.pid}/fd").iterdir()
        sockets = {str(file.readlink()) for file in files if file.is_symlink()}
        listening = []
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{watt.process.pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                    listening.append(fields[1].partition(":")[0])
        assert listening == ["0100007F"]
        assert [watt.get(path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]
        assert metric(watt, "wigwag_watt_snapshot_id") == 1


@pytest.mark.parametrize("when", ["running", "notify hook", "watch hook", "bootstrap", "no server"])
def test_sigterm_drains(when: str, namespace: Namespace, kubeconfig: Kubeconfig, tmp_path: Path) -> None:
    """The original is killed at once, with the exit status -15. A hook that is running may end."""
    access = namespace.cluster.access
    kubeconfig(Access(f"https://127.0.0.1:{claim_port()}", access.authority, "x") if when == "no server" else access)
    began, ended = tmp_path / "began", tmp_path / "ended"
    pause = 1 if when == "notify hook" else 60  # a watch hook is killed, however late the signal comes
    hook = f"touch {began}; sleep {pause}; touch {ended}; :"
    hooks = {"notify hook": ["--notify", hook], "watch hook": ["-w", hook]}.get(when, [])
    kinds = ["-s", "services", *(["-s", "nosuchkind"] if when == "bootstrap" else [])]
    with WattProcess(*kinds, "-n", namespace.name, *hooks) as watt, socket() as waiting:
        if hooks:
            until(began.exists, "the hook")
        elif when == "running":
            watt.until(bool, "the first snapshot")
            waiting.connect(("127.0.0.1", watt.port(PORT)))
            waiting.sendall(b"GET /snapshots/latest?wait=60s&index=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: metric(watt, "wigwag_watt_snapshot_id") == 1, "the long poll")  # what came before it is read
        else:
            until(lambda: any(each["error"] for each in watt.watches().values()), "trouble")
        assert watt.stop(signal.SIGTERM) == 0
        assert ended.exists() == (when == "notify hook")
        if when == "running":
            assert waiting.recv(100).startswith(b"HTTP/1.1 200"), "a long poll ends with what there is"


def test_hundreds_of_services_added_and_dropped_by_a_config_map_leave_nothing(
    private_consul: Callable[..., ConsulServer], namespace: Namespace, kubeconfig: Kubeconfig
) -> None:
    """The original keeps the data of up to 234 of 300; and with more than 200 at a time it publishes nothing."""
    consul: Consul = private_consul().consul
    kubeconfig(namespace.cluster.access)
    services = [f"s{number}" for number in range(300)]
    register(consul, "s7", "10.0.0.7")
    with WattProcess("-s", "configmaps", "-n", namespace.name) as watt:
        for _ in range(3):
            for size in (1, 150, 40):
                namespace.apply(config_map("dc", consul, *services[:size]))
        namespace.apply(config_map("dc", consul, *services))
        latest = watt.until(lambda latest: len(addresses(latest)) == 300, "all services")
        assert addresses(latest)["s7"] == ["10.0.0.7"]
        register(consul, "s299", "10.0.0.9")
        watt.until(lambda latest: addresses(latest)["s299"] == ["10.0.0.9"], "one of them to change")
        namespace.apply(config_map("dc", consul, "s7"))
        watt.until(lambda latest: addresses(latest) == {"s7": ["10.0.0.7"]}, "nothing stays")
        namespace.cluster.delete(namespace.path("v1", "ConfigMap", "dc"))
        watt.until(lambda latest: not addresses(latest), "none")
        assert len(watt.watches()) == 1
        assert watt.stop() == 0
