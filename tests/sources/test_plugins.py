"""Kinds of sources of other packages: found by entry points, used as built-in kinds are, and never instead of one."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process import AgentProcess
from tests.proxy.process import ProxyProcess, document, subscribed
from tests.sources.plugin_package import install
from wigwag.errors import UsageError
from wigwag.sources.kinds import BUILT_IN
from wigwag.sources.plugins import GROUP, load_from

DOCS = Path(__file__).parent.parent.parent / "docs" / "guides" / "sources.md"

BOTH = "memory = wigwag_memory:KIND\nmemorys = wigwag_memory:KIND"
TAKEN = frozenset({"file", "http"})


def flag(variant: str) -> str:
    return json.dumps({"flags": {"colour": {
        "state": "ENABLED", "variants": {"red": "red", "blue": "blue"}, "defaultVariant": variant
    }}})  # fmt: skip


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one key, and the plug-in for it, installed for processes that the test starts."""
    monkeypatch.setenv("PYTHONPATH", str(install(tmp_path / "site", BOTH)))
    monkeypatch.setenv("MEMORY_STORE", str(tmp_path))
    (tmp_path / "shop").write_text(flag("red"))
    return tmp_path


def wigwag(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "wigwag", *arguments], capture_output=True, text=True)


def colour(agent: AgentProcess) -> Any:
    return json.loads(agent.fetch("OFREP", "/ofrep/v1/evaluate/flags/colour", {"context": {}})[1])["value"]


def entries(folder: Path) -> list[EntryPoint]:
    return [each for found in distributions(path=[str(folder)]) for each in found.entry_points.select(group=GROUP)]


