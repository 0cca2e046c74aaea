"""A ConfigMap as a place: how it is named, what is heard of it means, and what it costs. The rest is in tests/real."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from tests.agent.upstreams import Upstream
from tests.real.processes import until
from wigwag import dflag
from wigwag.dflag import ConfigMap, Directory
from wigwag.dflag.cluster.configmap import ConfigMapReader
from wigwag.dflag.cluster.watch import connect, decode, look, outside
from wigwag.dflag.updating.updater import place_of
from wigwag.errors import StartError, UsageError
from wigwag.pipeline.spec import UNCHANGED, Unavailable

KEY = ("shop", "flags")
PLACE = ConfigMap(*KEY)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("configmap/shop/flags", PLACE),
        ("./configmap/shop/flags", Directory("./configmap/shop/flags")),
        ("/configmap/shop/flags", Directory("/configmap/shop/flags")),
        ("configmap/shop", Directory("configmap/shop")),
        ("configmap/shop/flags/rate", Directory("configmap/shop/flags/rate")),
        ("configmap//flags", Directory("configmap//flags")),
        (Path("configmap/shop/flags"), Directory("configmap/shop/flags")),
        (PLACE, PLACE),
    ],
)
def test_three_parts_name_an_object_and_all_else_is_a_path(given: Any, place: Any) -> None:
    assert place_of(given) == place


def test_an_updater_takes_it_wherever_it_takes_a_directory() -> None:
    updater = dflag.Updater(dflag.FlagSet("x"), "conf", "configmap/shop/flags")
    assert [str(place) for place in updater.places] == [f"directory:{Path.cwd() / 'conf'}", "configmap/shop/flags"]
    assert [place.position for place in updater.places] == [0, 1]


@pytest.mark.parametrize("names", [("", "flags"), ("shop", ""), ("shop", "../secrets"), ("a b", "flags")])
def test_what_is_no_name_is_refused_at_once(names: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="is not the name of an object"):
        ConfigMap(*names)


def test_naming_one_loads_no_network_stack() -> None:
    code = (
        "from wigwag import dflag; dflag.Updater(dflag.FlagSet('x'), 'configmap/a/b', dflag.ConfigMap('a', 'c'))\n"
        "import sys; print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "socket", "ssl", "yaml", "wigwag.kube.client"} & set(told.stdout.split())


def test_an_object_is_its_visible_keys() -> None:
    judge = ConfigMapReader(PLACE)
    assert judge({KEY: {"a": b"1", ".b": b"2"}}) == {"a": b"1"}
    assert judge(UNCHANGED) is UNCHANGED
    assert judge(Unavailable("no answer")) == Unavailable("no answer")
    assert judge(UNCHANGED) is UNCHANGED


def test_one_that_is_gone_stays_gone_though_the_server_is_back() -> None:
    judge = ConfigMapReader(PLACE)
    first = judge({})
    assert isinstance(first, Unavailable)
    assert "create it" in first.reason
    judge({KEY: {"a": b"1"}})
    gone = judge({})
    assert isinstance(gone, Unavailable)
    assert "any more; what it held stays" in gone.reason
    assert judge(Unavailable("no answer")) == Unavailable("no answer")
    assert judge(UNCHANGED) == gone
    assert judge({KEY: {}}) == {}
    assert judge(UNCHANGED) is UNCHANGED


def test_one_that_is_optional_is_empty_when_it_is_not_there() -> None:
    judge = ConfigMapReader(ConfigMap(*KEY, optional=True))
    assert [judge({}), judge({KEY: {"a": b"1"}}), judge({})] == [{}, {"a": b"1"}, {}]


def test_one_that_is_too_large_is_not_taken() -> None:
    judge = ConfigMapReader(ConfigMap(*KEY, most=3))
    assert judge({KEY: {"a": b"12", "b": b"3", ".c": b"4"}}) == {"a": b"12", "b": b"3"}
    found = judge({KEY: {"a": b"12", "b": b"34"}})
    assert found == Unavailable("configmap/shop/flags is larger than the limit of 3 bytes or 100000 keys")
    assert judge(UNCHANGED) == found


def test_one_that_cannot_be_read_is_trouble_until_it_can() -> None:
    judge = ConfigMapReader(PLACE)
    assert judge({KEY: decode(Raw(b'{"data": {"a": "1"}}'))}) == {"a": b"1"}
    for bad in (b'{"binaryData": {"a": "?"}}', b'{"data": {"a": 1}}', b'{"data": {"a": "\xff"}}', b"[" * 100_000):
        found = judge({KEY: decode(Raw(bad))})
        assert isinstance(found, Unavailable)
        assert found.reason.startswith("it cannot be read, and what it held stays: ")
        assert judge(UNCHANGED) == found
    assert judge({KEY: decode(Raw(b'{"data": {"a": "2"}}'))}) == {"a": b"2"}
    assert judge(UNCHANGED) is UNCHANGED


def test_the_watch_tells_of_an_object_that_cannot_be_read(tmp_path: Path) -> None:
    """As the API server would send it, in a list."""
    body = json.dumps(
        {
            "metadata": {"resourceVersion": "1"},
            "items": [
                {
                    "metadata": {"namespace": KEY[0], "name": KEY[1], "resourceVersion": "1"},
                    "binaryData": {"rate": "?"},
                }
            ],
        }
    )
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    refusal = "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}"

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]
        writer.write((refusal if b"watch=" in asked else answer).encode())
        await writer.drain()
        writer.close()

    async def main() -> Any:
        async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await ConfigMap(*KEY, kubeconfig=kubeconfig(tmp_path, port)).look()

    assert asyncio.run(main()) == Unavailable("it cannot be read, and what it held stays: binaryData is not base64")


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """A kubeconfig for a server that takes calls and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield kubeconfig(tmp_path, server.getsockname()[1])


