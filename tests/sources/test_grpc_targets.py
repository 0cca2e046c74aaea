"""What targets of gRPC mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.errors import UsageError
from wigwag.sources.remote.targets import check_authority, parse_target
from wigwag.wire.client.http2 import Place

GOOD: list[tuple[str, tuple[Place, ...], str]] = [
    ("localhost:8015", (("localhost", 8015),), "localhost:8015"),
    ("flags", (("flags", 443),), "flags"),
    ("flags.ns.svc.cluster.local:8015", (("flags.ns.svc.cluster.local", 8015),), "flags.ns.svc.cluster.local:8015"),
    ("my_host-1:1", (("my_host-1", 1),), "my_host-1:1"),
    ("127.0.0.1:65535", (("127.0.0.1", 65535),), "127.0.0.1:65535"),
    ("[::1]:8015", (("::1", 8015),), "[::1]:8015"),
    ("[::1]", (("::1", 443),), "[::1]"),
    ("::1", (("::1", 443),), "[::1]"),
    ("fe80::1%eth0", (("fe80::1%eth0", 443),), "[fe80::1%eth0]"),
    (":8015", (("localhost", 8015),), "localhost:8015"),
    ("dns:flags:8015", (("flags", 8015),), "flags:8015"),
    ("dns:flags", (("flags", 443),), "flags"),
    ("dns:///flags:8015", (("flags", 8015),), "flags:8015"),
    ("dns://8.8.8.8/flags:8015", (("flags", 8015),), "flags:8015"),
    ("dns://8.8.8.8:53/flags", (("flags", 443),), "flags"),
    ("DNS:flags:8015", (("flags", 8015),), "flags:8015"),
    ("passthrough:///flags:8015", (("flags", 8015),), "flags:8015"),
    ("passthrough:flags:8015", (("flags", 8015),), "flags:8015"),
    ("ipv4:10.0.0.1:80,10.0.0.2", (("10.0.0.1", 80), ("10.0.0.2", 443)), "10.0.0.1:80"),
    ("ipv6:[::1]:80,[::2]:81", (("::1", 80), ("::2", 81)), "[::1]:80"),
    ("ipv6:::1", (("::1", 443),), "[::1]"),
    ("unix:/run/flags.sock", ("/run/flags.sock",), "localhost"),
    ("unix:relative.sock", ("relative.sock",), "localhost"),
    ("unix:///run/flags.sock", ("/run/flags.sock",), "localhost"),
    ("unix-abstract:flags", ("\0flags",), "localhost"),
    ("uds:/run/flags.sock", ("/run/flags.sock",), "localhost"),
    ("uds:///run/flags.sock", ("/run/flags.sock",), "localhost"),
    ("uds://relative.sock", ("relative.sock",), "localhost"),
    ("envoy://localhost:9211/flags.service", (("localhost", 9211),), "flags.service"),
    ("envoy://[::1]:9211/flags.service:80", (("::1", 9211),), "flags.service:80"),
]


@pytest.mark.parametrize(("text", "places", "authority"), GOOD, ids=[text for text, _, _ in GOOD])
def test_a_target_is_places_and_a_name(text: str, places: tuple[Place, ...], authority: str) -> None:
    assert parse_target(text) == (places, authority)


BAD = [
    ("", "is not an address; write HOST:PORT"),
    ("flags:", "is not an address"),
    ("flags:port", "is not an address"),
    ("flags:0", "a number from 1 to 65535"),
    ("flags:65536", "a number from 1 to 65535"),
    ("flags:8015/path", "is not an address"),
    ("user@flags:8015", "is not an address"),
    ("a b:1", "is not an address"),
    ("[::1:8015", "is not an address"),
    ("fl\u00e4gs:8015", "is not an address"),
    ("flags\r\n:8015", "is not an address"),
    ("dns:", "is not an address"),
    ("dns://flags:8015", "is not an address"),
    ("passthrough:///flags", "a number from 1 to 65535"),
    ("ipv4:", "is not an address"),
    ("ipv4:1.2.3.4,", "is not an address"),
    ("unix:", "which socket"),
    ("unix://run/flags.sock", "write unix:///PATH or unix:PATH"),
    ("unix-abstract:", "which socket"),
    ("uds:", "which socket"),
    ("envoy:localhost:9211/x", "write envoy://PROXY:PORT/SERVICE"),
    ("envoy://localhost/x", "a number from 1 to 65535"),
    ("envoy://localhost:9211", "write envoy://PROXY:PORT/SERVICE"),
    ("envoy://localhost:9211/", "write envoy://PROXY:PORT/SERVICE"),
    ("envoy://localhost:9211/a/b", "write envoy://PROXY:PORT/SERVICE"),
    ("xds:///flags", "xDS is not supported; name the server itself"),
    ("grpc://flags:8015", "without its prefix, as 'flags:8015'"),
    ("grpcs://flags:8015", "without its prefix, as 'flags:8015'"),
    ("http://flags:8015", "unknown scheme; write host:port"),
]


@pytest.mark.parametrize(("text", "told"), BAD, ids=[text or "empty" for text, _ in BAD])
def test_what_means_nothing_is_refused_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert told in str(caught.value)
    assert repr(text) in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_is_refused(text: str) -> None:
    try:
        found = parse_target(text)
    except UsageError:
        return
    assert found.places
    assert found.authority.isascii()
    assert all(isinstance(place, str) or 0 < place[1] < 65536 for place in found.places)


def test_the_name_of_a_server_is_one_word() -> None:
    check_authority("flags.test:8015")
    for text in ("", "a b", "a\r\nb", "a/b", "ü"):
        with pytest.raises(UsageError, match="authority of a server"):
            check_authority(text)