class TestAgent:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("--uri", "memory:shop?token=hush"),
            ("--sources", '[{"uri": "memory:shop?token=hush", "provider": "memory"}]'),
        ],
        ids=["uri", "sources"],
    )
    def test_an_agent_serves_the_flags_of_a_plug_in_and_follows_them(
        self, store: Path, arguments: tuple[str, str]
    ) -> None:
        with AgentProcess(*arguments) as agent:
            assert colour(agent) == "red"
            (told,) = json.loads(agent.fetch("management", "/debug/sources")[1])
            assert (told["source"], told["provider"], told["state"]) == ("memory:shop?token=***", "memory", "live")
            published = len([line for line in agent.lines if line["msg"] == "snapshot published"])
            (store / "next").write_text(flag("blue"))
            (store / "next").rename(store / "shop")
            agent.wait_for_log(
                lambda _: len([line for line in agent.lines if line["msg"] == "snapshot published"]) > published
            )
            assert colour(agent) == "blue"

    def test_fields_that_the_kind_does_not_use_are_told_and_so_is_what_it_prepares(self, store: Path) -> None:
        element = {"uri": "memory:shop", "provider": "memory", "interval": 90, "selector": "a"}
        done = wigwag("check-config", "--sources", json.dumps([element]))
        assert done.returncode == 0, done.stderr
        assert "$.sources[0].selector has no effect on a source of the kind memory" in done.stderr
        assert "interval has no effect" not in done.stderr
        assert "source memory:shop: a store in memory is polled each minute at least" in done.stderr

    def test_what_can_never_work_is_refused_at_start(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MEMORY_STORE")
        done = wigwag("start", "--uri", "memory:shop")
        assert done.returncode == 2
        assert "source memory:shop: MEMORY_STORE is not set" in done.stderr

    def test_diff_reads_it(self, store: Path) -> None:
        (store / "other").write_text(flag("blue"))
        done = wigwag("diff", "memory:shop", "memorys:other")
        assert "colour" in done.stdout, done.stderr

    def test_an_unknown_provider_is_told_which_plug_ins_there_are(self, store: Path) -> None:
        done = wigwag("start", "--sources", '[{"uri": "x", "provider": "ftp"}]')
        assert done.returncode == 2
        assert "unknown provider 'ftp'; known are file, fsnotify" in done.stderr
        assert "configmap, memory, memorys" in done.stderr


class TestProxy:
    def test_a_plug_in_that_is_allowed_is_a_target(self, store: Path) -> None:
        (store / "shop").write_text(json.dumps(document(7)))
        with ProxyProcess("--allow", "memory") as proxy, subscribed(proxy, "memory:shop") as subscriber:
            assert subscriber.said() == 7

    def test_a_subscriber_cannot_make_the_proxy_load_a_plug_in(self, store: Path) -> None:
        code = """
import sys
from wigwag.errors import UsageError
from wigwag.proxy.options import ProxyOptions
from wigwag.proxy.selectors import Selectors
try:
    Selectors.of(ProxyOptions()).read("memory:shop")
except UsageError as error:
    print(error)
print("wigwag_memory" in sys.modules)
chosen = Selectors.of(ProxyOptions(allow=("memory",)))
print(chosen.read("memorys:shop").provider, chosen.accepted)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        refused, loaded, allowed = done.stdout.splitlines()
        assert "the selector names no target" in refused
        assert loaded == "False"
        assert allowed == "memory core.openfeature.dev/NAMESPACE/NAME or file:PATH or memory:KEY"


class TestBroken:
    @pytest.mark.parametrize(
        ("entry", "why"),
        [
            ("memory = wigwag_memory:GREEDY", "file is built in and cannot be replaced"),
            ("memory = wigwag_memory:FILE", "file is built in and cannot be replaced"),
            ("memory = wigwag_memory:PREFIXED", "a plug-in has schemes only"),
            ("memory = wigwag_memory:OTHER", "it needs an entry point of that name"),
            ("memory = wigwag_memory:NOTHING", "wigwag_memory:NOTHING is a NoneType, not a SourceKind"),
            ("memory = wigwag_memory:MISSING", "AttributeError: .*MISSING"),
            ("memory = wigwag_gone:KIND", "ModuleNotFoundError: No module named 'wigwag_gone'"),
        ],
    )
    def test_the_error_names_the_package_and_the_reason(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, why: str
    ) -> None:
        monkeypatch.syspath_prepend(install(tmp_path, entry))
        monkeypatch.delitem(sys.modules, "wigwag_memory", raising=False)
        with pytest.raises(
            UsageError, match=f"the plug-in wigwag-memory 1.2 cannot be used for 'memory': .*{why}.*; upd"
        ):
            load_from(entries(tmp_path), "memory", TAKEN)
        monkeypatch.delitem(sys.modules, "wigwag_memory", raising=False)

    @pytest.mark.parametrize(
        ("kind", "error"),
        [
            ("MISREAD", "$.sources[0].uri: the plug-in wigwag-memory 1.2 failed in parse: IndexError: list index"),
            ("UNPREPARED", "source memory:shop: the plug-in wigwag-memory 1.2 failed in prepare: KeyError: 'STORE'"),
        ],
    )
    def test_an_exception_that_is_no_usage_error_names_the_package_and_ends_the_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, error: str
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", str(install(tmp_path / "site", f"memory = wigwag_memory:{kind}")))
        done = wigwag("start", "--sources", '[{"uri": "memory:shop", "provider": "memory"}]')
        assert done.returncode == 2
        assert error in done.stderr
        assert "Traceback" not in done.stderr

    def test_two_packages_with_one_name_are_refused(self, tmp_path: Path) -> None:
        install(tmp_path, BOTH)
        install(tmp_path, BOTH, "other-memory")
        with pytest.raises(UsageError, match=r"the plug-ins other-memory 1.2 and wigwag-memory 1.2 both have 'memory'"):
            load_from(entries(tmp_path), "memory", TAKEN)

    def test_a_name_that_is_gone_is_an_error(self) -> None:
        with pytest.raises(UsageError, match="no installed package has the kind of source 'memory'"):
            load_from([], "memory", TAKEN)

    def test_an_agent_that_uses_it_ends_with_that_error_and_others_do_not_notice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", str(install(tmp_path / "site", BOTH, text="raise OSError('no driver')")))
        done = wigwag("start", "--uri", "memory:shop")
        assert done.returncode == 2
        assert "--uri: the plug-in wigwag-memory 1.2 cannot be used for 'memory': OSError: no driver" in done.stderr
        (tmp_path / "a.json").write_text(flag("red"))
        assert wigwag("check-config", "--uri", f"file:{tmp_path}/a.json").returncode == 0


class TestBuiltIn:
    def test_a_package_cannot_replace_a_built_in_kind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        names = "\n".join(f"{name} = wigwag_memory:KIND" for name in ("file", "http", "demo", "unix", "configmap"))
        monkeypatch.setenv("PYTHONPATH", str(install(tmp_path / "site", names)))
        code = """
import sys
from wigwag.sources.kinds import BUILT_IN, kind_named, kind_of, kind_of_uri
print(*(kind_of_uri(uri).name for uri in ("file:a", "http://a/", "unix:a", "configmap/a/b")))
print(kind_named("file") in BUILT_IN, kind_of("demo") in BUILT_IN, kind_of_uri("demo:a"))
print("wigwag_memory" in sys.modules)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split("\n")[:3] == ["file http grpc configmap", "True True None", "False"]

    def test_no_two_kinds_have_the_same_name_scheme_or_prefix(self) -> None:
        names = [name for kind in BUILT_IN for name in kind.names]
        schemes = [scheme for kind in BUILT_IN for scheme in kind.schemes]
        prefixes = [kind.prefix for kind in BUILT_IN if kind.prefix]
        assert [len(set(each)) for each in (names, schemes, prefixes)] == [len(names), len(schemes), len(prefixes)]

    def test_who_has_built_in_kinds_only_does_not_look_for_entry_points(self, store: Path) -> None:
        code = """
import sys
from wigwag.sources import plugins
from wigwag.sources.kinds import prepare
from wigwag.sources.kinds import parse_sources
prepare(parse_sources(("file:a.json",), '[{"uri": "b.json", "provider": "fsnotify"}]'), print)
print(plugins._entries.cache_info().misses, "wigwag_memory" in sys.modules)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["0", "False"]


def test_the_plug_in_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = DOCS.read_text().partition("## Write your own source")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    (entry,) = [line.replace('"', "") for line in section.splitlines() if line.startswith("motd = ")]
    monkeypatch.setenv("PYTHONPATH", str(install(tmp_path / "site", entry, "wigwag-motd", "wigwag_motd", code)))
    (tmp_path / "flags.json").write_text(flag("blue"))
    with AgentProcess("--uri", f"motd:{tmp_path}/flags.json") as agent:
        assert colour(agent) == "blue"
