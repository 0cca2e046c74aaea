"""Mounts that never change, told by the table of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dflag.kubelet import Volume
from wigwag import dflag
from wigwag.dflag.updating import volume as mounts
from wigwag.dflag.updating.volume import frozen_keys

POD = "/var/lib/kubelet/pods/7f/volumes/kubernetes.io~configmap/config"
NOISE = """22 27 0:21 / /proc rw,relatime - proc proc rw
30 27 8:1 /var/lib/kubelet/pods/7f/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw
31 27 8:1 /var/lib/kubelet/pods/7f/volumes/kubernetes.io~configmap/whole /etc/whole ro - ext4 /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("line", "directory", "found"),
    [
        (f"40 27 8:1 {POD}/..2026_01_01_00_00_00.1/rate /etc/dflag/rate ro - ext4 d rw", "/etc/dflag", ["rate"]),
        (
            f"40 27 8:1 {POD}/..2026_01_01_00_00_00.1/rate//deleted /etc/dflag/rate ro - ext4 d rw",
            "/etc/dflag",
            ["rate"],
        ),
        ("40 27 0:9 /..2026_01_01_00_00_00.1/sub /etc/dflag ro - tmpfs tmpfs rw", "/etc/dflag", [""]),
        (r"40 27 0:9 /..2026_01_01_00_00_00.1/a /etc/d\040flag/a ro - tmpfs tmpfs rw", "/etc/d flag", ["a"]),
        (f"40 27 8:1 {POD}/..2026_01_01_00_00_00.1/rate /etc/dflag2/rate ro - ext4 d rw", "/etc/dflag", []),
        (f"40 27 8:1 {POD} /etc/dflag ro - ext4 d rw", "/etc/dflag", []),
        ("", "/etc", []),
        ("garbage", "/", []),
    ],
)
def test_what_is_mounted_with_sub_path_is_found(line: str, directory: str, found: list[str]) -> None:
    assert frozen_keys(NOISE + line, directory) == found


def test_it_is_told_of_loudly_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rate").write_text("20")
    table = tmp_path / "..table"
    table.write_text(f"40 27 8:1 {POD}/..2026_01_01_00_00_00.1/rate {tmp_path.resolve()}/rate ro - ext4 d rw\n")
    monkeypatch.setattr(mounts, "_TABLE", table)
    flags = dflag.FlagSet("test")
    flags.int("rate", 10)
    with dflag.setup(flags, tmp_path) as updater:
        assert (updater.warnings, updater.errors) == (1, 0)
        assert "mounted with subPath" in str(updater.problems[0])
    assert caplog.text.count("mount the whole volume instead") == 1


def test_a_system_without_such_a_table_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_TABLE", tmp_path / "none")
    assert mounts.frozen_here(str(Volume(tmp_path / "conf", {}).path)) == []
