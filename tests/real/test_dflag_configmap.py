"""Dynamic flags that follow a ConfigMap at a real API server: what a mounted volume would show, without the wait."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

import pytest

from tests.dflag.kubelet import Heard, Volume
from tests.dflag.test_fork import ended_well, in_child
from tests.real.access import Access
from tests.real.cluster import Namespace
from tests.real.controlplane import ControlPlane
from tests.real.processes import until
from wigwag import dflag
from wigwag.dflag import ConfigMap, Directory, Origin, Policy
from wigwag.errors import StartError

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
VERBS = ["get", "list", "watch"]
ENOUGH = '{apiGroups: [""], resources: [configmaps], resourceNames: [flags], verbs: [get, list, watch]}'
TOLERANT = Policy(tolerant=True)
Use = Callable[[Access], Path]


def write(namespace: Namespace, data: dict[str, str], binary: dict[str, bytes] | None = None, **more: Any) -> None:
    """Make the ConfigMap hold this and nothing else."""
    about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags"}}
    encoded = {key: base64.b64encode(content).decode() for key, content in (binary or {}).items()}
    namespace.apply({**about, "data": data, "binaryData": encoded, **more})


def delete(namespace: Namespace) -> None:
    namespace.cluster.delete(namespace.path("v1", "ConfigMap", "flags"))


def example() -> tuple[dflag.FlagSet, dflag.DynFlag[int]]:
    flags = dflag.FlagSet("test")
    return flags, flags.int("rate", 10, validators=[dflag.in_range(0, 100)])


def becomes(flag: dflag.DynFlag[Any], value: Any) -> None:
    until(lambda: flag.get() == value, f"{flag.name} being {value!r}")


def has_problem(updater: dflag.Updater, *words: str) -> None:
    until(lambda: any(all(word in str(each) for word in words) for each in updater.problems), f"the problem {words}")


@pytest.fixture
def place(namespace: Namespace, kubeconfig: Use) -> str:
    """A ConfigMap of its own, by name."""
    kubeconfig(namespace.cluster.access)
    return f"configmap/{namespace.name}/flags"


def test_a_change_is_one_generation_and_a_deleted_object_leaves_its_values_until_it_is_back(
    namespace: Namespace, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    flags, rate = example()
    other, size, heard = flags.str("other", "x"), flags.int("size", 1, dynamic=False), Heard()
    rate.on_change(heard)
    write(namespace, {"rate": "20\n", "size": "5", "unknown": "1"})
    with dflag.setup(flags, place) as updater:
        assert (rate.get(), size.get(), updater.generation, updater.warnings) == (20, 5, 1, 1)
        assert (rate.held.origin, rate.held.slot.place) == (Origin.CONFIGMAP, place)
        assert [str(each) for each in updater.problems] == [f"{place}/unknown: there is no such flag in the set 'test'"]
        write(namespace, {"rate": "30", "size": "5", "other": "y"})
        until(lambda: updater.generation == 2, "the second generation")
        assert (rate.get(), other.get(), updater.problems) == (30, "y", ())
        write(namespace, {"rate": "101", "size": "6", "other": "z"})
        becomes(other, "z")
        assert (rate.get(), size.get(), updater.restart_required) == (30, 5, ("size",))
        assert [str(each) for each in updater.problems] == [f"{place}/rate: must be from 0 to 100, got 101"]
        write(namespace, {"size": "5"})
        becomes(rate, 10)
        write(namespace, {"rate": "40", "size": "5"})
        becomes(rate, 40)
        errors = updater.errors
        delete(namespace)
        has_problem(updater, place, f"there is no ConfigMap flags in the namespace {namespace.name} any more")
        assert (rate.get(), updater.errors) == (40, errors + 1)
        assert [status.state for status in updater.statuses] == ["failing"]
        write(namespace, {"rate": "41"})
        becomes(rate, 41)
        until(lambda: updater.problems == () and updater.statuses[0].state == "live", "all being well")
        assert flags.flush(20.0)
    assert heard.steps == [(10, 20), (20, 30), (30, 10), (10, 40), (40, 41)]
    assert caplog.text.count("must be from 0 to 100, got 101") == 1


def test_what_does_not_change_a_key_changes_nothing(namespace: Namespace, place: str) -> None:
    flags, rate = example()
    heard = Heard()
    write(namespace, {"rate": "20"})
    with dflag.setup(flags, place) as updater:
        rate.on_change(heard, always=True)
        path = namespace.path("v1", "ConfigMap", "flags")
        namespace.cluster.patch(path, {"metadata": {"annotations": {"note": "x"}, "labels": {"a": "b"}}})
        write(namespace, {"rate": "20", "other": "1"})
        until(lambda: updater.generation == 2, "the second generation")
        assert flags.flush(20.0)
        assert heard.steps == []


def test_binary_data_is_taken_as_it_is_and_text_must_be_text(namespace: Namespace, place: str) -> None:
    flags = dflag.FlagSet("test")
    raw, text, plain = flags.bytes("raw", b""), flags.str("text", "a"), flags.bytes("plain", b"")
    write(namespace, {"text": "é\n", "plain": " é\n", ".hidden": "1"}, {"raw": b"\xff\x00\n"}, immutable=True)
    updater = dflag.Updater(flags, place)
    updater.initialize()
    assert (raw.get(), text.get(), plain.get()) == (b"\xff\x00\n", "é", " é\n".encode())
    assert updater.warnings == 0, "a kubelet hides what begins with a dot from us, too"
    delete(namespace)
    write(namespace, {}, {"raw": b"\xfe", "text": b"ok\xff"})
    with pytest.raises(StartError, match=r"text: not UTF-8 text \(byte 2 of 3\)"):
        updater.initialize()
    assert (raw.get(), text.get()) == (b"\xfe", "é")


def test_one_that_is_not_there_is_an_error_unless_it_is_optional(namespace: Namespace, place: str) -> None:
    flags, rate = example()
    with pytest.raises(StartError, match=f"{place}: there is no ConfigMap flags in the namespace .*; create it"):
        dflag.setup(flags, place)
    updater = dflag.Updater(flags, place)
    with pytest.raises(StartError, match=f"cannot watch the flags: {place}: there is no ConfigMap flags"):
        updater.start()
    assert not updater.running
    with dflag.setup(flags, ConfigMap(namespace.name, "flags", optional=True)) as updater:
        until(lambda: updater.statuses[0].state == "live", "the answer that there is none")
        assert (updater.errors, updater.problems) == (0, ())
        write(namespace, {"rate": "20"})
        becomes(rate, 20)
        delete(namespace)
        becomes(rate, 10)  # a kubelet empties the volume of one that is optional
        assert updater.problems == ()
        write(namespace, {"rate": "21"})
        becomes(rate, 21)


def test_what_happens_between_reading_and_watching_is_not_missed(namespace: Namespace, place: str) -> None:
    flags, rate = example()
    write(namespace, {"rate": "20"})
    updater = dflag.Updater(flags, place)
    updater.initialize()
    write(namespace, {"rate": "21"})
    for number in (21, 22, 23):
        updater.start()
        assert rate.get() == number
        updater.stop()
        write(namespace, {"rate": str(number + 1)})
    assert not {"dflag updater", "dflag reader"} & {thread.name for thread in threading.enumerate()}


def test_a_role_for_one_name_is_enough(namespace: Namespace, kubeconfig: Use) -> None:
    flags, rate = example()
    write(namespace, {"rate": "20"})
    access = namespace.account("app")
    namespace.allow("app", "configmaps", VERBS, names=["flags"])
    place = ConfigMap(namespace.name, "flags", kubeconfig=str(kubeconfig(access)), context="test")
    with dflag.setup(flags, place) as updater:
        write(namespace, {"rate": "21"})
        becomes(rate, 21)
        assert updater.errors == 0


def test_who_may_not_is_told_which_role_is_missing_and_goes_on_once_it_is_there(
    namespace: Namespace, kubeconfig: Use
) -> None:
    flags, rate = example()
    write(namespace, {"rate": "20"})
    kubeconfig(namespace.account("app"))
    place = f"configmap/{namespace.name}/flags"
    with pytest.raises(StartError) as caught:
        dflag.setup(flags, place)
    assert f"system:serviceaccount:{namespace.name}:app may not watch configmaps" in str(caught.value)
    assert ENOUGH in str(caught.value)
    with dflag.setup(flags, place, policy=TOLERANT) as updater:
        has_problem(updater, place, ENOUGH)
        assert (rate.get(), updater.errors) == (10, 1)
        namespace.allow("app", "configmaps", VERBS, names=["flags"])
        becomes(rate, 20)
        until(lambda: updater.problems == (), "the end of the problem")


def test_while_the_api_server_is_away_the_values_stay_and_what_changed_comes_when_it_is_back(
    private_plane: Callable[..., ControlPlane], kubeconfig: Use
) -> None:
    plane = private_plane(definitions=())
    namespace = plane.cluster.add_namespace("shop")
    kubeconfig(plane.cluster.access)
    flags, rate = example()
    heard = Heard()
    rate.on_change(heard)
    write(namespace, {"rate": "20"})
    with dflag.setup(flags, "configmap/shop/flags") as updater:
        plane.apiserver.kill()
        until(lambda: updater.problems, "the problem")
        assert (rate.get(), updater.statuses[0].state, updater.running) == (20, "failing", True)
        with pytest.raises(StartError, match=r"configmap/shop/flags: 127\.0\.0\.1:"):
            dflag.Updater(dflag.FlagSet("other"), "configmap/shop/flags").initialize()
        assert updater.errors == 1, "however often it is tried again"
        plane.apiserver.start()
        write(namespace, {"rate": "21"})
        becomes(rate, 21)
        until(lambda: updater.problems == (), "the end of the problem")
        assert flags.flush(20.0)
    assert heard.steps == [(10, 20), (20, 21)]


def test_directories_and_objects_may_be_mixed_and_the_last_counts(
    namespace: Namespace, place: str, tmp_path: Path
) -> None:
    write(namespace, {"rate": "20"})
    volume = Volume(tmp_path / "conf", {"rate": "30"})
    orders: list[tuple[list[Any], int]] = [([volume.path, place], 20), ([place, Directory(str(volume.path))], 30)]
    for order, value in orders:
        flags, rate = example()
        with dflag.setup(flags, *order) as updater:
            assert (rate.get(), updater.generation) == (value, 1)
            volume.write({})
            write(namespace, {"rate": "21"})
            becomes(rate, 21)
            write(namespace, {})
            volume.write({"rate": "30"})
            becomes(rate, 30)
            write(namespace, {"rate": "20"})
            becomes(rate, value)


def test_names_and_documents_are_those_of_a_directory(namespace: Namespace, place: str) -> None:
    flags = dflag.FlagSet("test")
    rate, size = flags.int("rate", 0), flags.int("db.size", 0)
    write(namespace, {"shop.rate": "1", "blog.rate": "x", "size": "2"})
    shared = ConfigMap(namespace.name, "flags", prefix="shop.")
    own = ConfigMap(namespace.name, "flags", prefix="si", flag_namespace="db.si")
    with dflag.setup(flags, shared, own) as updater:
        assert (rate.get(), size.get(), updater.problems) == (1, 2, ())
    flags = dflag.FlagSet("test")
    rate, size, ports = flags.int("rate", 0), flags.int("db.size", 0), flags.list("ports", [1], item=int)
    write(namespace, {"app.yaml": "rate: 0x10\ndb: {size: 3}\nports: [80, 443]"})
    with dflag.setup(flags, ConfigMap(namespace.name, "flags", documents=("*.yaml",))) as updater:
        assert (rate.get(), size.get(), ports.get(), updater.problems) == (16, 3, [80, 443], ())
        write(namespace, {"app.yaml": "rate: ["})
        has_problem(updater, f"{place}/app.yaml: not valid YAML", " at line ")
        assert (rate.get(), size.get()) == (16, 3)


def test_in_a_loop_of_the_program(namespace: Namespace, place: str) -> None:
    flags, rate = example()
    write(namespace, {"rate": "20"})

    async def main() -> None:
        async with dflag.watching(flags, place) as updater:
            assert (rate.get(), updater.generation) == (20, 1)
            await asyncio.to_thread(write, namespace, {"rate": "21"})
            assert await asyncio.wait_for(rate.wait_for((21).__eq__), 30) == 21
        other, now = example()
        with dflag.setup(other, place):  # a thread of its own, even here
            assert now.get() == 21

    asyncio.run(main())


def test_parent_and_child_both_follow(namespace: Namespace, place: str) -> None:
    flags, rate = example()
    write(namespace, {"rate": "20"})
    seen, say = os.pipe()
    with dflag.setup(flags, place) as updater:

        def child() -> None:
            assert (rate.get(), updater.running, updater.generation) == (20, True, 1)
            os.write(say, b"!")
            becomes(rate, 21)
            assert updater.errors == 0
            updater.stop()

        pid = in_child(child)
        os.close(say)
        assert os.read(seen, 1) == b"!"
        os.close(seen)
        write(namespace, {"rate": "21"})
        becomes(rate, 21)
        assert ended_well(pid)
        assert (updater.running, updater.errors) == (True, 0)


# the same as a mounted volume

NAMES = [f"key{number}" for number in range(6)]
STEPS = 150


class Program:
    """Flags of several sorts that follow one place."""

    def __init__(self) -> None:
        flags = self.flags = dflag.FlagSet("test")
        self.number = flags.int("number", 0)
        for name in NAMES[:4]:
            flags.int(name, -1, validators=[dflag.in_range(-1, 1_000_000)])
        flags.bytes(NAMES[4], b"")
        flags.int(NAMES[5], -1, dynamic=False)
        flags.list("ports", [0], item=int)
        self.heard = {flag.name: Heard() for flag in flags}
        for flag in flags:
            flag.on_change(self.heard[flag.name])

    def account(self, updater: dflag.Updater) -> dict[str, Any]:
        """Return all that there is to tell, without the name of the place."""
        assert self.flags.flush(20.0)
        return {
            "values": {flag.name: flag.get() for flag in self.flags},
            "steps": {name: heard.steps for name, heard in self.heard.items()},
            "counts": (updater.generation, updater.warnings, updater.errors),
            "problems": [(each.level, each.key, each.reason) for each in updater.problems],
            "restart": updater.restart_required,
        }


def content(random: Random, number: int) -> dict[str, bytes]:
    """Return what a ConfigMap may hold: keys that come and go, bad ones, unknown ones, raw ones, and a document."""
    keys = random.sample(NAMES, random.randint(0, len(NAMES)))
    found = {key: str(random.choice([1, 2, number, "bad", -5])).encode() for key in keys}
    if random.random() < 0.3:
        found[random.choice([*NAMES, "unknown", ".hidden"])] = random.randbytes(4) + b"\xff"
    if random.random() < 0.5:
        found["app.yaml"] = random.choice([b"ports: [1, 2]", b"ports: [x]", b"ports: [", f"ports: [{number}]".encode()])
    return {**found, "number": str(number).encode()}


def test_the_same_changes_make_the_same_of_flags_as_in_a_mounted_volume(
    namespace: Namespace, place: str, tmp_path: Path
) -> None:
    random = Random(5)
    volume, mounted, watched = Volume(tmp_path / "conf"), Program(), Program()

    def change(number: int) -> None:
        wanted = content(random, number)
        volume.write(wanted)
        texts = {key: each.decode() for key, each in wanted.items() if each.isascii()}
        write(namespace, texts, {key: each for key, each in wanted.items() if not each.isascii()})

    documents = ("*.yaml",)
    change(1)
    own = Directory(str(volume.path), documents=documents), ConfigMap(namespace.name, "flags", documents=documents)
    first = dflag.Updater(mounted.flags, own[0], policy=TOLERANT)
    second = dflag.Updater(watched.flags, own[1], policy=TOLERANT)
    with first, second:
        assert mounted.account(first) == watched.account(second)
        for number in range(2, STEPS):
            change(number)
            becomes(mounted.number, number)
            becomes(watched.number, number)
            assert mounted.account(first) == watched.account(second)
    assert first.generation == STEPS - 1
    assert first.errors > 10, "what is bad was among it"


def test_how_long_a_change_takes(namespace: Namespace, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told and not judged: a loaded machine is no defect."""
    flags, number = dflag.FlagSet("test"), threading.Event()
    rate = flags.int("rate", 0)
    rate.on_change(lambda old, new: number.set())
    write(namespace, {"rate": "0"})
    path, took = namespace.path("v1", "ConfigMap", "flags"), []
    with dflag.setup(flags, place):
        for value in range(1, 31):
            number.clear()
            begun = time.perf_counter()
            namespace.cluster.patch(path, {"data": {"rate": str(value)}})
            assert number.wait(20.0)
            took.append((time.perf_counter() - begun) * 1000)
    with capsys.disabled():
        print(f"\nPATCH to notifier: median {median(took):.1f} ms, p90 {quantiles(took, n=10)[-1]:.1f} ms")
    assert rate.get() == 30
