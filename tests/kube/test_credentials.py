"""Who we are: tokens that are rotated, and plugins that are run for real."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.fakes import run
from wigwag.errors import UsageError
from wigwag.kube.config.cluster import Cluster, KubeUser, Plugin
from wigwag.kube.config.credentials import Credentials, PluginError, read_credential, run_plugin

V1 = "client.authentication.k8s.io/v1"
SERVER = "https://api.example"


def fields(user: KubeUser) -> Any:
    async def main() -> Any:
        return (await Credentials(Cluster(SERVER, user=user), {}).current()).fields

    return run(main)


def test_a_token_a_file_and_a_password() -> None:
    assert fields(KubeUser("t")) == (("Authorization", "Bearer t"),)
    assert fields(KubeUser(basic="me:p")) == (("Authorization", "Basic bWU6cA=="),)
    assert fields(KubeUser("t", impersonation=(("Impersonate-User", "jane"),)))[1] == ("Impersonate-User", "jane")
    assert fields(KubeUser("t", "/does/not/exist")) == (("Authorization", "Bearer t"),)


def test_a_token_file_is_read_for_every_request(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    credentials = Credentials(Cluster(SERVER, user=KubeUser("fallback", str(path))), {})

    async def main() -> None:
        assert (await credentials.current()).fields == (("Authorization", "Bearer one"),)
        path.write_text("two\n")
        assert (await credentials.current()).fields == (("Authorization", "Bearer two"),)

    run(main)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file or directory"), ("", "no token"), ("a\nb", "no token"), ("é", "no token")],
)
def test_a_file_without_a_token_is_told_by_its_name_alone(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError) as caught:
        fields(KubeUser(token_file=str(path)))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def script(folder: Path, body: str) -> Plugin:
    """A plugin in Python, as a file that can be run."""
    path = folder / "plugin"
    path.write_text(f"#!{sys.executable} -S\nimport json, os, sys, time\n{body}\n")
    path.chmod(0o700)
    return Plugin(V1, str(path), ("--for", "me"), (("EXTRA", "x"),), hint="get it from somewhere")


PRINT = f"""
def give(**status):
    version = json.loads(os.environ.get("KUBERNETES_EXEC_INFO", "{{}}")).get("apiVersion", {V1!r})
    print(json.dumps({{"apiVersion": version, "kind": "ExecCredential", "status": status}}))
