"""Addresses as anybody may see them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.wire.client.shown import HARMLESS, HIDDEN, shown, unsigned

URL = "https://flags.example:8443/team/a@1.json"
SECRET = "hunter2-Hush"
words = st.text("abcXYZ0189:/?#[]@&;=%+.*-_~ \u00fc\n", max_size=30)


@pytest.mark.parametrize(
    "name",
    ["token", "auth", "jwt", "bearer", "authorization", "accesskey", "sas", "hmac", "pass", "passphrase", "code", "sig",
     "sharedsecret", "X-Amz-Signature", "x", "%74oken", "%76%76", "v%00", "tok+en", "va", "token-file", "client-key"],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "v=1&", "v=1;", "v=1&&", "a=1;"])
def test_a_value_is_hidden_whatever_its_name_is(name: str, before: str) -> None:
    told = shown(f"{URL}?{before}{name}={SECRET}&v=2")
    assert SECRET not in told
    assert told == f"{URL}?{before.replace('a=1', 'a=***')}{name}=***&v=2"


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_a_value_that_is_known_to_be_harmless_is_told(name: str) -> None:
    for written in (name, name.upper(), f"%{ord(name[0]):x}{name[1:]}"):
        address = f"s3://bucket/flags.json?{written}=https://minio.example:9000/a_b-c,d+e%20f&{written}"
        assert shown(address) == address


@pytest.mark.parametrize(
    "value",
    [f"https://me:{SECRET}@minio.example", f"https%3A%2F%2Fme%3A{SECRET}%40minio.example", f"1%3Btoken%3D{SECRET}",
     f"https://minio.example/%3Ftoken={SECRET}", f"1%26token={SECRET}", f"{SECRET}%2540", SECRET * 10],
)  # fmt: skip
def test_a_harmless_name_does_not_vouch_for_a_value_that_looks_otherwise(value: str) -> None:
    assert shown(f"{URL}?endpoint={value}") == f"{URL}?endpoint=***"


@pytest.mark.parametrize("query", [SECRET, f"{SECRET}=", f"{SECRET}==", f"=%20{SECRET}"])
def test_a_value_without_a_name_is_hidden(query: str) -> None:
    assert SECRET not in shown(f"{URL}?{query}")
    assert HIDDEN in shown(f"{URL}?v=1&{query}")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (f"{URL}#{SECRET}", f"{URL}#***"),
        (f"{URL}?v=1#token={SECRET}?v=1", f"{URL}?v=1#***"),
        (f"https://me:{SECRET}@flags.example/a", "https://flags.example/a"),
        (f"https://{SECRET}@flags.example", "https://flags.example"),
        (f"https://a@b:{SECRET}@[::1]:80/x", "https://[::1]:80/x"),
        (f"https://me:a/{SECRET}@flags.example/a", "https://…"),
        (f"https://me:a#{SECRET}@flags.example/a", "https://…"),
        (f"https://me:{SECRET}?a@flags.example/a", "https://…"),
        (f"consul:///flags/a?token={SECRET}", "consul:///flags/a?token=***"),
        (f"me:{SECRET}@collector:4317", "collector:4317"),
        (f"me:{SECRET}@collector:4317/a?u=http://x", "collector:4317/a?u=***"),
        (f"me:a/b?c#{SECRET}@collector:4317", "collector:4317"),
        (f"me:{SECRET}@collector://x", "collector://x"),
        (f"collector:4317/v1?x={SECRET}", "collector:4317/v1?x=***"),
    ],
)
def test_neither_who_logs_in_nor_a_fragment_is_told(address: str, told: str) -> None:
    assert shown(address) == told


@pytest.mark.parametrize(
    "address",
    ["flags.json", "dir/flags.json", "unix:/run/flags.sock", "unix:///run/flags@1.sock", "HTTPS://Flags.Example/%41?",
     "https://flags.example/pkg@1.2/flags.json?v=2&", "dns:flags.example:1", "gs://bucket/a b", "", "https://"],
)  # fmt: skip
def test_what_hides_nothing_stays_as_it_was_written(address: str) -> None:
    assert shown(address) == address


@given(words | words.map(lambda text: f"https://{text}") | words.map(lambda text: f"{URL}?{text}"))
def test_to_show_what_is_shown_changes_nothing(address: str) -> None:
    assert shown(shown(address)) == shown(address)


@given(words, words)
def test_a_secret_after_the_question_mark_is_never_told(before: str, after: str) -> None:
    told = shown(f"{URL}?{before}token={SECRET}{after}")
    assert SECRET not in told
    assert told.startswith(f"{URL}?")


@pytest.mark.parametrize("name", ["sig", "access_token", "X-Amz-Signature", "api_key", "%74oken", "password", "code"])
def test_what_is_asked_for_is_told_from_who_asks(name: str) -> None:
    address = f"https://me:{{}}@flags.example/a.json?team={{}};{name}={{}}&v=1"
    assert unsigned(address.format("x", "blue", "x")) == unsigned(address.format("y", "blue", "y"))
    assert unsigned(address.format("x", "blue", "x")) != unsigned(address.format("x", "green", "x"))
    assert unsigned(f"{URL}?v=1&signal=2&endpoint=x") == f"{URL}?v=1&signal=2&endpoint=x"
    assert unsigned(f"{URL}?endpoint=https://me:{SECRET}@h") == f"{URL}?endpoint=***"