def kubeconfig(folder: Path, port: int) -> str:
    config = {
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test"}}],
        "current-context": "test",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


def test_a_server_that_never_answers_is_not_waited_for_for_ever(silent: str) -> None:
    found = asyncio.run(look(connect(silent), PLACE.watched(), patience=0.05))
    assert isinstance(found, Unavailable)
    assert "the API server has not answered within 0.05 seconds" in found.reason


def test_a_server_that_cannot_be_reached_is_told_of_at_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    place = ConfigMap(*KEY, kubeconfig=kubeconfig(tmp_path, port))
    with pytest.raises(StartError, match=f"configmap/shop/flags: 127.0.0.1:{port}: "):
        dflag.setup(dflag.FlagSet("x"), place)


async def one_object(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An API server that has the object, with one key; it goes on for as long as the client does."""
    await reader.readuntil(b"\r\n\r\n")
    about = {"namespace": KEY[0], "name": KEY[1], "resourceVersion": "1"}
    end = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
    events = [("ADDED", {"metadata": about, "data": {"rate": "20"}}), ("BOOKMARK", {"metadata": end})]
    body = "".join(json.dumps({"type": kind, "object": made}) + "\n" for kind, made in events)
    writer.write(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n{body}\r\n".encode())
    await reader.read()


@pytest.mark.parametrize("threaded", [True, False], ids=["setup", "watching"])
def test_a_server_that_cannot_be_reached_is_asked_again_if_the_object_is_optional(
    tmp_path: Path, threaded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    flags = dflag.FlagSet("x")
    rate = flags.int("rate", 10)
    came = threading.Event()
    rate.on_change(lambda *_: came.set())

    def followed(updater: dflag.Updater, server: Upstream) -> None:
        assert (rate.get(), updater.running) == (10, True)
        assert "it is optional: flags keep their defaults until it can be read" in caplog.text
        server.listen()
        assert came.wait(30.0)
        assert rate.get() == 20

    async def main(place: ConfigMap, server: Upstream) -> None:
        async with dflag.watching(flags, place) as updater:
            await asyncio.to_thread(followed, updater, server)

    with Upstream(one_object) as server:
        server.refuse()
        place = ConfigMap(*KEY, optional=True, kubeconfig=kubeconfig(tmp_path, server.port))
        if threaded:
            with dflag.setup(flags, place) as updater:
                followed(updater, server)
        else:
            asyncio.run(main(place, server))


def test_that_an_optional_object_cannot_be_asked_for_is_a_problem_until_it_can(tmp_path: Path) -> None:
    with Upstream(one_object) as server:
        server.refuse()
        place = ConfigMap(*KEY, optional=True, kubeconfig=kubeconfig(tmp_path, server.port))
        with dflag.setup(dflag.FlagSet("x"), place, policy=dflag.Policy(unknown="ignore")) as updater:
            until(lambda: [each.place for each in updater.problems] == [place.title], "the problem")
            server.listen()
            until(lambda: updater.problems == (), "it being over")


def test_an_optional_object_that_cannot_be_read_is_told_of_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="nothing: no such file; name the kubeconfig that you mean"):
        dflag.setup(dflag.FlagSet("x"), ConfigMap(*KEY, optional=True, kubeconfig=str(tmp_path / "nothing")))


def test_where_no_kubernetes_is_configured_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    updater = dflag.Updater(dflag.FlagSet("x"), "configmap/shop/flags")
    for begin in (updater.initialize, updater.start):
        with pytest.raises(StartError, match="no Kubernetes is configured: set KUBECONFIG"):
            begin()
    assert not updater.running
    with pytest.raises(StartError, match="nothing: no such file; name the kubeconfig that you mean"):
        dflag.setup(dflag.FlagSet("x"), ConfigMap(*KEY, kubeconfig=str(tmp_path / "nothing")))


def test_a_coroutine_can_be_waited_for_in_the_middle_of_a_loop() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    async def main() -> int:
        return outside(answer)

    assert asyncio.run(main()) == 42
    with pytest.raises(ZeroDivisionError):
        outside(fail)