"""


@pytest.mark.parametrize("version", [V1, f"{V1}beta1"])
def test_a_plugin_gets_arguments_and_surroundings_and_gives_a_token(tmp_path: Path, version: str) -> None:
    path = tmp_path / "told"
    body = PRINT + f"json.dump([sys.argv[1:], dict(os.environ)], open({str(path)!r}, 'w')); give(token='t')"
    plugin = script(tmp_path, body)

    async def main() -> None:
        given = Plugin(version, plugin.command, plugin.arguments, plugin.environment, cluster='{"server":"s"}')
        found = await run_plugin(given, {"PATH": os.environ["PATH"], "OURS": "1"})
        assert (found.token, found.until) == ("t", None)

    run(main)
    arguments, environment = json.loads(path.read_text())
    assert arguments == ["--for", "me"]
    assert (environment["OURS"], environment["EXTRA"]) == ("1", "x")
    assert json.loads(environment["KUBERNETES_EXEC_INFO"]) == {
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "s"}},
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit(3)", "ended with status 3; run it by hand to see why; to install it: get it from somewhere"),
        ("print('SECRET')", "printed no ExecCredential; run it by hand"),
        (PRINT + "give()", "printed neither a token nor a certificate with its key"),
        (PRINT + "give(clientCertificateData='x')", "printed neither a token nor a certificate with its key"),
        (
            "print(json.dumps({'apiVersion': 'v2', 'kind': 'ExecCredential', 'status': {'token': 'SECRET'}}))",
            f"printed no ExecCredential of {V1}",
        ),
        ("print('SECRET' * 1000000)", "ended with status 1"),
    ],
)
def test_a_plugin_that_gives_nothing_is_told_without_what_it_printed(tmp_path: Path, body: str, said: str) -> None:
    async def main() -> None:
        with pytest.raises(PluginError) as caught:
            await run_plugin(script(tmp_path, body), {})
        assert said in str(caught.value)
        assert str(caught.value).startswith("the credential plugin plugin: ")
        assert "SECRET" not in str(caught.value)

    run(main)


def test_a_plugin_that_is_not_there_is_told_with_the_hint(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(PluginError) as caught:
            await run_plugin(Plugin(V1, "no-such-plugin", hint="get it"), {"PATH": str(tmp_path)})
        assert str(caught.value) == (
            "the credential plugin no-such-plugin: No such file or directory; "
            "check `command` in the kubeconfig; to install it: get it"
        )

    run(main)


def test_a_plugin_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(PluginError, match="run it by hand to see what it waits for"):
            await run_plugin(script(tmp_path, "time.sleep(600)"), {}, 0.05)

    run(main)


def test_a_plugin_that_is_given_up_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "pids"
    os.mkfifo(pipe)
    body = f"child = os.fork()\nif child: open({str(pipe)!r}, 'w').write(f'{{os.getpid()}} {{child}}')\ntime.sleep(600)"

    async def main() -> list[str]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(run_plugin(script(tmp_path, body), {}))
            pids = (await asyncio.to_thread(pipe.read_text)).split()
            task.cancel()
        return pids

    pids = run(main)
    assert len(pids) == 2
    until = time.monotonic() + 30
    while any(map(alive, pids)):  # a signal was sent; what it does takes its time on a busy machine
        assert time.monotonic() < until


def alive(pid: str) -> bool:
    """Tell whether a process runs; one that nobody has buried does not."""
    try:
        return "Z" not in Path("/proc", pid, "stat").read_text().rpartition(")")[2]
    except OSError:
        return False


class Given:
    """A plugin that is not run: it counts, and gives what the test says."""

    def __init__(self, *expirations: str) -> None:
        self.expirations, self.runs = list(expirations), 0

    async def run(self, plugin: Plugin, _environment: Any) -> Any:
        self.runs += 1
        await asyncio.sleep(0)
        status = {"token": f"t{self.runs}"}
        if self.expirations:
            status["expirationTimestamp"] = self.expirations.pop(0)
        text = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})
        return read_credential(plugin, text.encode())


def plugged(given: Given, wall: list[float]) -> Credentials:
    cluster = Cluster(SERVER, user=KubeUser(plugin=Plugin(V1, "x")))
    return Credentials(cluster, {}, lambda: wall[0], given.run)


def test_what_a_plugin_gave_is_kept_until_it_ends() -> None:
    given, wall = Given("1970-01-01T00:16:40Z", "1970-01-01T01:00:00+00:00"), [0.0]
    credentials = plugged(given, wall)

    async def main() -> None:
        found = await asyncio.gather(*(credentials.current() for _ in range(5)))
        assert {proof.fields for proof in found} == {(("Authorization", "Bearer t1"),)}
        wall[0] = 989.0
        await credentials.current()
        assert given.runs == 1
        wall[0] = 991.0
        assert (await credentials.current()).fields == (("Authorization", "Bearer t2"),)

    run(main)


def test_what_the_server_refuses_is_given_anew_once() -> None:
    given = Given()
    credentials = plugged(given, [0.0])

    async def main() -> None:
        first = await credentials.current()
        assert credentials.refused(first)
        second = await credentials.current()
        assert second.fields == (("Authorization", "Bearer t2"),)
        assert credentials.refused(first), "an answer that comes late does not throw away what is new"
        assert (await credentials.current()).fields == second.fields
        assert given.runs == 2

    run(main)
    assert not Credentials(Cluster(SERVER, user=KubeUser("t")), {}).refused(None)  # type: ignore[arg-type]
