"""The numbers for Prometheus."""

from __future__ import annotations

from pathlib import Path

from tests.dflag.page.asking import OPEN, ask, put
from wigwag import dflag
from wigwag.dflag import Policy
from wigwag.dflag.page.site import Site


def samples(site: Site) -> dict[str, float]:
    answer = ask(site, "GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_flags_and_updater_are_counted(tmp_path: Path) -> None:
    flags = dflag.FlagSet("shop")
    rate = flags.int("rate", 10)
    flags.int("port", 80, dynamic=False)
    (tmp_path / "rate").write_text("many")
    (tmp_path / "unknown").write_text("1")
    updater = dflag.Updater(flags, tmp_path, policy=Policy(tolerant=True))
    flags.freeze()
    (tmp_path / "port").write_text("81")
    updater.initialize()
    site = Site(flags, updater, OPEN)
    put(site, "rate", 20)
    assert samples(site) == {
        "dflag_generation": 1,
        "dflag_flags": 2,
        "dflag_changed": 1,
        "dflag_overrides": 1,
        "dflag_notifier_errors_total": 0,
        f'dflag_checksum{{set="shop",type="dynamic",checksum="{flags.checksum("dynamic", legacy=True)}"}}': 1,
        f'dflag_checksum{{set="shop",type="static",checksum="{flags.checksum("static", legacy=True)}"}}': 1,
        "dflag_updater_running": 0,
        "dflag_reloads_total": 1,
        "dflag_errors_total": 1,
        "dflag_warnings_total": 1,
        'dflag_problems{level="error"}': 1,
        'dflag_problems{level="warning"}': 1,
        "dflag_restart_required": 1,
    }
    assert rate.get() == 20


def test_without_an_updater_there_are_the_flags_only() -> None:
    flags = dflag.FlagSet('a"b\\c')
    found = samples(Site(flags))
    assert "dflag_reloads_total" not in found
    assert any(name.startswith(r'dflag_checksum{set="a\"b\\c"') for name in found)
