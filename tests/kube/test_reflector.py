"""The reflector against a model of the API server: random schedules of faults, and then rule by rule."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.kube.model import SPEC, State, World, contents
from wigwag.kube.asks import Ask
from wigwag.kube.decode import Change, Mark, Page, Record
from wigwag.kube.errors import Status
from wigwag.kube.faults import Fault, refusal
from wigwag.kube.pace import Pace
from wigwag.kube.reflector import Reflector
from wigwag.kube.requests import Abilities
from wigwag.pipeline.spec import UNCHANGED, Trouble

SCHEDULES, BATCHES = 3000, 12
HOUR = 3600.0
REFUSED = Fault("no connection")


def schedule(seed: int) -> World:
    """Run one world through faults, and then through peace."""
    world = World(seed)
    for _ in range(world.random.randrange(5, 60)):
        world.turn()
    assert world.whole() <= world.causes, "the whole list was asked for without a cause"
    world.calm = True
    for _ in range(12):
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


def obj(name: str, version: int, content: str = "") -> Record[Any]:
    value = {"metadata": {"name": name}, "data": {"content": content or f"{name}{version}"}}
    return Record(("ns", name), str(version), value)


def there(name: str, version: int) -> Change[Any]:
    return Change(obj(name, version))


def gone(name: str, version: int) -> Change[Any]:
    return Change(obj(name, version), gone=True)


def page(version: int, *records: Record[Any], token: str = "") -> Page[Any]:
    return Page(str(version), token, records)


def status(code: int, reason: str = "", message: str = "", retry_after: float = 0.0) -> Fault:
    return refusal(Status(code, reason, message), SPEC, "watch", retry_after)


class Driven:
    """A reflector whose time and answers the test chooses. Chance is a coin that always falls on the middle."""

    def __init__(self, streams: bool = False, chance: float = 0.5, **pace: Any) -> None:
        self.abilities = Abilities(streams)
        self.reflector = Reflector[dict[str, Any]](self.abilities, Pace(**pace), lambda: chance)
        self.now = 0.0
        self.asks: list[Ask] = []

    def ask(self) -> Ask:
        """Let time pass until the next request."""
        asked = self.reflector.next(self.now)
        self.now = max(self.now, asked.when)
        self.asks.append(asked)
        return asked

    def failed(self, fault: Fault, after: float = 0.0) -> list[Any]:
        self.now += after
        return self.reflector.failed(fault, self.now)

    def heard(self, *events: Any, after: float = 0.0) -> list[Any]:
        self.now += after
        return self.reflector.heard(events, self.now)

    def ended(self, after: float) -> list[Any]:
        self.now += after
        return self.reflector.ended(self.now)

    def silent(self) -> list[Any]:
        """Let nothing come until the reflector gives up; return what it said."""
        found = []
        while self.reflector.open:
            self.now = self.reflector.wake
            found += self.reflector.waited(self.now)
        return found

    def listed(self, *records: Record[Any], version: int = 10) -> None:
        """Bring it to where a list has come, and a watch is open."""
        assert self.ask().how == "list"
        self.reflector.listed(page(version, *records), self.now)
        self.opened()

    def opened(self) -> Ask:
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
    assert driven.heard(there("a", 3), there("b", 5)) == []
    assert state(driven.heard(Mark("9", end=True))) == {"a": "a3", "b": "b5"}
    assert driven.reflector.open
    assert state(driven.heard(there("a", 11))) == {"a": "a11", "b": "b5"}


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_that_does_not_offer_that_is_listed_and_not_asked_for_it_again(code: int) -> None:
    driven = Driven(streams=True)
    driven.ask()
    assert driven.failed(status(code)) == []
    asked = driven.ask()
    assert (driven.now, asked.query()) == (0.0, (("limit", "500"), ("resourceVersion", "0")))
    other = Reflector[Any](driven.abilities, Pace(), lambda: 0.5)
    assert other.next(0.0).how == "list"


def test_a_server_that_ignores_that_wish_is_listed_when_it_is_silent_for_too_long() -> None:
    driven = Driven(streams=True)
    driven.opened()
    driven.heard(there("a", 3), after=5.0)
    assert driven.silent() == []
    assert driven.now == 15.0
    assert driven.ask().how == "list"
    assert not driven.abilities.streams


def test_objects_of_a_beginning_that_breaks_off_are_not_published_and_nothing_goes_on_from_their_versions() -> None:
    driven = Driven(streams=True)
    for _ in range(3):
        driven.opened()
        assert driven.heard(there("a", 7)) == []
        driven.failed(REFUSED)
    assert [(asked.how, asked.version) for asked in driven.asks] == [("stream", "")] * 3
    assert driven.ask().how == "list", "a list may come through where a stream does not"


def test_what_comes_right_behind_the_beginning_is_published_after_it() -> None:
    driven = Driven(streams=True)
    driven.opened()
    first, second = driven.heard(there("a", 3), Mark("9", end=True), there("a", 10))
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
        driven.failed(Fault("too large", oversize=True))
    assert limits == [500, 100, 20, 4]


def test_a_list_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wigwag.kube.asks.MOST_PAGES", 3)
    driven = Driven()
    said: list[Any] = []
    for _ in range(4):
        driven.ask()
        said += driven.reflector.listed(page(10, token="on and on"), driven.now)
    assert [type(each) for each in said] == [Trouble]
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
    driven.heard(status(410))
    assert driven.ask().limit == 500


def test_a_beginning_that_ends_before_it_is_whole_is_no_answer() -> None:
    driven = Driven(streams=True)
    driven.opened()
    driven.heard(there("a", 3))
    [said] = driven.ended(after=60.0)
    assert isinstance(said, Trouble)
    assert driven.ask().how == "stream"


# versions that are too old, or too new


@pytest.mark.parametrize("as_event", [True, False], ids=["event", "status"])
def test_a_version_that_is_too_old_leads_to_a_list_which_shows_what_went(as_event: bool) -> None:
    driven = Driven()
    driven.listed(obj("a", 1), obj("b", 2), version=10)
    if as_event:
        assert driven.heard(status(410, "Expired"), after=5.0) == []
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
def test_a_stream_whose_beginning_has_come_is_a_watch_like_any_other(fault: Fault, version: str) -> None:
    driven = Driven(streams=True)
    driven.opened()
    driven.heard(there("a", 3), Mark("9", end=True))
    assert driven.heard(fault, after=5.0) == []
    before = driven.now
    asked = driven.opened()
    assert (asked.how, asked.version, driven.now) == ("stream", version, before)
    driven.heard(there("a", 3), Mark("12", end=True))
    driven.heard(status(422), after=60.0)
    assert driven.ask().how == "stream", "it does offer streams, whatever else it does not like"


def test_a_list_that_shows_nothing_new_is_a_confirmation() -> None:
    driven = Driven()
    driven.listed(obj("a", 1))
    driven.heard(status(410))
    driven.ask()
    assert driven.reflector.listed(page(30, obj("a", 1)), driven.now) == [UNCHANGED]


@pytest.mark.parametrize("fault", [status(410), status(504, "Timeout", "Too large resource version: 30, current: 5")])
def test_if_even_the_list_cannot_be_had_from_there_the_newest_is_asked_for(fault: Fault) -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    driven.heard(status(410))
    driven.ask()
    assert driven.failed(fault) == []
    assert driven.ask().query() == (("limit", "500"),)
    assert state(driven.reflector.listed(page(5, obj("a", 4)), driven.now)) == {"a": "a4"}
    assert driven.opened().version == "5"
    assert state(driven.heard(there("a", 6))) == {"a": "a6"}, "a restored server counts from an earlier number"


def test_a_server_that_is_behind_us_is_asked_for_what_it_has() -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    driven.heard(status(504, "Timeout", "Too large resource version: 30, current: 5"))
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
    driven.heard(Mark("31"))
    while driven.asks[-1].how == "watch":
        driven.silent()
        driven.opened()
    assert 1800.0 <= driven.now <= 1960.0
    assert driven.asks[-1].version == "31"


def test_what_went_before_a_restore_may_come_back_after_it() -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    driven.heard(gone("a", 31))
    driven.heard(status(504, "Timeout", "Too large resource version: 31, current: 5"))
    driven.ask()
    driven.reflector.listed(page(5), driven.now)
    driven.opened()
    assert state(driven.heard(there("a", 6))) == {"a": "a6"}


def test_what_is_done_at_once_is_done_so_again_after_a_while_of_peace() -> None:
    driven = Driven()
    driven.listed(obj("a", 1))
    for _ in range(20):
        driven.heard(status(410), after=31.0)
        before = driven.now
        assert (driven.ask().how, driven.now) == ("list", before)
        driven.reflector.listed(page(10, obj("a", 1)), driven.now)
        driven.opened()


def test_while_there_are_signs_of_life_no_list_is_compared() -> None:
    driven = Driven()
    driven.listed(obj("a", 30), version=30)
    for number in range(100):
        driven.heard(Mark(str(31 + number)), after=60.0)
        driven.ended(after=390.0)
        assert driven.opened().version == str(31 + number)
    assert [asked.how for asked in driven.asks[1:]] == ["watch"] * 101


# streams


def test_a_watch_that_ends_is_followed_by_another_from_the_last_version_at_once() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.heard(there("b", 12))
    driven.heard(Mark("15"))
    assert driven.ended(after=400.0) == [UNCHANGED]
    before = driven.now
    asked = driven.ask()
    assert (asked.how, asked.version, driven.now) == ("watch", "15", before)


def test_a_bookmark_confirms_and_a_burst_is_one_change() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    assert driven.heard(Mark("15")) == [UNCHANGED]
    assert state(driven.heard(there("a", 16), there("b", 17), gone("a", 18), Mark("18"))) == {"b": "b17"}


def test_an_event_that_changes_nothing_that_is_kept_is_a_confirmation() -> None:
    driven = Driven()
    driven.listed(obj("a", 1, "same"), version=10)
    assert driven.heard(Change(obj("a", 11, "same"))) == [UNCHANGED]
    driven.failed(REFUSED, after=60.0)
    assert driven.ask().version == "11"


def test_events_that_come_twice_late_or_in_another_order_do_no_harm() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), obj("b", 2), version=10)
    assert state(driven.heard(there("a", 14), there("a", 12), gone("b", 13), there("b", 11))) == {"a": "a14"}
    assert driven.heard(there("a", 14), there("b", 2), gone("a", 9)) == [UNCHANGED]
    assert state(driven.heard(there("b", 15), gone("b", 13))) == {"a": "a14", "b": "b15"}
    driven.failed(REFUSED, after=60.0)
    assert driven.ask().version == "15"


def test_what_happened_before_the_list_does_not_come_back() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    assert driven.heard(there("deleted long ago", 5)) == [UNCHANGED]


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    driven = Driven()
    driven.ask()
    driven.reflector.listed(Page("x", "", (Record(("ns", "a"), "q", {"metadata": {}, "data": {"content": "1"}}),)), 0.0)
    driven.opened()
    changed = Change(Record(("ns", "a"), "b", {"metadata": {}, "data": {"content": "2"}}))
    assert state(driven.heard(changed)) == {"a": "2"}
    driven.failed(REFUSED, after=60.0)
    assert driven.ask().version == "b"


def test_an_object_that_cannot_be_read_stays_as_it_was_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    driven = Driven()
    driven.listed(obj("a", 1), obj("b", 2), version=10)
    bad: Record[Any] = Record(("ns", "a"), "11", None, "Expected `object`, got `int` - at `$.spec`")
    assert state(driven.heard(Change(bad), there("b", 12))) == {"a": "a1", "b": "b12"}
    assert "ns/a: cannot be read, and stays as it was: Expected `object`, got `int` - at `$.spec`" in caplog.text
    driven.heard(status(410))
    driven.ask()
    worse: Record[Any] = Record(("ns", "c"), "13", None, "bad")
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
    driven.heard(Mark("11"), after=60.0)
    began = driven.now
    driven.silent()
    assert driven.now == began + 150.0
    asked = driven.ask()
    assert (asked.how, asked.version) == ("watch", "11")


def test_a_stream_that_tells_only_what_is_known_and_ends_at_once_has_failed() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.heard(there("a", 1), Mark("10"))
    driven.ended(after=0.1)
    driven.opened()
    driven.heard(there("a", 1))
    [said] = driven.ended(after=0.1)
    assert isinstance(said, Trouble)


# trouble


def test_what_came_before_an_error_is_published_before_it_is_told() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    value, said = driven.heard(there("a", 11), status(500), there("a", 12))
    assert contents(value) == {"a": "a11"}
    assert isinstance(said, Trouble)


def test_a_connection_that_breaks_once_is_no_trouble_and_one_that_stays_away_is() -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    assert driven.failed(REFUSED, after=60.0) == []
    driven.ask()
    assert driven.failed(Fault("no connection: refused")) == [Trouble("no connection: refused")]
    driven.opened()
    assert driven.reflector.waited(driven.now) == []
    driven.now = driven.reflector.wake
    assert driven.reflector.waited(driven.now) == [UNCHANGED]
    assert driven.now == driven.reflector._stream.opened + 1.0  # type: ignore[union-attr]


def test_before_anything_is_known_every_failure_is_told() -> None:
    driven = Driven(streams=True)
    driven.opened()
    assert driven.failed(REFUSED) == [Trouble("no connection")]


@pytest.mark.parametrize("code", [401, 403, 404, 408, 429, 503])
def test_a_refused_watch_is_asked_for_again_and_is_no_reason_for_a_list(code: int) -> None:
    driven = Driven()
    driven.listed(obj("a", 1), version=10)
    driven.ended(after=400.0)
    for _ in range(10):
        asked = driven.ask()
        assert (asked.how, asked.version) == ("watch", "10")
        [said] = driven.failed(status(code))
        assert isinstance(said, Trouble)


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


@pytest.mark.parametrize(
    ("events", "seconds", "pause"), [((there("a", 12),), 0.1, 0.8), ((), 2.0, 0.8), ((), 0.1, 30.0)]
)
def test_a_watch_that_delivers_an_event_or_stays_open_ends_the_row_of_failures(
    events: tuple[Any, ...], seconds: float, pause: float
) -> None:
    driven = Driven(chance=1.0)
    driven.listed(obj("a", 1), version=10)
    for _ in range(8):
        driven.failed(REFUSED)
        driven.ask()
    driven.reflector.opened(driven.now)
    if events:
        driven.heard(*events)
    driven.reflector.waited(driven.now + seconds)
    driven.failed(REFUSED, after=seconds)
    failed = driven.now
    assert driven.ask().when == pytest.approx(failed + pause)


def test_a_watch_that_delivers_and_breaks_off_again_and_again_is_limited_and_reported() -> None:
    driven, reported = Driven(), []
    driven.listed(obj("a", 1), version=10)
    driven.ended(after=400.0)
    began = driven.now
    for number in range(30):
        driven.opened()
        driven.heard(there("a", 20 + number))
        reported.append(driven.failed(REFUSED, after=0.1))
        driven.ask()
    assert driven.now - began > (30 - 2 * 4) * 15.0
    assert reported[:4] == [[]] * 4
    assert all(reported[4:])


# storms that must not be


def requests(driven: Driven, answer: Any, seconds: float = HOUR) -> list[Ask]:
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
        driven.heard(there("a", 11), Mark("12"), status(410))


def end_at_once(driven: Driven) -> None:
    driven.reflector.opened(driven.now)
    driven.ended(after=0.01)


def end_soon(driven: Driven) -> None:
    driven.reflector.opened(driven.now)
    driven.heard(Mark(str(100 + len(driven.asks))))
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
