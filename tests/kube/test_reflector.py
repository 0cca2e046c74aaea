"""The reflector against a model of the API server: random schedules of faults, and then rule by rule."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.kube.model import SPEC, State, World, contents
from wigwag.kube.client import Capabilities
from wigwag.kube.errors import ApiStatus
from wigwag.kube.watch.decode import Bookmark, ListPage, ObjectEvent, ObjectRecord
from wigwag.kube.watch.listwatch import ReflectorRequest, WatchFault, WatchTiming, refusal
from wigwag.kube.watch.reflector import Reflector
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.spec import UNCHANGED, Unavailable

SCHEDULES, RESTORES, BATCHES = 1200, 500, 6
HOUR = 3600.0
REFUSED = WatchFault("no connection")


def schedule(seed: int, *, restores: bool = False) -> World:
    """Run one world through faults, and then through peace."""
    world = World(seed, restores=restores)
    for _ in range(world.random.randrange(5, 60)):
        world.turn()
    assert restores or world.whole() <= world.causes, "the whole list was asked for without a cause"
    world.calm = True
    for _ in range(60 if restores else 12):
        world.turn()
        if world.published == world.server.state() and not world.trouble:
            break
    assert world.published == world.server.state()
    assert not world.trouble
    world.server.change("z", "last")
    for _ in range(8):
        world.turn()
    assert world.published == world.server.state()
    return world


@pytest.mark.parametrize("batch", range(BATCHES))
def test_whatever_happens_the_last_state_is_the_servers_and_every_state_was_once(batch: int) -> None:
    for seed in range(batch, SCHEDULES, BATCHES):
        try:
            schedule(seed)
        except BaseException as error:
            error.add_note(f"to see it again: schedule({seed})")
            raise


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_server_that_goes_back_is_followed_again_however_often_that_happens(batch: int) -> None:
    restores = 0
    for seed in range(batch, RESTORES, BATCHES):
        try:
            restores += schedule(seed, restores=True).server.restores
        except BaseException as error:
            error.add_note(f"to see it again: schedule({seed}, restores=True)")
            raise
    assert restores > 20


def obj(name: str, version: int, content: str = "") -> ObjectRecord[Any]:
    value = {"metadata": {"name": name}, "data": {"content": content or f"{name}{version}"}}
    return ObjectRecord(("ns", name), str(version), value)


def there(name: str, version: int) -> ObjectEvent[Any]:
    return ObjectEvent(obj(name, version))


def gone(name: str, version: int) -> ObjectEvent[Any]:
    return ObjectEvent(obj(name, version), gone=True)


def page(version: int, *records: ObjectRecord[Any], token: str = "") -> ListPage[Any]:
    return ListPage(str(version), token, records)


def status(code: int, reason: str = "", message: str = "", retry_after: float = 0.0) -> WatchFault:
    return refusal(ApiStatus(code, reason, message), SPEC, "watch", retry_after)


class Driven:
    """A reflector whose time and answers the test chooses. Chance is a coin that always falls on the middle."""

    def __init__(self, streams: bool = False, chance: float = 0.5, **timing: Any) -> None:
        self.capabilities = Capabilities(streams)
        self.reflector = Reflector[dict[str, Any]](self.capabilities, WatchTiming(**timing), lambda: chance)
        self.now = 0.0
        self.asks: list[ReflectorRequest] = []

    def ask(self) -> ReflectorRequest:
        """Let time pass until the next request."""
        asked = self.reflector.next(self.now)
        self.now = max(self.now, asked.when)
        self.asks.append(asked)
        return asked

    def failed(self, fault: WatchFault, after: float = 0.0) -> list[Any]:
        self.now += after
        return self.reflector.failed(fault, self.now)

    def received(self, *events: Any, after: float = 0.0) -> list[Any]:
        self.now += after
        return self.reflector.received(events, self.now)

    def ended(self, after: float) -> list[Any]:
        self.now += after
        return self.reflector.ended(self.now)

    def silent(self) -> list[Any]:
        """Let nothing come until the reflector gives up; return what it said."""
        found = []
        while self.reflector.open:
            self.now = self.reflector.wake
            found += self.reflector.waited(self.now)
            self.reflector.check(self.now)  # which is never answered, either
        return found

    def check(self) -> ReflectorRequest:
        """Let time pass until the next comparison."""
        while (asked := self.reflector.check(self.now)) is None:
            self.now = max(self.now, self.reflector.wake)
            self.reflector.waited(self.now)
            assert self.reflector.open, "no comparison was asked for"
        return asked

    def compared(self, *records: ObjectRecord[Any], version: int | str = "") -> list[Any]:
        """Answer a comparison with metadata."""
        heads: tuple[ObjectRecord[None], ...] = tuple(
            ObjectRecord(each.key, each.version, None, uid=each.uid) for each in records
        )
        return self.reflector.checked(ListPage(str(version), "", heads), self.now)

    def listed(self, *records: ObjectRecord[Any], version: int = 10) -> None:
        """Bring it to where a list has come, and a watch is open."""
        assert self.ask().how == "list"
        self.reflector.listed(page(version, *records), self.now)
        self.opened()

    def opened(self) -> ReflectorRequest:
        asked = self.ask()
        self.reflector.opened(self.now)
        return asked


def state(items: list[Any]) -> State:
    """Return what was published; nothing else was said."""
    [found] = items
    return contents(found)


# lists


def test_the_first_request_is_a_watch_that_begins_with_all_objects() -> None:
    driven = Driven(streams=True)
    asked = driven.opened()
    assert asked.query() == (
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", "450"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
    )
    assert driven.received(there("a", 3), there("b", 5)) == []
    assert state(driven.received(Bookmark("9", end=True))) == {"a": "a3", "b": "b5"}
    assert driven.reflector.open
    assert state(driven.received(there("a", 11))) == {"a": "a11", "b": "b5"}


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_that_does_not_offer_that_is_listed_and_not_asked_for_it_again(code: int) -> None:
    driven = Driven(streams=True)
    driven.ask()
    assert driven.failed(status(code)) == []
    asked = driven.ask()
    assert (driven.now, asked.query()) == (0.0, (("limit", "500"), ("resourceVersion", "0")))
    other = Reflector[Any](driven.capabilities, WatchTiming(), lambda: 0.5)
    assert other.next(0.0).how == "list"


def test_a_server_that_ignores_that_wish_is_listed_when_it_is_silent_for_too_long() -> None:
    driven = Driven(streams=True)
    driven.opened()
    driven.received(there("a", 3), after=5.0)
    assert driven.silent() == []
    assert driven.now == 15.0
    assert driven.ask().how == "list"
    assert not driven.capabilities.watch_list


def test_objects_of_a_beginning_that_breaks_off_are_not_published_and_nothing_goes_on_from_their_versions() -> None:
    driven = Driven(streams=True)
    for _ in range(3):
        driven.opened()
        assert driven.received(there("a", 7)) == []
        driven.failed(REFUSED)
    assert [(asked.how, asked.version) for asked in driven.asks] == [("stream", "")] * 3
    assert driven.ask().how == "list", "a list may come through where a stream does not"


def test_what_comes_right_behind_the_beginning_is_published_after_it() -> None:
    driven = Driven(streams=True)
    driven.opened()
    first, second = driven.received(there("a", 3), Bookmark("9", end=True), there("a", 10))
    assert (contents(first), contents(second)) == ({"a": "a3"}, {"a": "a10"})


def test_a_list_is_read_page_by_page_and_published_when_it_is_whole() -> None:
    driven = Driven()
    driven.ask()
    assert driven.reflector.listed(page(10, obj("a", 1), token="t1"), driven.now) == []
    assert driven.ask().query() == (("limit", "500"), ("continue", "t1"))
    assert state(driven.reflector.listed(page(10, obj("b", 2)), driven.now)) == {"a": "a1", "b": "b2"}
    asked = driven.ask()
    assert (asked.how, asked.version) == ("watch", "10")


def test_an_empty_list_is_an_answer() -> None:
    driven = Driven()
    driven.ask()
    assert state(driven.reflector.listed(page(10), driven.now)) == {}


def test_a_page_that_fails_is_asked_for_again_and_the_others_are_not() -> None:
    driven = Driven()
    driven.ask()
    driven.reflector.listed(page(10, obj("a", 1), token="t1"), driven.now)
    for fault in (REFUSED, status(429, retry_after=2.0), status(500)):
        driven.ask()
        driven.failed(fault)
    assert driven.ask().token == "t1"
    assert state(driven.reflector.listed(page(10, obj("b", 2)), driven.now)) == {"a": "a1", "b": "b2"}


def test_pages_that_grew_old_are_replaced_by_a_list_in_one_piece() -> None:
    driven = Driven()
    driven.ask()
    driven.reflector.listed(page(10, obj("a", 1), token="t1"), driven.now)
    driven.ask()
    assert driven.failed(status(410, "Expired")) == []
    assert driven.ask().query() == (("resourceVersion", "0"),)
    assert state(driven.reflector.listed(page(20, obj("b", 2)), driven.now)) == {"b": "b2"}


def test_a_page_token_that_the_server_does_not_know_is_not_used_for_ever() -> None:
    driven = Driven()
    driven.ask()
    driven.reflector.listed(page(10, obj("a", 1), token="t1"), driven.now)
    driven.ask()
    driven.failed(status(400, "BadRequest"))
    assert driven.ask().token == ""


def test_pages_that_are_too_large_are_asked_for_in_smaller_ones() -> None:
    driven = Driven()
    limits = []
    for _ in range(4):
        limits.append(driven.ask().limit)
        driven.failed(WatchFault("too large", oversize=True))
    assert limits == [500, 100, 20, 4]


def test_a_list_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wigwag.kube.watch.listwatch.MOST_PAGES", 3)
    driven = Driven()
    said: list[Any] = []
    for _ in range(4):
        driven.ask()
        said += driven.reflector.listed(page(10, token="on and on"), driven.now)
    assert [type(each) for each in said] == [Unavailable]
    assert driven.ask().token == ""


def test_a_list_goes_on_from_the_version_of_its_first_page_and_the_next_one_is_paged_again() -> None:
    driven = Driven()
    driven.ask()
    driven.reflector.listed(page(10, obj("a", 1), token="t1"), driven.now)
    driven.ask()
    driven.failed(status(410))
    driven.ask()
    driven.reflector.listed(page(20, token="t2"), driven.now)
    driven.ask()
    driven.reflector.listed(page(25), driven.now)
    assert driven.opened().version == "20"
    driven.received(status(410))
    assert driven.ask().limit == 500


def test_a_beginning_that_ends_before_it_is_whole_is_no_answer() -> None:
    driven = Driven(streams=True)
    driven.opened()
    driven.received(there("a", 3))
    [said] = driven.ended(after=60.0)
    assert isinstance(said, Unavailable)
    assert driven.ask().how == "stream"


# versions that are too old, or too new


@pytest.mark.parametrize("as_event", [True, False], ids=["event", "status"])
def test_a_version_that_is_too_old_leads_to_a_list_which_shows_what_went(as_event: bool) -> None:
    driven = Driven()
    driven.listed(obj("a", 1), obj("b", 2), version=10)
    if as_event:
        assert driven.received(status(410, "Expired"), after=5.0) == []
        assert not driven.reflector.open
    else:
        driven.ended(after=400.0)
        driven.ask()
        assert driven.failed(status(410, "Gone")) == []
    before = driven.now
    asked = driven.ask()
    assert driven.now == before, "at once"
    assert asked.query() == (("limit", "500"), ("resourceVersion", "10"), ("resourceVersionMatch", "NotOlderThan"))
    assert state(driven.reflector.listed(page(30, obj("b", 2)), driven.now)) == {"b": "b2"}


@pytest.mark.parametrize(
    ("fault", "version"), [(status(410), "9"), (status(504, "", "Too large resource version"), "")]
)
def test_a_stream_whose_beginning_has_come_is_a_watch_like_any_other(fault: WatchFault, version: str) -> None:
    driven = Driven(streams=True)
    driven.opened()
    driven.received(there("a", 3), Bookmark("9", end=True))
    assert driven.received(fault, after=5.0) == []
    before = driven.now
    asked = driven.opened()
    assert (asked.how, asked.version, driven.now) == ("stream", version, before)
    driven.received(there("a", 3), Bookmark("12", end=True))
    driven.received(status(422), after=60.0)
    assert driven.ask().how == "stream", "it does offer streams, whatever else it does not like"


def test_a_list_that_shows_nothing_new_is_a_confirmation() -> None:
    driven = Driven()
    driven.listed(obj("a", 1))
    driven.received(status(410))
    driven.ask()
    assert driven.reflector.listed(page(30, obj("a", 1)), driven.now) == [UNCHANGED]


@pytest.mark.parametrize("fault", [status(410), status(504, "Timeout", "Too large resource version: 30, current: 5")])
def test_if_even_the_list_cannot_be_had_from_there_the_newest_is_asked_for(fault: WatchFault) -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    driven.received(status(410))
    driven.ask()
    assert driven.failed(fault) == []
    assert driven.ask().query() == (("limit", "500"),)
    assert state(driven.reflector.listed(page(5, obj("a", 4)), driven.now)) == {"a": "a4"}
    assert driven.opened().version == "5"
    assert state(driven.received(there("a", 6))) == {"a": "a6"}, "a restored server counts from an earlier number"


def test_a_server_that_is_behind_us_is_asked_for_what_it_has() -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    driven.received(status(504, "Timeout", "Too large resource version: 30, current: 5"))
    assert driven.ask().query() == (("limit", "500"),)


def test_a_silent_server_is_compared_with_what_is_known_after_half_an_hour() -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    while driven.asks[-1].how == "watch":
        driven.ended(after=450.0)
        driven.opened()
    assert driven.now == 1800.0
    assert driven.asks[-1].version == "30"


def test_a_server_that_no_longer_sends_bookmarks_is_compared_too() -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    driven.received(Bookmark("31"))
    while driven.asks[-1].how == "watch":
        driven.silent()
        driven.opened()
    assert 1800.0 <= driven.now <= 1960.0
    assert driven.asks[-1].version == "31"


def test_what_went_before_a_restore_may_come_back_after_it() -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    driven.received(gone("a", 31))
    driven.received(status(504, "Timeout", "Too large resource version: 31, current: 5"))
    driven.ask()
    driven.reflector.listed(page(5), driven.now)
    driven.opened()
    assert state(driven.received(there("a", 6))) == {"a": "a6"}


def test_what_is_done_at_once_is_done_so_again_after_a_while_of_peace() -> None:
    driven = Driven()
    driven.listed(obj("a", 1))
    for _ in range(20):
        driven.received(status(410), after=31.0)
        before = driven.now
        assert (driven.ask().how, driven.now) == ("list", before)
        driven.reflector.listed(page(10, obj("a", 1)), driven.now)
        driven.opened()


def test_while_there_are_signs_of_life_no_list_is_compared() -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    for number in range(100):
        driven.received(Bookmark(str(31 + number)), after=60.0)
        driven.ended(after=390.0)
        assert driven.opened().version == str(31 + number)
    assert [asked.how for asked in driven.asks[1:]] == ["watch"] * 101


# comparisons with the server


def test_a_watch_that_is_opened_again_confirms_nothing_until_it_was_compared() -> None:
    """A server that was restored accepts the watch, and sends bookmarks on it."""
    driven = Driven()
    driven.listed(obj("a", 8), version=30)
    driven.failed(REFUSED, after=60.0)
    assert driven.opened().version == "30"
    assert driven.received(Bookmark("30"), after=1.2) == []
    asked = driven.check()
    assert (asked.how, asked.query()) == ("compare", (("limit", "500"),))
    assert driven.compared(obj("a", 8), version=30) == [UNCHANGED]
    assert driven.received(Bookmark("31"), after=60.0) == [UNCHANGED]


@pytest.mark.parametrize("after", [0.5, 400.0], ids=["at once", "before its time"])
def test_a_watch_that_the_server_ended_early_is_compared_and_one_that_timed_out_is_not(after: float) -> None:
    """A server that shuts down in good order ends its watches in good order."""
    driven = Driven()
    driven.listed(obj("a", 8), version=30)
    driven.received(Bookmark("31"))
    assert driven.ended(after=after) == []
    driven.opened()
    assert driven.check().how == "compare"
    assert driven.compared(obj("a", 8), version=31) == [UNCHANGED]
    assert driven.ended(after=driven.asks[-1].seconds) == [UNCHANGED]
    driven.opened()
    driven.now += 1.0
    assert driven.reflector.waited(driven.now) == [UNCHANGED], "at the same server, that it goes on is enough"


def restored(driven: Driven) -> None:
    """The next answer shows that the server went back, and a list what it has."""
    before = driven.now
    asked = driven.ask()
    assert (asked.how, asked.query(), driven.now) == ("list", (("limit", "500"),), before)
    assert state(driven.reflector.listed(page(7, obj("a", 4)), driven.now)) == {"a": "a4"}
    assert driven.opened().version == "7"
    assert state(driven.received(there("a", 9))) == {"a": "a9"}


def test_a_list_whose_version_is_below_ours_shows_a_restore_though_no_object_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driven = Driven()
    driven.listed(obj("a", 4), version=30)
    driven.failed(REFUSED, after=60.0)
    driven.opened()
    driven.check()
    assert driven.compared(obj("a", 4), version=7) == []
    assert "the server's version went from 30 back to 7; listing again" in caplog.text
    assert not driven.reflector.open
    driven.ask()
    assert driven.reflector.listed(page(7, obj("a", 4)), driven.now) == [UNCHANGED]
    assert driven.opened().version == "7"


def test_a_restore_is_found_by_an_object_though_the_server_has_passed_our_version() -> None:
    driven = Driven()
    driven.listed(obj("a", 20), version=30)
    driven.failed(REFUSED, after=60.0)
    driven.opened()
    driven.check()
    assert driven.compared(obj("a", 4), version=50) == []
    restored(driven)


@pytest.mark.parametrize("event", [Bookmark("20"), there("b", 20)], ids=["bookmark", "event"])
def test_a_version_below_ours_is_a_reason_to_compare_at_once_and_confirms_nothing(event: Any) -> None:
    driven = Driven()
    driven.listed(obj("a", 18), version=10)
    driven.received(Bookmark("30"))
    before = driven.now
    assert not [said for said in driven.received(event, after=5.0) if said is UNCHANGED]
    assert (driven.check().how, driven.now) == ("compare", before + 5.0)
    assert driven.compared(obj("a", 4), version=20) == []
    restored(driven)


def test_a_version_below_ours_during_a_comparison_is_a_reason_for_another() -> None:
    driven = Driven()
    driven.listed(obj("a", 18), version=10)
    driven.received(Bookmark("30"))
    assert driven.check().how == "probe"
    driven.received(Bookmark("20"))
    assert driven.compared(obj("a", 18)) == []
    before = driven.now
    assert (driven.check().how, driven.now) == ("compare", before)


def test_all_objects_are_compared_every_few_minutes_though_bookmarks_come() -> None:
    for chance, seconds in ((0.0, 120.0), (0.5, 180.0), (1.0, 240.0)):
        driven = Driven(chance=chance, longest=300.0)
        driven.listed(obj("a", 1), version=10)
        version = 10
        while (asked := driven.reflector.check(driven.now)) is None:
            driven.received(Bookmark(str(version := version + 1)), after=10.0)
        assert (asked.how, driven.now) == ("compare", seconds)


def test_after_some_seconds_of_silence_the_server_is_asked_for_one_object() -> None:
    for chance, seconds in ((0.0, 15.0), (0.5, 17.5), (1.0, 20.0)):
        driven = Driven(chance=chance)
        driven.listed(obj("a", 1), version=10)
        driven.received(Bookmark("11"), after=9.0)
        heard = driven.now
        asked = driven.check()
        assert (asked.how, asked.limit, driven.now) == ("probe", 1, heard + seconds)
        assert driven.compared(obj("a", 1)) == [UNCHANGED]


@pytest.mark.parametrize("first", [True, False], ids=["in its first minute", "after five minutes"])
def test_a_connection_that_dies_without_a_word_is_found_within_half_a_minute(first: bool) -> None:
    driven = Driven(streams=True)
    driven.opened()
    driven.received(there("a", 3), Bookmark("9", end=True), after=5.0)
    for number in range(0 if first else 5):
        driven.received(Bookmark(str(10 + number)), after=60.0)
    began = driven.now
    driven.check()
    driven.now += WatchTiming().answer
    assert driven.reflector.check_failed(WatchFault("does not answer"), driven.now) == [Unavailable("does not answer")]
    assert not driven.reflector.open
    assert driven.now - began < 30.0
    assert driven.ask().how == "watch"


def test_a_connection_that_something_holds_open_is_given_up_when_bookmarks_stay_away() -> None:
    """Also in its first minute: the bookmark that ends the initial objects counts."""
    driven = Driven(streams=True)
    driven.opened()
    driven.received(there("a", 3), Bookmark("9", end=True), after=5.0)
    began = driven.now
    while driven.reflector.open:
        driven.now = driven.reflector.wake
        driven.reflector.waited(driven.now)
        if driven.reflector.check(driven.now) is not None:
            driven.compared(obj("a", 3))
    assert driven.now == began + 100.0


def test_what_a_dead_watch_has_missed_is_found_by_a_comparison_when_it_has_had_time_to_come() -> None:
    driven = Driven()
    driven.listed(obj("a", 8), obj("b", 9), version=30)
    driven.check()
    assert driven.compared(obj("a", 31)) == [], "it may be on its way"
    asked = driven.now
    driven.now = driven.reflector.wake
    assert driven.now == asked + 5.0
    assert driven.reflector.waited(driven.now) == []
    assert driven.ask().how == "list"


def test_an_event_that_a_comparison_was_faster_than_is_no_difference() -> None:
    driven = Driven()
    driven.listed(obj("a", 8), obj("b", 9), version=30)
    driven.check()
    assert driven.compared(obj("a", 31), version=32) == []
    assert state(driven.received(there("a", 31), gone("b", 32), after=1.0)) == {"a": "a31"}
    assert driven.check().how == "probe"
    assert driven.compared(obj("a", 31)) == [UNCHANGED]


def test_a_set_that_changes_all_the_time_is_confirmed_when_what_was_on_its_way_has_come() -> None:
    driven = Driven()
    driven.listed(obj("a", 8), version=30)
    driven.failed(REFUSED, after=60.0)
    driven.opened()
    driven.check()
    assert driven.compared(obj("a", 31), version=31) == []
    assert state(driven.received(there("a", 31), there("b", 32), after=1.0)) == {"a": "a31", "b": "b32"}
    assert driven.received(Bookmark("33")) == []
    driven.now = driven.reflector.wake
    assert driven.reflector.waited(driven.now) == [UNCHANGED]
    assert driven.received(Bookmark("34")) == [UNCHANGED]


def test_what_changes_while_a_comparison_is_under_way_is_no_difference() -> None:
    driven = Driven()
    driven.listed(obj("a", 8), obj("b", 9), version=30)
    driven.check()
    driven.received(there("a", 31), gone("b", 32), there("c", 33))
    assert driven.compared(obj("a", 8), obj("b", 9), version=30) == [UNCHANGED]


def test_another_object_of_the_same_name_and_version_is_a_difference() -> None:
    driven = Driven()
    driven.listed(replace(obj("a", 8), uid="1"), version=30)
    driven.check()
    driven.compared(replace(obj("a", 8), uid="2"))
    assert driven.ask().how == "list"


def test_an_object_that_cannot_be_decoded_is_no_difference() -> None:
    driven = Driven()
    driven.listed(ObjectRecord(("ns", "bad"), "8", None, "bad"), version=30)
    driven.received(ObjectEvent(ObjectRecord(("ns", "worse"), "31", None, "bad")))
    driven.check()
    assert driven.compared(obj("bad", 8), obj("worse", 31)) == [UNCHANGED]


def test_a_comparison_in_pages_is_judged_as_a_whole() -> None:
    driven = Driven()
    driven.listed(obj("a", 8), obj("b", 9), version=30)
    driven.failed(REFUSED, after=60.0)
    driven.opened()
    driven.check()
    assert driven.reflector.checked(ListPage("30", "more", (ObjectRecord(("ns", "a"), "8", None),)), driven.now) == []
    asked = driven.check()
    assert (asked.how, asked.query()) == ("compare", (("limit", "500"), ("continue", "more")))
    assert driven.compared(obj("b", 9), version=30) == [UNCHANGED]


def test_a_server_whose_lists_are_not_what_its_objects_are_is_told_and_not_listed_again_and_again() -> None:
    """That is how an API server is that goes on while its etcd is restored."""
    driven = Driven()
    driven.listed(obj("a", 20), version=30)
    assert driven.check().how == "probe"
    driven.compared(obj("a", 4))
    assert driven.ask().how == "list"
    assert driven.reflector.listed(page(31, obj("a", 20)), driven.now) == [], "it does not confirm what is in doubt"
    driven.opened()
    for _ in range(10):
        assert driven.check().how == "probe"
        [said] = driven.compared(obj("a", 4))
        assert "the API server contradicts itself: ns/a has version 4 on the server" in said.reason
        assert "restart the API server" in said.reason
        assert driven.received(Bookmark("31"), after=1.0) == []
    assert driven.reflector.open
    driven.check()
    assert driven.compared(obj("a", 20)) == [UNCHANGED]


def test_a_server_that_contradicted_itself_is_listed_when_it_was_restarted() -> None:
    driven = Driven(verify=0.0)
    driven.listed(obj("a", 20), version=30)
    driven.check()
    driven.compared(obj("a", 4))
    driven.ask()
    driven.reflector.listed(page(31, obj("a", 20)), driven.now)
    driven.opened()
    driven.check()
    [said] = driven.compared(obj("a", 4))
    assert "contradicts itself" in said.reason
    driven.failed(REFUSED, after=5.0)
    driven.opened()
    driven.check()
    assert driven.compared(obj("a", 4), version=31) == []
    assert driven.ask().how == "list"


@pytest.mark.parametrize("code", [401, 404, 500, 503])
def test_a_server_that_cannot_be_compared_with_is_told_and_followed(code: int) -> None:
    """One that has lost its etcd still sends bookmarks."""
    driven = Driven()
    driven.listed(obj("a", 8), version=30)
    driven.check()
    [said] = driven.reflector.check_failed(status(code), driven.now)
    assert isinstance(said, Unavailable)
    assert driven.reflector.open
    assert driven.received(Bookmark("31"), after=1.0) == []
    assert state(driven.received(there("a", 32))) == {"a": "a32"}
    assert driven.check().how == "compare"
    assert driven.compared(obj("a", 32), version=33) == [UNCHANGED]


def test_a_busy_server_is_asked_later_and_that_is_no_trouble() -> None:
    driven = Driven()
    driven.listed(obj("a", 8), version=30)
    driven.check()
    before = driven.now
    assert driven.reflector.check_failed(status(429, retry_after=50.0), driven.now) == []
    assert driven.received(Bookmark("31"), after=1.0) == [UNCHANGED]
    driven.check()
    assert driven.now == before + 50.0


def test_who_may_watch_and_not_list_is_followed_all_the_same_and_lists_where_it_would_compare() -> None:
    driven = Driven(streams=True)
    driven.opened()
    driven.received(there("a", 3), Bookmark("9", end=True))
    driven.check()
    assert driven.reflector.check_failed(status(403), driven.now) == []
    assert driven.received(Bookmark("31"), after=1.0) == [UNCHANGED]
    driven.failed(REFUSED, after=60.0)
    asked = driven.ask()
    assert (asked.how, asked.version) == ("stream", "")


# streams


def test_a_watch_that_ends_is_followed_by_another_from_the_last_version_at_once() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.received(there("b", 12))
    driven.received(Bookmark("15"))
    assert driven.ended(after=450.0) == [UNCHANGED]
    before = driven.now
    asked = driven.ask()
    assert (asked.how, asked.version, driven.now) == ("watch", "15", before)


def test_a_bookmark_confirms_and_a_burst_is_one_change() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    assert driven.received(Bookmark("15")) == [UNCHANGED]
    assert state(driven.received(there("a", 16), there("b", 17), gone("a", 18), Bookmark("18"))) == {"b": "b17"}


def test_an_event_that_changes_nothing_that_is_kept_is_a_confirmation() -> None:
    driven = Driven()
    driven.listed(obj("a", 1, "same"), version=10)
    assert driven.received(ObjectEvent(obj("a", 11, "same"))) == [UNCHANGED]
    driven.failed(REFUSED, after=60.0)
    assert driven.ask().version == "11"


def test_events_that_come_twice_late_or_in_another_order_do_no_harm() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), obj("b", 2), version=10)
    assert state(driven.received(there("a", 14), there("a", 12), gone("b", 13), there("b", 11))) == {"a": "a14"}
    assert driven.received(there("a", 14), there("b", 2), gone("a", 9)) == [], "and confirm nothing"
    assert state(driven.received(there("b", 15), gone("b", 13))) == {"a": "a14", "b": "b15"}
    driven.failed(REFUSED, after=60.0)
    assert driven.ask().version == "15"


def test_what_happened_before_the_list_does_not_come_back() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    assert driven.received(there("deleted long ago", 5)) == []


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    driven = Driven()
    driven.ask()
    driven.reflector.listed(
        ListPage("x", "", (ObjectRecord(("ns", "a"), "q", {"metadata": {}, "data": {"content": "1"}}),)), 0.0
    )
    driven.opened()
    changed = ObjectEvent(ObjectRecord(("ns", "a"), "b", {"metadata": {}, "data": {"content": "2"}}))
    assert state(driven.received(changed)) == {"a": "2"}
    driven.failed(REFUSED, after=60.0)
    assert driven.ask().version == "b"


def test_an_object_that_cannot_be_read_stays_as_it_was_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    driven = Driven()
    driven.listed(obj("a", 1), obj("b", 2), version=10)
    bad: ObjectRecord[Any] = ObjectRecord(("ns", "a"), "11", None, "Expected `object`, got `int` - at `$.spec`")
    assert state(driven.received(ObjectEvent(bad), there("b", 12))) == {"a": "a1", "b": "b12"}
    assert (
        "ns/a: cannot be decoded, its last good version stays: Expected `object`, got `int` - at `$.spec`"
        in caplog.text
    )
    driven.received(status(410))
    driven.ask()
    worse: ObjectRecord[Any] = ObjectRecord(("ns", "c"), "13", None, "bad")
    assert state(driven.reflector.listed(page(30, bad, worse), driven.now)) == {"a": "a1"}


def test_a_dead_connection_is_found_after_the_time_of_the_watch() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    began = driven.now
    assert driven.silent() == [UNCHANGED], "after a quiet second; and a first hiccup is not worth a word"
    assert driven.now == began + 450 + 15
    asked = driven.ask()
    assert (asked.how, asked.version) == ("watch", "10")


def test_a_dead_connection_to_a_server_that_sends_bookmarks_is_found_sooner() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.received(Bookmark("11"), after=60.0)
    began = driven.now
    driven.silent()
    assert driven.now == began + 100.0
    asked = driven.ask()
    assert (asked.how, asked.version) == ("watch", "11")


def test_a_stream_that_tells_only_what_is_known_and_ends_at_once_has_failed() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.received(there("a", 1), Bookmark("10"))
    driven.ended(after=0.1)
    driven.opened()
    driven.received(there("a", 1))
    [said] = driven.ended(after=0.1)
    assert isinstance(said, Unavailable)


# trouble


def test_while_no_connection_can_be_made_the_pauses_are_those_of_its_own_back_off() -> None:
    driven = Driven(chance=1.0, backoff=Backoff(first=1.0, most=30.0), unreachable=Backoff(first=0.25, most=1.0))
    away, pauses = WatchFault("no connection", unreachable=True), []
    for _ in range(5):
        asked = driven.ask()
        driven.failed(away)
        pauses.append(driven.reflector.next(driven.now).when - driven.now)
        assert asked.how == "list"
    assert pauses == [0.25, 0.5, 1.0, 1.0, 1.0]
    driven.ask()
    driven.failed(status(500))
    assert driven.reflector.next(driven.now).when - driven.now == 1.0, "a refusal is the first one of its kind"


def test_who_was_connected_since_begins_with_a_short_pause_again() -> None:
    driven = Driven(chance=1.0, unreachable=Backoff(first=0.25, most=1.0))
    away = WatchFault("no connection", unreachable=True)
    for _ in range(5):
        driven.ask()
        driven.failed(away)
    driven.ask()
    driven.reflector.listed(page(1), driven.now)
    driven.ask()
    driven.failed(away)
    assert driven.reflector.next(driven.now).when - driven.now == 0.25


def test_what_came_before_an_error_is_published_before_it_is_told() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    value, said = driven.received(there("a", 11), status(500), there("a", 12))
    assert contents(value) == {"a": "a11"}
    assert isinstance(said, Unavailable)


def test_a_connection_that_breaks_once_is_no_trouble_and_one_that_stays_away_is() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    assert driven.failed(REFUSED, after=60.0) == []
    driven.ask()
    assert driven.failed(WatchFault("no connection: refused")) == [Unavailable("no connection: refused")]
    driven.opened()
    opened = driven.now
    assert driven.check().how == "compare"
    assert driven.now == opened + 1.5
    assert driven.compared(obj("a", 1), version=10) == [UNCHANGED]


def test_before_anything_is_known_every_failure_is_told() -> None:
    driven = Driven(streams=True)
    driven.opened()
    assert driven.failed(REFUSED) == [Unavailable("no connection")]


@pytest.mark.parametrize("code", [401, 403, 404, 408, 429, 503])
def test_a_refused_watch_is_asked_for_again_and_is_no_reason_for_a_list(code: int) -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.ended(after=400.0)
    for _ in range(10):
        asked = driven.ask()
        assert (asked.how, asked.version) == ("watch", "10")
        [said] = driven.failed(status(code))
        assert isinstance(said, Unavailable)


def test_a_server_that_fails_again_and_again_from_a_version_is_listed() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.failed(status(500), after=60.0)
    for _ in range(2):
        assert driven.ask().how == "watch"
        driven.failed(status(500))
    assert driven.ask().how == "list"


def test_a_version_that_the_server_cannot_read_is_not_used_for_ever() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.ended(after=400.0)
    driven.ask()
    driven.failed(status(400, "BadRequest", "Invalid value"))
    assert driven.ask().how == "list"


def test_a_server_that_asks_for_time_gets_it_within_reason() -> None:
    driven = Driven()
    driven.ask()
    driven.failed(status(429, retry_after=60.0))
    assert driven.ask().when == pytest.approx(60.6)
    driven.failed(status(503, retry_after=9e9))
    assert driven.ask().when == pytest.approx(60.6 + 300 + 1.2)


def test_pauses_double_up_to_half_a_minute_and_lists_and_watches_have_them_in_common() -> None:
    driven = Driven(chance=1.0)
    pauses = []
    for _ in range(5):
        pauses.append(driven.ask().when)
        driven.failed(REFUSED)
    driven.ask()
    driven.reflector.listed(page(10), driven.now)
    for _ in range(4):
        pauses.append(driven.ask().when)
        driven.failed(REFUSED)
    pauses.append(driven.ask().when)
    gaps = [round(later - sooner, 3) for sooner, later in pairwise(pauses)]
    assert gaps == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]


@pytest.mark.parametrize(("sign", "pause"), [("event", 0.8), ("comparison", 0.8), ("", 30.0)])
def test_a_watch_that_delivers_an_event_or_proves_to_hold_ends_the_row_of_failures(sign: str, pause: float) -> None:
    driven = Driven(chance=1.0)
    driven.listed(obj("a", 1), version=10)
    for _ in range(8):
        driven.failed(REFUSED)
        driven.ask()
    driven.reflector.opened(driven.now)
    if sign == "event":
        driven.received(there("a", 12))
    elif sign == "comparison":
        driven.check()
        driven.compared(obj("a", 1), version=10)
    driven.failed(REFUSED, after=0.1)
    failed = driven.now
    assert driven.ask().when == pytest.approx(failed + pause)


def test_a_watch_that_delivers_and_breaks_off_again_and_again_is_limited_and_reported() -> None:
    driven, reported = Driven(), []
    driven.listed(obj("a", 1), version=10)
    driven.ended(after=400.0)
    began = driven.now
    for number in range(30):
        driven.opened()
        driven.received(there("a", 20 + number))
        reported.append(driven.failed(REFUSED, after=0.1))
        driven.ask()
    assert driven.now - began > (30 - 2 * 4) * 15.0
    assert reported[:4] == [[]] * 4
    assert all(reported[4:])


# storms that must not be


def requests(driven: Driven, answer: Any, seconds: float = HOUR) -> list[ReflectorRequest]:
    """Return what is asked within a time, if every request gets the same answer."""
    end, begun = driven.now + seconds, len(driven.asks)
    while driven.ask().when < end:
        answer(driven)
        assert len(driven.asks) < 20_000
    return driven.asks[begun:]


def refuse(driven: Driven) -> None:
    driven.failed(REFUSED)


def expire(driven: Driven) -> None:
    """Lists are answered, and are too old for every watch."""
    if driven.asks[-1].how == "list":
        driven.reflector.listed(page(10, obj("a", 1)), driven.now)
    else:
        driven.reflector.opened(driven.now)
        driven.received(there("a", 11), Bookmark("12"), status(410))


def end_at_once(driven: Driven) -> None:
    driven.reflector.opened(driven.now)
    driven.ended(after=0.01)


def end_soon(driven: Driven) -> None:
    driven.reflector.opened(driven.now)
    driven.received(Bookmark(str(100 + len(driven.asks))))
    driven.ended(after=0.01)


def fail(driven: Driven) -> None:
    driven.failed(status(500))


@pytest.mark.parametrize(
    ("answer", "most", "lists"),
    [(refuse, 260, 0), (expire, 520, 260), (end_at_once, 260, 0), (end_soon, 1500, 0), (fail, 260, 250)],
)
def test_a_bad_server_is_not_asked_more_often_than_it_should(answer: Any, most: int, lists: int) -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.ended(after=400.0)
    found = requests(driven, answer)
    assert len(found) <= most
    assert sum(asked.how == "list" for asked in found) <= lists


def test_watches_last_for_different_times_so_that_a_fleet_spreads() -> None:
    lasting = []
    for chance in (0.0, 0.999):
        driven = Driven(chance=chance)
        driven.listed()
        lasting.append(driven.asks[-1].seconds)
    assert lasting == [300, 599]
