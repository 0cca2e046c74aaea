"""Which targets a subscriber may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from wigwag.errors import UsageError
from wigwag.proxy.options import KINDS, ProxyOptions
from wigwag.proxy.selectors import Selectors


def selectors(**options: object) -> Selectors:
    return Selectors.of(ProxyOptions(**options))  # type: ignore[arg-type]


def test_a_file_is_a_target_with_the_proxys_limits() -> None:
    source = selectors(max_document=1000).read("file:/etc/flags/a.json")
    assert (source.provider, source.name) == ("file", "/etc/flags/a.json")
    assert (source.settings.most, source.settings.max_message) == (1000, 1000)


def test_equal_selectors_are_one_target() -> None:
    read = selectors().read
    assert read("file:a.json") == read("file:a.json")
    assert hash(read("file:a.json")) == hash(read("file:a.json"))
    assert read("file:a.json") != read("file:b.json")


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("", "say which flags are meant: the selector must be core.openfeature.dev/NAMESPACE/NAME or file:PATH"),
        ("flagSetId=a", "accepted here: core.openfeature.dev/NAMESPACE/NAME or file:PATH"),
        ("a.json", "names no target"),
        ("file:", "names nothing"),
        ("file:a\nb.json", "no control characters"),
        ("file:" + "a" * 1020, "at most 1024 characters"),
        ("https://flags.example/a.json", "this proxy has no http targets; accepted here: core"),
        ("grpc://flags.example:8015", "this proxy has no grpc targets"),
        ("unix:/run/flags.sock", "this proxy has no grpc targets"),
        ("s3://bucket/a.json", "this proxy has no s3 targets"),
        ("consul://127.0.0.1:8500/flags", "this proxy has no consul targets"),
    ],
)
def test_others_are_refused_with_what_is_accepted(selector: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        selectors().read(selector)
    assert message in str(caught.value)


def test_a_password_in_a_selector_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        selectors(allow=("http",)).read("https://me:hush@:x/")
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(selectors(allow=("http",)).read("https://me:hush@flags.example/a"))


def test_further_kinds_can_be_allowed() -> None:
    found = selectors(allow=("http", "grpc"))
    assert found.read("https://flags.example/a.json").provider == "http"
    assert found.read("grpcs://flags.example:8015").settings.tls
    assert found.accepted == "core.openfeature.dev/NAMESPACE/NAME or file:PATH or https://… or grpc://HOST:PORT"
    with pytest.raises(UsageError, match="no s3 targets"):
        found.read("s3://bucket/a.json")


def test_every_kind_has_a_form_to_tell() -> None:
    assert selectors(allow=KINDS).accepted == (
        "core.openfeature.dev/NAMESPACE/NAME or configmap/NAMESPACE/NAME or file:PATH or https://… or grpc://HOST:PORT"
        " or consul://HOST:PORT/KEY or gs://BUCKET/OBJECT or azblob://CONTAINER/OBJECT or s3://BUCKET/OBJECT"
    )


def test_a_kind_that_is_none_is_refused_at_start() -> None:
    with pytest.raises(UsageError, match="--allow: 'ftp' is no kind of target; known are kubernetes, configmap, file"):
        selectors(allow=("ftp",))


@pytest.mark.parametrize("path", ["a.json", "sub/a.json", "./a.json", "sub/../a.json", "{root}/a.json"])
def test_with_a_root_files_are_looked_for_in_it(tmp_path: Path, path: str) -> None:
    source = selectors(file_root=str(tmp_path)).read("file:" + path.format(root=tmp_path))
    assert Path(source.name).parent in (tmp_path, tmp_path / "sub")
    assert ".." not in source.name


@pytest.mark.parametrize(
    "path", ["../a.json", "/etc/passwd", "sub/../../a.json", "{root}/../a.json", "{root}-too/a.json", ".", "{root}"]
)
def test_with_a_root_nothing_else_is_a_target(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match="not in the directory"):
        selectors(file_root=str(tmp_path)).read("file:" + path.format(root=tmp_path))


def test_with_a_root_links_that_lead_out_are_refused_and_links_within_are_not(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "..1").mkdir(parents=True)
    (root / "..1" / "flags.json").touch()
    (root / "..data").symlink_to("..1")
    (root / "flags.json").symlink_to("..data/flags.json")
    (root / "out.json").symlink_to("/etc/hostname")
    chosen = selectors(file_root=str(root))
    source = chosen.read("file:flags.json")
    assert (source.name, source.settings.root) == (str(root / "flags.json"), str(root))
    with pytest.raises(UsageError, match="not in the directory"):
        chosen.read("file:out.json")


def test_a_root_that_is_none_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--file-root: there is no directory"):
        selectors(file_root=str(tmp_path / "none"))
