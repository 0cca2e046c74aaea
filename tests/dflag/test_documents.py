"""One key with many flags in it: what a document means, and what becomes of one that cannot be read."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dflag.kubelet import Heard, Volume, becomes, until
from wigwag import dflag
from wigwag.dflag import Directory, Policy
from wigwag.dflag.updating.documents import DEPTH, LARGEST, MOST, read_document
from wigwag.errors import DocumentError, StartError, UsageError

DOCUMENTS = ("*.yaml", "*.json", "*.toml", "*.env")


@dataclass(frozen=True)
class Limits:
    burst: int
    tags: list[str]


class Example:
    """A flag of each sort."""

    def __init__(self) -> None:
        flags = self.flags = dflag.FlagSet("test")
        self.rate = flags.int("rate", 10, validators=[dflag.in_range(0, 100)])
        self.on = flags.bool("feature.on", False)
        self.timeout = flags.duration("db.timeout", "1s")
        self.version = flags.str("version", "")
        self.ports = flags.list("db.pool.ports", [1], item=int)
        self.names = flags.set("names", frozenset({"x"}))
        self.weights = flags.mapping("weights", {}, item=float)
        self.policy = flags.json("policy", {"a": 1})
        self.limits = flags.json("limits", Limits(0, []))
        self.blob = flags.bytes("blob", b"")

    def values(self) -> dict[str, Any]:
        return {flag.name: flag.get() for flag in self.flags}


SET = {
    "rate": 31,
    "feature.on": True,
    "db.timeout": timedelta(minutes=1, seconds=30),
    "version": "1.10",
    "db.pool.ports": [80, 443],
    "names": frozenset({"a", "b,c"}),
    "weights": {"x": 0.5, "y": 2.0},
    "policy": {"rules": [{"allow": True, "n": 1.5, "none": None}]},
    "limits": Limits(3, ["a", "2"]),
    "blob": b"\x00\x01",
}
YAML = """\
rate: 0x1F
feature: {on: true}
db:
  timeout: 1m30s
  pool:
    ports: [80, 0x1BB]
version: 1.10
names: [a, "b,c"]
weights: {x: 0.5, y: 2}
policy:
  rules: [{allow: true, n: 1.5, none: null}]
limits: {burst: 3, tags: [a, "2"]}
blob: AAE=
"""
JSON = """\
{"rate": 31, "feature": {"on": true}, "db": {"timeout": "1m30s", "pool": {"ports": [80, 443]}}, "version": 1.10,
 "names": ["a", "b,c"], "weights": {"x": 0.5, "y": 2}, "policy": {"rules": [{"allow": true, "n": 1.5, "none": null}]},
 "limits": {"burst": 3, "tags": ["a", "2"]}, "blob": "AAE="}
"""
TOML = """\
rate = 0x1F
feature.on = true
version = 1.10
names = ["a", "b,c"]
policy = '{"rules": [{"allow": true, "n": 1.5, "none": null}]}'
blob = "AAE="
weights = {x = 0.5, y = 2}
limits = {burst = 3, tags = ["a", "2"]}
[db]
timeout = "1m30s"
pool.ports = [80, 443]
"""
ENV = """\
# as in a file for a shell
RATE=0x1F
export FEATURE_ON = true
DB_TIMEOUT=1m30s
db.pool.ports="80, 443"
VERSION='1.10'

