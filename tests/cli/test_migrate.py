"""`wigwag migrate`: what is written, what is said, and how it ends."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from wigwag.cli.main import main
from wigwag.yaml import Bounds, load_all

OLD = """\
# where the flags are
apiVersion: core.openfeature.dev/v1alpha3
kind: FlagSourceConfiguration
metadata: {name: shop}
spec:
  metricsPort: 9000
  image: own
  sources:
  - {source: shop, provider: filepath}
---
# a comment that stays
apiVersion: v1
kind: Service   # as it is
metadata: {name: web}
---
apiVersion: core.openfeature.dev/v1alpha1
kind: FeatureFlagConfiguration
metadata: {name: shop}
spec:
  featureFlagSpec: |
    {"flags": {"banner": {"state": "ENABLED", "variants": {"on": true, "1e3": false}, "defaultVariant": "on"}}}
"""
NEW = """\
apiVersion: core.openfeature.dev/v1beta1
kind: FeatureFlagSource
metadata:
  name: shop
spec:
  managementPort: 9000
  sources:
  - source: shop
    provider: file
---
# a comment that stays
apiVersion: v1
kind: Service   # as it is
metadata: {name: web}
---
apiVersion: core.openfeature.dev/v1beta1
kind: FeatureFlag
metadata:
  name: shop
spec:
  flagSpec:
    flags:
      banner:
        state: ENABLED
        variants:
          'on': true
          '1e3': false
        defaultVariant: 'on'
"""


@pytest.fixture
def old(tmp_path: Path) -> str:
    path = tmp_path / "old.yaml"
    path.write_text(OLD)
    return str(path)


def test_documents_are_migrated_or_written_as_they_are(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", old]) == 0
    said = capsys.readouterr()
    assert said.out == NEW
    assert said.err.splitlines() == [
        f"{old}:7: warning: image 'own' is dropped: set SIDECAR_IMAGE of the operator, which is for all agents",
        "3 documents read, 2 changed",
    ]


def test_what_is_new_already_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.yaml").write_text(f"---\n{NEW}...\n")
    assert main(["migrate", str(tmp_path / "new.yaml")]) == 0
    assert capsys.readouterr().out == NEW


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("--- {a: on}\r\n", " {a: on}\n"),
        ("---\r\na: on # kept\r\n...\r\n", "a: on # kept\n"),
        ("a: and so on...\n", "a: and so on...\n"),
        ("%YAML 1.2\n---\na: on # lost\n", "a: 'on'\n"),
        ("---\n---\na: 1\n---\n", "a: 1\n"),
        ("", ""),
    ],
)
def test_texts_that_stay_may_begin_and_end_in_many_ways(
    text: str, written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.yaml").write_bytes(text.encode())
    assert main(["migrate", str(tmp_path / "other.yaml")]) == 0
    assert capsys.readouterr().out == written


def test_with_strict_what_is_lost_is_an_error(old: str) -> None:
    assert main(["migrate", "--strict", old]) == 1


def test_an_object_that_cannot_be_migrated_is_an_error_with_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = OLD.replace('{"flags"', '{flags"')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["migrate", "-"]) == 1
    said = capsys.readouterr()
    assert "standard input:20: error: the flags cannot be read: " in said.err
    assert "kind: FeatureFlagConfiguration" in said.out, "it is left as it is"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n---\nb: [1\n", "cannot be read: not valid YAML: "),
        ("a: 1\n---\nb: 1\nb: 2\n", "the key 'b' appears twice at line 4, column 1"),
        (b"\xff\xfe\xff", "not valid YAML"),
        ("a: 1".encode("utf-16"), "it is not UTF-8"),
    ],
)
def test_a_file_that_is_no_yaml_is_exit_code_2(
    text: str | bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["migrate", str(path)]) == 2
    said = capsys.readouterr()
    assert (message in said.err, said.out) == (True, "")
    assert main(["migrate", str(tmp_path / "missing.yaml")]) == 2


def test_lists_of_kubectl_in_json_are_read_and_their_items_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list.json"
    path.write_text(
        '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "core.openfeature.dev/v1alpha2",\n'
        ' "kind": "FeatureFlagConfiguration", "metadata": {"name": "a"},\n "spec": {"resources": {"limits": {"cpu": 1}}'
        ', "featureFlagSpec": {"flags": {}}}}]}'
    )
    assert main(["migrate", str(path)]) == 0
    said = capsys.readouterr()
    assert f"{path}:3: warning: resources is dropped: write it into `resources` of a FeatureFlagSource" in said.err
    assert load_all(said.out.encode(), Bounds(1000, 10)) == [
        (
            1,
            {
                "apiVersion": "core.openfeature.dev/v1beta1",
                "kind": "FeatureFlag",
                "metadata": {"name": "a"},
                "spec": {"flagSpec": {"flags": {}}},
            },
        )
    ]
