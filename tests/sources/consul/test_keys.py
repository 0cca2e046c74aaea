"""Keys of Consul, against a model of it on a clock that the test moves: levels, refusals, indexes, and how often."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.pipeline.fakes import run
from tests.sources.consul.model import DEAF, DENIED, DOWN, LEADERLESS, OK, Followed, following
from wigwag.errors import UsageError
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.keys import ConsulWatch, watch_consul, watch_values
from wigwag.sources.document import Document, Merged

KEY = "flags/shop.json"
SPEC = ConsulWatch(ConsulAccess(wait=60.0), KEY)


async def begun(followed: Followed, value: bytes = b"1") -> None:
    followed.consul.put(KEY, value)
    assert await followed.on(0) == [Document(value, "json")]


def questions(followed: Followed) -> list[tuple[str | None, str | None]]:
    return [(query.get("index"), query.get("wait")) for _, _, query, _ in followed.consul.asked]


def test_the_first_answer_comes_at_once_a_change_at_once_and_otherwise_that_nothing_has_changed() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            followed.consul.put(KEY, b"1")
            assert await followed.on(0) == [Document(b"1", "json")]
            assert await followed.on(63) == []
            assert await followed.on(1) == [UNCHANGED]
            followed.consul.put(KEY, b"2")
            assert await followed.on(0) == [Document(b"2", "json")]
            assert questions(followed) == [(None, None), ("11", "60000ms"), ("11", "60000ms"), ("12", "60000ms")]
        assert followed.consul.closed == 1

    run(main)


def test_an_answer_with_the_same_content_is_no_change() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await begun(followed)
            followed.consul.put(KEY, b"1")
            assert await followed.on(0) == [UNCHANGED]

    run(main)


def test_a_key_that_is_not_there_is_told_and_awaited() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            [trouble] = await followed.on(0)
            assert "there is no such key" in trouble.reason
            assert trouble.reason.startswith("consul://127.0.0.1:8500/flags/shop.json: ")
            followed.consul.put(KEY, b"1")
            assert await followed.on(0) == [Document(b"1", "json")]

    run(main)


def test_a_deleted_key_is_told_and_the_same_value_again_is_well_again() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await begun(followed)
            followed.consul.delete(KEY)
            [trouble] = await followed.on(0)
            assert "there is no such key" in trouble.reason
            followed.consul.put(KEY, b"1")
            assert await followed.on(0) == [UNCHANGED]

    run(main)


def test_an_index_that_goes_back_is_asked_for_from_the_beginning() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await begun(followed)
            saved = followed.consul.save()
            for number in range(3):
                followed.consul.put(KEY, b"%d" % number)
            assert await followed.on(0) == [Document(b"2", "json")]
            followed.consul.restore(saved)
            assert await followed.on(64) == [Document(b"1", "json"), UNCHANGED]
            assert questions(followed)[-3:] == [("14", "60000ms"), (None, None), ("11", "60000ms")]

    run(main)


def test_without_an_index_it_is_asked_from_the_first_one_and_seldom() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            followed.consul.indexed = False
            followed.consul.put(KEY, b"1")
            assert (await followed.on(300))[:2] == [Document(b"1", "json"), UNCHANGED]
            assert {index for index, _ in questions(followed)[1:]} == {"1"}
            assert len(followed.consul.asked) <= 1 + 2 + 300 / 15 + 1

    run(main)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (DOWN, "no connection"),
        (LEADERLESS, "Consul has no leader"),
        (DENIED, "Consul does not know the token, or it was revoked"),
    ],
)
def test_a_failure_is_told_less_and_less_often_and_recovery_is_noticed(state: str, said: str) -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await begun(followed)
            followed.consul.become(state)
            followed.consul.ring()
            told = await followed.on(300)
            assert told
            assert all(isinstance(item, Unavailable) and said in item.reason for item in told)
            assert len(told) < 8 + 300 / 15
            followed.consul.become(OK)
            assert (await followed.on(17))[:1] == [UNCHANGED]
            followed.consul.put(KEY, b"2")
            assert await followed.on(17) == [Document(b"2", "json")]

    run(main)


def test_after_a_short_failure_it_is_asked_from_where_it_was_but_in_short() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await begun(followed)
            followed.consul.become(DOWN)
            await followed.on(0)
            followed.consul.become(OK)
            assert await followed.on(2) == [UNCHANGED]
            assert questions(followed)[-2:] == [("11", "100ms"), ("11", "60000ms")]

    run(main)


def test_after_a_long_failure_or_a_refusal_it_is_asked_from_the_beginning() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await begun(followed)
            followed.consul.become(DOWN)
            await followed.on(120)
            assert questions(followed)[-1] == (None, None)
            followed.consul.become(OK)
            await followed.on(60)
            assert questions(followed)[-1] == ("11", "60000ms")
            followed.consul.become(DENIED)
            await followed.on(1)
            assert questions(followed)[-1] == (None, None)

    run(main)


def test_a_server_that_comes_back_empty_takes_nothing_away_and_is_noticed_soon() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await begun(followed)
            followed.consul.become(DOWN)
            await followed.on(5)
            followed.consul.restore(({}, 3))
            followed.consul.become(OK)
            told = await followed.on(20)
            assert not any(isinstance(item, Document) for item in told)
            assert "there is no such key" in told[-1].reason
            followed.consul.put(KEY, b"3")
            assert await followed.on(15) == [Document(b"3", "json")]

    run(main)


def test_a_connection_that_is_dead_without_a_word_is_found_out() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await begun(followed)
            followed.consul.become(DEAF)
            assert await followed.on(73) == []
            [trouble] = await followed.on(1)
            assert "does not answer in time" in trouble.reason

    run(main)


def test_churn_elsewhere_does_not_make_it_ask_often() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await followed.on(0)
            for _ in range(600):
                followed.consul.churn()
                await followed.clock.advance(0.5)
            assert len(followed.consul.asked) <= 1 + 2 + 300 / 15 + 1

    run(main)


def test_a_flag_that_is_turned_on_and_off_is_seen_each_time_and_one_that_is_never_still_at_intervals() -> None:
    async def main() -> None:
        async with following(watch_consul, SPEC) as followed:
            await begun(followed)
            for number in range(5):
                followed.consul.put(KEY, b"a%d" % number)
                assert await followed.on(0.1) == [Document(b"a%d" % number, "json")]
            for number in range(600):
                followed.consul.put(KEY, b"b%d" % number)
                await followed.clock.advance(0.5)
            assert len(followed.consul.asked) <= 1 + 10 + 300.5 / 5 + 1
            assert (await followed.on(6))[-1] == Document(b"b599", "json")

    run(main)


def test_the_token_is_read_from_its_file_for_every_question_and_shown_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first-secret\n")
    spec = ConsulWatch(ConsulAccess(token_file=str(path)), KEY)

    async def main() -> None:
        async with following(watch_consul, spec) as followed:
            await begun(followed)
            path.write_text("second-secret")
            followed.consul.put(KEY, b"2")
            await followed.on(0)
            assert [fields["X-Consul-Token"] for *_, fields in followed.consul.asked] == [
                "first-secret",
                "first-secret",
                "second-secret",
            ]
            path.unlink()
            followed.consul.put(KEY, b"3")
            told = await followed.on(1)
            assert "No such file" in told[-1].reason
            assert "it must hold the token" in told[-1].reason
            path.write_text("third\nsecret")
            assert "secret" not in (await followed.on(30))[-1].reason
            path.write_text("fourth-secret")
            assert (await followed.on(30))[-1] is UNCHANGED

    run(main)


def test_part_of_the_truth_is_not_taken_for_the_whole() -> None:
    async def main() -> None:
        async with following(watch_consul, ConsulWatch(ConsulAccess(), "flags/")) as followed:
            followed.consul.put("flags/a", b'{"flags": {}}')
            assert isinstance((await followed.on(0))[0], Merged)
            followed.consul.extra = {"x-consul-results-filtered-by-acls": "true"}
            followed.consul.keys.clear()
            followed.consul.put("flags/b", b'{"flags": {}}')
            told = await followed.on(5)
            assert all(isinstance(item, Unavailable) and "may not read all of it" in item.reason for item in told)

    run(main)


def test_a_stale_answer_is_taken_unless_it_is_too_old() -> None:
    async def main() -> None:
        async with following(watch_consul, ConsulWatch(ConsulAccess(consistency="stale"), KEY)) as followed:
            followed.consul.extra = {"x-consul-lastcontact": "1000"}
            await begun(followed)
            assert followed.consul.asked[0][2]["stale"] == ""
            followed.consul.extra = {"x-consul-lastcontact": "61000"}
            followed.consul.put(KEY, b"2")
            assert "has had no contact with a leader for 61 s" in (await followed.on(0))[0].reason
            followed.consul.extra = {}
            assert (await followed.on(5))[0] == Document(b"2", "json")

    run(main)


def test_all_keys_below_a_prefix_are_one_document() -> None:
    def flag(variant: str) -> bytes:
        return b'{"flags": {"%s": {"variants": {"on": 1}}}}' % variant.encode()

    async def main() -> None:
        async with following(watch_consul, ConsulWatch(ConsulAccess(), "flags/")) as followed:
            followed.consul.put("flags/b/c.yaml", b"flags: {c: {variants: {on: 1}}}")
            followed.consul.put("flags/a.json", flag("a"))
            followed.consul.put("flags/folder/", b"")
            followed.consul.put("other", b"{")
            [document] = await followed.on(0)
            assert document.content == (
                b'{"flags":{"a":{"variants":{"on": 1},"metadata":{},"key":"a"},'
                b'"c":{"variants":{"on": 1},"metadata":{},"key":"c"}}}'
            )
            assert followed.consul.asked[0][1:3] == ("/v1/kv/flags/", {"recurse": "true"})
            followed.consul.put("flags/broken.json", b"{")
            [trouble] = await followed.on(0)
            assert "broken.json: not valid JSON" in trouble.reason
            followed.consul.put("flags/d.json", flag("d"))
            document, trouble = await followed.on(0)
            assert b'"d"' in document.content
            assert "broken.json" in trouble.reason
            followed.consul.delete("flags/broken.json")
            assert await followed.on(20) == [UNCHANGED]
            for key in list(followed.consul.keys):
                followed.consul.delete(key)
            assert "there is no key below it" in (await followed.on(20))[-1].reason

    run(main)


def test_what_is_too_large_is_trouble() -> None:
    async def main() -> None:
        async with following(watch_consul, ConsulWatch(ConsulAccess(), KEY, most=3)) as followed:
            followed.consul.put(KEY, b"1234")
            assert "larger than the limit of 3 bytes" in (await followed.on(0))[0].reason

    run(main)


@pytest.mark.parametrize("key", ["", "/", "a//b", "/a", "a/../b", ".", "a\nb"])
def test_what_cannot_be_a_key_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="is not a key"):
        ConsulWatch(ConsulAccess(), key)


# whatever happens in whatever order


class World:
    """A Consul to which things happen by lot, and what an onlooker knows."""

    def __init__(self, followed: Followed, lot: Random) -> None:
        self.followed, self.consul, self.lot = followed, followed.consul, lot
        self.held: set[bytes] = set()
        self.saved = self.consul.save()
        self.outages = 0

    async def step(self) -> None:
        happen: dict[str, Any] = {
            "put": self.put,
            "delete": lambda: self.consul.delete(KEY),
            "churn": self.consul.churn,
            "save": self.save,
            "restore": lambda: self.consul.restore(self.saved),
            "replace": lambda: self.consul.restore(({}, 1)),
            "fail": self.fail,
            "recover": lambda: self.consul.become(OK),
            "index": lambda: setattr(self.consul, "indexed", self.lot.random() < 0.7),
        }
        happen[self.lot.choice([*happen, "put", "put", "recover", "churn"])]()
        await self.followed.clock.advance(self.lot.choice([0, 0, 0.1, 1.0, 7.0, 30.0, 90.0]))

    def put(self) -> None:
        value = b"%d" % self.lot.randrange(4)
        self.held.add(value)
        self.consul.put(KEY, value)

    def save(self) -> None:
        self.saved = self.consul.save()

    def fail(self) -> None:
        self.outages += 1
        self.consul.become(self.lot.choice([DOWN, LEADERLESS, DENIED, DEAF]))


@pytest.mark.parametrize("block", range(8))
def test_in_the_end_what_was_published_is_what_the_server_has(block: int) -> None:
    """800 schedules, 100 in each block; a seed that fails is in the message."""

    async def schedule(seed: int) -> None:
        async with following(watch_consul, SPEC, seed) as followed:
            world = World(followed, Random(seed))
            for _ in range(12):
                await world.step()
            world.consul.indexed = True
            world.consul.become(OK)
            await followed.clock.advance(110.0)  # nobody answers for 74 s, and then a pause up to 30 s
            documents = [item for _, item in followed.items if isinstance(item, Document)]
            assert all(document.content in world.held for document in documents), seed
            last = followed.items[-1][1]
            if KEY in world.consul.keys:
                assert documents[-1].content == world.consul.keys[KEY][0], seed
                assert not isinstance(last, Unavailable), seed
            else:
                assert "there is no such key" in last.reason, seed
            world.consul.put(KEY, b"last")
            assert Document(b"last", "json") in await followed.on(16.0), seed
            seconds = followed.clock.now() - 1000.0
            assert len(world.consul.asked) <= 16 + seconds / 5 + seconds / 15 + 12 * world.outages + seconds / 5, seed

    for seed in range(block * 100, block * 100 + 100):
        run(lambda seed=seed: schedule(seed))  # type: ignore[misc]


def test_values_are_yielded_as_they_are_and_no_key_is_an_answer() -> None:
    async def main() -> None:
        async with following(watch_values, ConsulWatch(ConsulAccess(), "app/")) as followed:
            assert await followed.on(0) == [{}]
            followed.consul.put("app/b", b"\xff")
            followed.consul.put("app/a/x", b"")
            assert (await followed.on(0))[-1] == {"app/a/x": b"", "app/b": b"\xff"}
            followed.consul.become(DOWN)
            assert all(isinstance(item, Unavailable) for item in await followed.on(10))
            followed.consul.become(OK)
            assert set(await followed.on(3)) == {UNCHANGED}
            followed.consul.delete("app/b")
            followed.consul.delete("app/a/x")
            assert (await followed.on(0))[-1] == {}
        async with following(watch_values, SPEC) as followed:
            followed.consul.put(KEY, b"1")
            assert await followed.on(0) == [{KEY: b"1"}]

    run(main)