POLICY={"rules": [{"allow": true, "n": 1.5, "none": null}]}
LIMITS="{\\"burst\\": 3, \\"tags\\": [\\"a\\", \\"2\\"]}"
WEIGHTS=x=0.5,y=2
BLOB=AAE=
"""


@pytest.mark.parametrize(
    ("key", "text"), [("a.yaml", YAML), ("a.json", JSON), ("a.toml", TOML), ("app", YAML), ("a.env", ENV)]
)
def test_every_format_sets_flags_of_every_sort(tmp_path: Path, key: str, text: str) -> None:
    example = Example()
    volume = Volume(tmp_path / "conf", {key: text})
    wanted = SET if key != "a.env" else {**SET, "names": frozenset({"x"})}  # a list of items with commas needs a list
    with dflag.setup(example.flags, Directory(str(volume.path), documents=(*DOCUMENTS, "app"))) as updater:
        assert example.values() == wanted
        assert (updater.problems, updater.generation) == ((), 1)
        name = "RATE" if key == "a.env" else "rate"
        assert example.rate.held.place == f"{volume.path}/{key}#{name}"
        assert str(example.rate.held) == f"ConfigMap {volume.path}/{key}#{name}"


def test_without_being_told_so_no_key_is_a_document(tmp_path: Path) -> None:
    example = Example()
    with dflag.setup(example.flags, Volume(tmp_path / "conf", {"a.yaml": YAML}).path) as updater:
        assert (example.rate.get(), updater.warnings) == (10, 1)


def test_a_change_is_one_generation_and_tells_only_of_what_changed(tmp_path: Path) -> None:
    example, heard, quiet = Example(), Heard(), Heard()
    volume = Volume(tmp_path / "conf", {"a.yaml": "rate: 1\nnames: [a]\nversion: x"})
    with dflag.setup(example.flags, Directory(str(volume.path), documents=DOCUMENTS)) as updater:
        example.rate.on_change(heard)
        example.names.on_change(quiet, always=True)
        volume.write({"a.yaml": "# reordered\nversion: 'x'\nnames: ['a']\nrate: 2"})
        becomes(example.rate, 2)
        volume.write({"a.yaml": "names: ['a']"})
        becomes(example.rate, 10)
        assert example.flags.flush(20.0)
        assert (heard.steps, quiet.steps, updater.generation) == ([(1, 2), (2, 10)], [], 3)
        assert example.version.get() == "", "what a document no longer names is gone, as a key would be"


@pytest.mark.parametrize(
    ("key", "text", "where"),
    [
        ("a.yaml", "rate: 2\nname: [1\n", r"not valid YAML: .* at line 3, column 1"),
        ("a.yaml", "rate: 2\nrate: 3", "the key 'rate' appears twice at line 2, column 1"),
        ("a.json", '{"rate": 2,\n "x": }', "not valid JSON: expecting value at line 2, column 7"),
        ("a.json", '{"rate": 2, "rate": 3}', "the name 'rate' appears twice"),
        ("a.json", '{"rate": NaN}', "NaN is no number"),
        ("a.json", '{"rate": ' + "1" * 5000 + "}", "not valid JSON: Exceeds the limit"),
        ("a.toml", "rate = 2\nx = = 3", r"not valid TOML: .*line 2, column 5"),
        ("a.toml", "rate = 2\nrate = 3\n", r"not valid TOML: .*line 2, column 9"),
        ("a.env", "RATE=2\n\nwhat", "not of the form KEY=value at line 3, column 1"),
        ("a.env", "RATE=2\nX='y", "a quote is not closed at line 2, column 3"),
        ("a.env", "RATE=2\nRATE=3", "'RATE' appears twice at line 2"),
        ("a.yaml", b"rate: \xff", r"not UTF-8 text \(byte 6 of 7\)"),
        ("a.yaml", "- 1", "must be a map from names to values"),
        ("a.json", "[1]", "must be a map from names to values"),
        ("a.json", "", "expecting value at line 1, column 1"),
    ],
)
def test_what_cannot_be_read_leaves_its_flags_as_they_are_and_says_where(
    tmp_path: Path, key: str, text: str | bytes, where: str
) -> None:
    example = Example()
    good = {"a.yaml": "rate: 1", "a.json": '{"rate": 1}', "a.toml": "rate = 1", "a.env": "RATE=1"}[key]
    volume = Volume(tmp_path / "conf", {key: good, "version": "x"})
    with dflag.setup(example.flags, Directory(str(volume.path), documents=DOCUMENTS)) as updater:
        for number in (1, 2):  # an error that stays is no second one
            volume.write({key: text, "version": f"y{number}"})
            becomes(example.version, f"y{number}")
            assert (example.rate.get(), updater.errors, updater.warnings) == (1, 1, 0)
        (problem,) = updater.problems
        assert (problem.level, problem.key) == ("error", key)
        assert re.search(where, problem.reason)
        volume.write({key: good.replace("1", "3"), "version": "z"})
        becomes(example.rate, 3)
        assert (updater.errors, updater.problems) == (1, ())


def test_a_document_that_was_never_good_takes_nothing_away(tmp_path: Path) -> None:
    example = Example()
    volume = Volume(tmp_path / "conf", {"a.yaml": "rate: 1"})
    place = Directory(str(volume.path), documents=DOCUMENTS)
    dflag.Updater(example.flags, place).initialize()
    volume.write({"a.yaml": "rate: ["})
    with pytest.raises(StartError, match=r"1 error in the flags: .*a\.yaml: not valid YAML"):
        dflag.setup(example.flags, place)
    assert example.rate.get() == 1


def test_a_bad_value_in_it_spoils_itself_only_or_all_of_it_if_so_wanted(tmp_path: Path) -> None:
    for atomic, version in (("per_key", "y"), ("all", "x")):
        example = Example()
        volume = Volume(tmp_path / atomic, {"a.yaml": "rate: 1\nversion: x"})
        policy = Policy(atomic=atomic)  # type: ignore[arg-type]
        with dflag.setup(example.flags, Directory(str(volume.path), documents=DOCUMENTS), policy=policy) as updater:
            volume.write({"a.yaml": "rate: 101\nversion: y"})
            until(lambda updater=updater: updater.errors == 1)  # type: ignore[misc]
            assert (example.rate.get(), example.version.get()) == (1, version)
            assert [str(each) for each in updater.problems] == [
                f"{volume.path}/a.yaml#rate: must be from 0 to 100, got 101"
            ]


def test_unknown_names_are_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    example = Example()
    volume = Volume(tmp_path / "conf", {"a.yaml": "rate: 1\ndb: {host: {name: x}, pool: {}}"})
    with dflag.setup(example.flags, Directory(str(volume.path), documents=DOCUMENTS)) as updater:
        volume.write({"a.yaml": "rate: 2\ndb: {host: {name: y}, pool: {}}"})
        becomes(example.rate, 2)
        assert (updater.warnings, updater.errors) == (1, 0)
        assert [problem.key for problem in updater.problems] == ["a.yaml#db.host.name"]
        assert caplog.text.count("there is no such flag") == 1


def test_later_patterns_count_more_and_a_key_of_its_own_most_and_all_is_told(tmp_path: Path) -> None:
    example = Example()
    content = {"a.yaml": "rate: 1\nversion: a", "z.yaml": "rate: 2\nversion: z", "version": "own"}
    volume = Volume(tmp_path / "conf", content)
    with dflag.setup(example.flags, Directory(str(volume.path), documents=("z.yaml", "*.yaml"))) as updater:
        assert (example.rate.get(), example.version.get()) == (1, "own")
        assert [f"{problem.key} {problem.reason}" for problem in updater.problems] == [
            "a.yaml#rate sets the flag 'rate', as z.yaml#rate does: this one counts",
            "a.yaml#version sets the flag 'version', as z.yaml#version does: this one counts",
            "version sets the flag 'version', as a.yaml#version does: this one counts",
        ]
        assert (updater.warnings, updater.errors) == (3, 0)


def test_null_says_nothing(tmp_path: Path) -> None:
    example = Example()
    volume = Volume(tmp_path / "conf", {"a.yaml": "rate:\nversion: ~\ndb: null", "b.json": '{"rate": null}'})
    with dflag.setup(example.flags, Directory(str(volume.path), documents=DOCUMENTS)) as updater:
        assert (example.rate.get(), example.version.get(), updater.problems) == (10, "", ())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rate: [1]", "a.yaml#rate: expected int, got list"),
        ("names: {a: 1}", "a.yaml#names.a: there is no such flag"),
        ("names: [[a]]", "a.yaml#names: each item must be a single value"),
        ("weights: [1]", "a.yaml#weights: expected a map to float, got list"),
        ("db: {pool: {ports: [80, x]}}", "a.yaml#db.pool.ports: item 2: 'x' is not"),
        ("policy: 3", "a.yaml#policy: expected a JSON object or array, got int"),
        ("limits: {burst: many}", "a.yaml#limits: not the JSON that is wanted"),
        ("policy: {n: 1e999}", "a.yaml: not valid YAML: a number out of range at line 1, column 13"),
    ],
)
def test_what_a_flag_cannot_take(tmp_path: Path, text: str, reason: str) -> None:
    example = Example()
    volume = Volume(tmp_path / "conf", {"a.yaml": text})
    updater = dflag.Updater(
        example.flags, Directory(str(volume.path), documents=DOCUMENTS), policy=Policy(tolerant=True)
    )
    updater.initialize()
    assert reason in str(updater.problems[0])
    assert example.values() == Example().values()


def test_a_number_that_json_cannot_hold_is_refused_where_it_is(tmp_path: Path) -> None:
    example = Example()
    volume = Volume(tmp_path / "conf", {"a.toml": "rate = 1\npolicy = {n = inf}"})
    with pytest.raises(StartError, match=r"a\.toml#policy: it contains a number that JSON does not have"):
        dflag.setup(example.flags, Directory(str(volume.path), documents=DOCUMENTS))
    assert example.rate.get() == 1


def test_dates_of_toml_are_text_as_in_iso_8601() -> None:
    tree = read_document("a.toml", b"day = 2026-01-02\ntimes = [07:32:00, 1979-05-27T07:32:00Z]").tree
    assert [tree["day"].text, *(leaf.text for leaf in tree["times"])] == [  # type: ignore[union-attr]
        "2026-01-02",
        "07:32:00",
        "1979-05-27T07:32:00+00:00",
    ]


def test_a_secret_in_a_document_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flags = dflag.FlagSet("test")
    flags.int("pin", 1, secret=True)
    flags.list("keys", [1], item=int, secret=True)
    flags.json("vault", {}, secret=True, validators=[lambda value: not value])
    text = "pin: hunter2\nkeys: [hunter2]\nvault: {a: hunter2}"
    volume = Volume(tmp_path / "conf", {"a.yaml": text})
    with pytest.raises(StartError, match="3 errors") as caught:
        dflag.setup(flags, Directory(str(volume.path), documents=DOCUMENTS))
    assert "hunter2" not in str(caught.value) + caplog.text
    assert "a.yaml#pin" in caplog.text


def test_prefix_and_namespace_are_those_of_the_names_in_it(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    rate, size = flags.int("app.rate", 0), flags.int("app.db.size", 0)
    content = {"a.yaml": "shop: {rate: 1}\nblog: {rate: x}", "b.env": "SHOP_DB_SIZE=2\nBLOG_RATE=x\nSHOP_X=1"}
    volume = Volume(tmp_path / "conf", content)
    place = Directory(str(volume.path), prefix="shop.", namespace="app.", documents=DOCUMENTS)
    with dflag.setup(flags, place) as updater:
        assert (rate.get(), size.get(), updater.problems) == (1, 2, ())


def test_a_map_beneath_a_flag_that_takes_none_names_others(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    debug, level = flags.bool("debug", False), flags.int("debug.level", 0)
    volume = Volume(tmp_path / "conf", {"a.yaml": "debug: {level: 3}", "b.yaml": "{debug: true}"})
    with dflag.setup(flags, Directory(str(volume.path), documents=DOCUMENTS)) as updater:
        assert (debug.get(), level.get(), updater.problems) == (True, 3, ())


def test_a_flag_may_be_defined_after_its_document_was_there(tmp_path: Path) -> None:
    example = Example()
    volume = Volume(tmp_path / "conf", {"a.yaml": "rate: 1\nlate: {a: 5}"})
    with dflag.setup(example.flags, Directory(str(volume.path), documents=DOCUMENTS)) as updater:
        late = example.flags.json("late", {"a": 0})
        volume.write({"a.yaml": "rate: 2\nlate: {a: 5}"})
        becomes(example.rate, 2)
        assert (late.get(), updater.problems) == ({"a": 5}, ())


def test_a_static_flag_in_a_document_asks_for_a_restart(tmp_path: Path) -> None:
    example = Example()
    size = example.flags.int("size", 0, dynamic=False)
    volume = Volume(tmp_path / "conf", {"a.yaml": "rate: 1\nsize: 1"})
    with dflag.setup(example.flags, Directory(str(volume.path), documents=DOCUMENTS)) as updater:
        volume.write({"a.yaml": "rate: 2\nsize: 2"})
        becomes(example.rate, 2)
        assert (size.get(), updater.restart_required) == (1, ("size",))


@pytest.mark.parametrize(
    ("key", "content", "reason"),
    [
        ("a.yaml", b" " * (LARGEST + 1), "larger than the limit"),
        ("a.json", b'{"a":[' + b"0," * MOST + b"0]}", f"more than {MOST} values"),
        ("a.yaml", b"a: &a [" + b"x," * 3000 + b"]\nb: [" + b"*a," * 2000 + b"]", "once aliases are expanded"),
        ("a.yaml", b"a: " + b"[" * 500, f"nested more than {DEPTH} deep"),
        ("a.json", b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        ("a.json", b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", f"nested more than {DEPTH} deep"),
        ("a.toml", b"a = " + b"[" * 5000, "nested too deeply|not valid TOML"),
        ("a.toml", b".".join([b"a"] * 3000) + b" = 1", "nested"),
        ("a.toml", b"[" + b".".join([b"a"] * 3000) + b"]", "a name has more than 50 dots"),
        ("a.toml", b"x = {" + b" . ".join([b'"a"'] * 3000) + b" = 1}", "a name has more than 50 dots"),
        ("a.toml", b"x = '" + b"'\n" + b".".join([b"a"] * 3000) + b" = 1", "a name has more than 50 dots"),
        ("a.toml", b"\n".join(b"a%d" % n + b".b" * 40 + b" = 1" for n in range(6000)), "more than 200000 dots"),
        ("a.json", b'{"a":[' + b"[]," * MOST + b"[]]}", f"more than {MOST} values"),
        ("a.json", b'{"a":[' + b"{}," * MOST + b"{}]}", f"more than {MOST} values"),
        ("a.yaml", b"a: [" + b"[]," * MOST + b"[]]", f"more than {MOST} values"),
        ("a.toml", b"a = [" + b"[]," * MOST + b"[]]", f"more than {MOST} values"),
        ("a.toml", b"".join(b"[a%d]\n" % n for n in range(2 * MOST + 1)), f"more than {MOST} values"),
        ("a.env", b"\n".join(b"A%d=" % n for n in range(MOST + 1)), f"more than {MOST} values"),
    ],
)
def test_no_document_costs_more_than_it_may(key: str, content: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        read_document(key, content)


@pytest.mark.parametrize(
    "content",
    [
        b"a = '" + b"." * 1000 + b"'",
        b'a = "' + b'.\\"' * 1000 + b'"',
        b'a = """' + b'.""\n' * 1000 + b'"""',
        b"a = '''" + b".'\n" * 1000 + b"'''''",
        b"# it's a comment " + b"." * 1000 + b"\na = 1",
        b'"' + b"." * 1000 + b'" = 1',
        b"a = [" + b"1.5," * 1000 + b"]",
        b"a = [\n" + b"[1.5, 2.5],\n" * 1000 + b"]",
        b"\n".join(b"a.b%d = 1.5" % n for n in range(1000)),
        b".".join([b"a"] * DEPTH) + b" = 1",
    ],
)
def test_dots_that_name_nothing_are_no_depth(content: bytes) -> None:
    assert read_document("a.toml", content).tree


def test_names_may_be_as_many_as_values() -> None:
    keys = [b"k%d" % number for number in range(MOST)]
    for key, content in {"a.yaml": b": 1\n".join([*keys, b""]), "a.toml": b" = 1\n".join([*keys, b""])}.items():
        assert len(read_document(key, content).tree) == MOST


def test_a_name_with_many_dots_costs_no_memory() -> None:
    content = ".".join(["a"] * 8000).encode() + b" = 1"
    tracemalloc.start()
    try:
        with pytest.raises(DocumentError):
            read_document("a.toml", content)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_document_that_takes_all_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(text: str, **more: object) -> object:
        raise MemoryError

    monkeypatch.setattr("tomllib.loads", greedy)
    with pytest.raises(DocumentError, match="not enough memory"):
        read_document("a.toml", b"a = 1")


@pytest.mark.parametrize("text", ["pw: *hunter2", "pw: !hunter2 x", "pw: !hunter2", "*hunter2 : x", "pw: !hunter2 [1]"])
def test_a_mistake_does_not_tell_the_password_that_is_taken_for_an_alias_or_a_tag(text: str) -> None:
    with pytest.raises(DocumentError, match=r"(alias|tag) .*quotes.* at line 1, column") as caught:
        read_document("a.yaml", text.encode())
    assert "hunter2" not in str(caught.value)


def test_a_variable_that_belongs_to_two_flags_sets_both(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    one, two, third = flags.int("p-q", 0), flags.int("p_q", 0), flags.int("p.r", 0, aliases=["p-r"])
    volume = Volume(tmp_path / "conf", {"a.env": "P_Q=9\nP_R=3"})
    with dflag.setup(flags, Directory(str(volume.path), documents=DOCUMENTS)) as updater:
        assert (one.get(), two.get(), third.get(), updater.problems) == (9, 9, 3, ())
        volume.write({"a.env": "P_Q=x\nP_R=4"})
        becomes(third, 4)
        assert [problem.key for problem in updater.problems] == ["a.env#P_Q (p-q)", "a.env#P_Q (p_q)"]
        assert (one.get(), two.get(), updater.errors) == (9, 9, 2)


def test_what_stays_because_a_document_was_never_read_is_told(tmp_path: Path) -> None:
    example = Example()
    volume = Volume(tmp_path / "conf", {"a.yaml": "rate: 1", "b.yaml": "{", "version": "x"})
    place = Directory(str(volume.path), documents=DOCUMENTS)
    with dflag.setup(example.flags, place, policy=Policy(tolerant=True)) as updater:
        assert (example.rate.get(), updater.warnings) == (1, 0)
        volume.write({"b.yaml": "{", "version": "y"})
        becomes(example.version, "y")
        told = "b.yaml: it may set flags that nothing else sets any more, so they keep their values: rate"
        assert [str(problem) for problem in updater.problems][1:] == [f"{volume.path}/{told}"]
        assert (example.rate.get(), updater.warnings) == (1, 1)
        volume.write({"b.yaml": "{}", "version": "y"})
        becomes(example.rate, 10)
        assert updater.problems == ()


@given(key=st.sampled_from(["a.yaml", "a.json", "a.toml", "a.env"]), content=st.binary() | st.text().map(str.encode))
def test_whatever_is_in_it_is_a_document_or_refused(key: str, content: bytes) -> None:
    try:
        assert isinstance(read_document(key, content).tree, dict)
    except DocumentError as error:
        assert str(error)


@pytest.mark.parametrize("given", ["a.yaml", ["a.yaml"], ("",), (1,)])
def test_patterns_are_a_tuple_of_texts(given: Any) -> None:
    for make in (lambda: Directory("/etc", documents=given), lambda: dflag.ConfigMap("a", "b", documents=given)):
        with pytest.raises(UsageError, match="is a tuple of names or patterns"):
            make()
