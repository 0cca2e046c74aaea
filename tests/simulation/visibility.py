"""P3: what the agent says of its sources, and of being ready, is so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.simulation.links import LONGEST_PAUSE

if TYPE_CHECKING:
    from tests.simulation.model import Upstream
    from tests.simulation.world import World


class Visibility:
    """Looks at what can be seen on the management port."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _stale(self, upstream: Upstream) -> bool | None:
        """Tell whether flags of a source are stale; None: that has changed so recently that either will do."""
        now, limit = self._world.loop.time(), self._world.setting.stale_after
        return None if upstream.unsure(now, limit) else upstream.stale(now, limit)

    def _upstream(self, name: str) -> Upstream:
        return next(each for each in self._world.upstreams if each.name == name)

    def _sources(self) -> None:
        """P3: each source tells its state, age and errors."""
        world = self._world
        told = json.loads(world.life.surfaces.page("/debug/sources").body)
        assert [each["source"] for each in told] == [each.name for each in world.upstreams]
        for source, upstream, link in zip(told, world.upstreams, world.links, strict=True):
            found = source["state"], source["updates"], source["restored"]
            restored = upstream.confirmed is not None and not upstream.values
            assert found == (upstream.state, upstream.values, restored), f"P3: {upstream.name}: {found}"
            assert source["restarts"] == max(upstream.starts - 1, 0), f"P3: {upstream.name}: {source['restarts']}"
            self._age(source["ageSeconds"], upstream)
            self._error(source, upstream)
            if (stale := self._stale(upstream)) is not None:
                assert source["stale"] == stale, f"P3: {upstream.name}: stale is {source['stale']}"
            self._timing(link.away_since, link.begun, upstream)

    def _age(self, age: float | None, upstream: Upstream) -> None:
        if upstream.confirmed is None:
            assert age is None, f"P3: {upstream.name} never answered, and has an age"
        else:
            expected = self._world.loop.time() - upstream.confirmed
            assert age is not None, f"P3: {upstream.name} has no age"
            assert abs(age - expected) < 0.01, f"P3: {upstream.name}: {age} s old, and must be {expected}"

    def _error(self, source: dict[str, Any], upstream: Upstream) -> None:
        last, expected = source["lastError"], upstream.error
        same = last is None if expected is None else (last or "").startswith(expected)
        assert same, f"P3: {upstream.name}: the last error is {last!r}, and must be {expected!r}"
        error = last if upstream.state == "failing" else None
        assert source["error"] == error, f"P3: {upstream.name}: the error is {source['error']!r}"

    def _timing(self, away: float | None, begun: float, upstream: Upstream) -> None:
        """A source that failed is tried again, not too late and not too often."""
        now = self._world.loop.time()
        late = away is not None and now - away > LONGEST_PAUSE + 0.1
        assert not late, f"P2: {upstream.name} has been given up"
        most = 40 + (now - begun) / 5
        assert upstream.starts < most, f"{upstream.name} was tried {upstream.starts} times in {now - begun:.0f} s"

    def _metrics(self) -> None:
        """P3: the metrics say the same."""
        world = self._world
        lines = world.life.surfaces.page("/metrics").body.decode().splitlines()
        told = dict(line.rsplit(" ", 1) for line in lines if line.startswith("wigwag_source_"))
        for position, upstream in enumerate(world.upstreams):
            labels = f'{{source="{upstream.name}",priority="{position}"}}'
            up = float(told[f"wigwag_source_up{labels}"])
            assert up == (upstream.state == "live"), f"P3: {upstream.name}: up is {up}"
            age = told.get(f"wigwag_source_age_seconds{labels}")
            self._age(None if age is None else float(age), upstream)
            stale = self._stale(upstream)
            assert stale in (None, float(told[f"wigwag_source_stale{labels}"]) == 1), f"P3: {upstream.name}: stale"

    def _ready(self) -> None:
        """Ready once every required source has answered or its flags from before are served; if asked, fresh ones."""
        world = self._world
        needed = [each for each in world.upstreams if each.required]
        answered = world.published() is not None and all(each.confirmed is not None for each in needed)
        world.life.was_ready = world.life.was_ready or answered
        stale = [self._stale(each) for each in needed] if world.setting.only_fresh else []
        if None in stale:
            return
        expected = world.life.was_ready and True not in stale
        assert (world.life.surfaces.page("/readyz").status == 200) == expected, f"P3: ready must be {expected}"
