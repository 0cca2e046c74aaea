"""What an address of Consul means, with Consul's own variables."""

from __future__ import annotations

from typing import Any

import pytest

from wigwag.errors import UsageError
from wigwag.sources.consul.access import locate, unused
from wigwag.sources.kinds import heartbeat, parse_sources, prepare

SHOP = "consul://10.0.0.5:8600/flags/shop.json"


@pytest.mark.parametrize(
    ("address", "environment", "expected"),
    [
        (SHOP, {}, {"address": "10.0.0.5:8600", "tls": False, "consistency": "default", "wait": 60.0}),
        ("consul://consul.example/flags", {}, {"address": "consul.example:8500"}),
        ("consuls://consul.example/flags", {}, {"address": "consul.example:8501", "tls": True}),
        ("consul://[::1]/flags", {}, {"address": "[::1]:8500"}),
        ("consul:///flags", {}, {"address": "127.0.0.1:8500"}),
        ("consul:///flags", {"CONSUL_HTTP_ADDR": "c:1"}, {"address": "c:1", "tls": False}),
        ("consul:///flags", {"CONSUL_HTTP_ADDR": "https://c:1"}, {"address": "c:1", "tls": True}),
        ("consul:///flags", {"CONSUL_HTTP_ADDR": "unix:///run/c.sock"}, {"address": "/run/c.sock"}),
        (SHOP, {"CONSUL_HTTP_ADDR": "c:1"}, {"address": "10.0.0.5:8600"}),
        (SHOP, {"CONSUL_HTTP_SSL": "true"}, {"tls": True, "address": "10.0.0.5:8600"}),
        (SHOP, {"CONSUL_HTTP_SSL": "0"}, {"tls": False}),
        (SHOP + "?dc=east&ns=a&partition=b", {}, {"datacenter": "east", "namespace": "a", "partition": "b"}),
        (SHOP, {"CONSUL_NAMESPACE": "a", "CONSUL_PARTITION": "b"}, {"namespace": "a", "partition": "b"}),
        (SHOP + "?ns=x", {"CONSUL_NAMESPACE": "a"}, {"namespace": "x"}),
        (SHOP + "?consistency=stale&wait=2m", {}, {"consistency": "stale", "wait": 120.0}),
        (SHOP, {"CONSUL_CACERT": "ca.pem"}, {"ca_path": "ca.pem"}),
        (SHOP + "?ca-file=x.pem", {"CONSUL_CACERT": "ca.pem"}, {"ca_path": "x.pem"}),
        (
            SHOP,
            {"CONSUL_CLIENT_CERT": "c.pem", "CONSUL_CLIENT_KEY": "k.pem"},
            {"cert_path": "c.pem", "key_path": "k.pem"},
        ),
        (SHOP, {"CONSUL_HTTP_AUTH": "me:word"}, {"auth_header": "Basic bWU6d29yZA=="}),
        ("consul://me:word@h/x", {"CONSUL_HTTP_AUTH": "a:b"}, {"auth_header": "Basic bWU6d29yZA=="}),
    ],
)
def test_an_address_means(address: str, environment: dict[str, str], expected: dict[str, Any]) -> None:
    access = locate(address, environment).access
    assert {name: getattr(access, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("query", "variables", "expected"),
    [
        ("", {}, ("", "")),
        ("?token=a&token-file=b", {"CONSUL_HTTP_TOKEN": "c", "CONSUL_HTTP_TOKEN_FILE": "d"}, ("", "b")),
        ("?token=a", {"CONSUL_HTTP_TOKEN": "c", "CONSUL_HTTP_TOKEN_FILE": "d"}, ("a", "")),
        ("", {"CONSUL_HTTP_TOKEN": "c", "CONSUL_HTTP_TOKEN_FILE": "d"}, ("", "d")),
        ("", {"CONSUL_HTTP_TOKEN": "c"}, ("c", "")),
    ],
)
def test_of_several_tokens_the_one_is_taken_that_consuls_tools_take(
    query: str, variables: dict[str, str], expected: tuple[str, str]
) -> None:
    access = locate(SHOP + query, variables).access
    assert (access.token, access.token_file) == expected


def test_a_key_is_what_stands_after_the_host_with_what_is_special_written_in_percent() -> None:
    assert locate("consul://h/a%20b/c%23.json", {}).name == "a b/c#.json"
    assert locate("consul://h/flags/", {}).name == "flags/"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://h/x", "not a URI of Consul"),
        ("consul://h/x#y", "not a URI of Consul"),
        ("consul://h:99999/x", "host or port is malformed"),
        ("consul://h h/x", "host or port is malformed"),
        ("consul://h/x?dcc=a", "did you mean dc?"),
        ("consul://h/x?zzz=a", "there are dc, ns"),
        ("consul://h/x?consistency=strong", "is not a consistency mode; use one of default, stale, consistent"),
        ("consul://h/x?wait=11m", "at most 600 seconds"),
        ("consul://h/x?wait=soon", "is not a duration"),
        ("consul://h/x?token=a%0Ab", "line break"),
    ],
)
def test_what_cannot_be_meant_is_told(address: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        locate(address, {})


def test_a_password_does_not_belong_into_the_address_of_the_environment() -> None:
    """The address is shown; a password has a variable of its own."""
    with pytest.raises(UsageError, match="write them into CONSUL_HTTP_AUTH") as caught:
        locate("consul:///x", {"CONSUL_HTTP_ADDR": "http://me:s3cret@c:1"})
    assert "s3cret" not in str(caught.value)


def test_what_has_no_effect_on_tls_is_told() -> None:
    variables = {"CONSUL_HTTP_SSL_VERIFY": "false", "CONSUL_CAPATH": "/x", "CONSUL_TLS_SERVER_NAME": "y"}
    assert list(unused(locate(SHOP, variables).access, variables)) == []
    told = list(unused(locate(SHOP, variables | {"CONSUL_HTTP_SSL": "1"}).access, variables))
    assert [line.split()[0] for line in told] == list(variables)


def test_a_source_is_made_of_a_uri_or_of_fields_and_shows_no_secret() -> None:
    fields = {"uri": "consuls://me:word@h/flags/?token=s3cret", "provider": "consul", "certPath": "ca.pem"}
    plain, full = parse_sources(("consul://h/flags/a.json?dc=x",), [fields])
    assert (plain.name, plain.provider) == ("consul://h/flags/a.json?dc=x", "consul")
    assert full.name == "consuls://h/flags/?token=***"
    assert "s3cret" not in repr(full)
    assert "word" not in repr(full)
    prepare([plain, full], pytest.fail, {})
    assert heartbeat(plain) == 63.75


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("consul://h", "names no key of Consul"),
        ("consul://h/", "names no key of Consul"),
        ("consul://h/a?x=1", "is not an option of a consul URI"),
        ("consul://h/a//b", "is not a key"),
    ],
)
def test_a_uri_that_can_never_answer_is_refused_before_anything_is_served(uri: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        prepare(parse_sources((uri,), None), pytest.fail, {})
