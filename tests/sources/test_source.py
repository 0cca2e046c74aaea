"""What `--uri` and every field of `--sources` mean, and what is told about those that mean nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from wigwag.errors import UsageError
from wigwag.flags.document import parse_yaml
from wigwag.flags.model import Limits
from wigwag.sources.fields import Fields, OAuthFields
from wigwag.sources.kinds import parse_sources
from wigwag.sources.source import Source, SourceSettings
from wigwag.wire.client.shown import HARMLESS

DOCUMENT = (Path(__file__).parent.parent.parent / "docs" / "guides" / "sources.md").read_text()
OAUTH = {"clientID": "me", "clientSecret": "hush-hush", "tokenUrl": "https://login.example/token"}
FULL_OAUTH = OAUTH | {"folder": "/etc/oauth", "reloadDelayS": 30}


def one(**fields: Any) -> Source:
    (source,) = parse_sources((), json.dumps([fields]))
    return source


def http(**fields: Any) -> SourceSettings:
    return one(uri="https://flags.example/a.json", provider="http", **fields).settings


def grpc(**fields: Any) -> SourceSettings:
    return one(uri="flags.example:8015", provider="grpc", **fields).settings


def remarks(*configured: dict[str, Any]) -> list[str]:
    found: list[str] = []
    parse_sources((), json.dumps(configured), found.append)
    return found


def refusal(*configured: Any) -> str:
    with pytest.raises(UsageError) as refused:
        parse_sources((), json.dumps(configured))
    return str(refused.value)


class TestUri:
    @pytest.mark.parametrize(
        ("uri", "name", "provider", "tls"),
        [
            ("file:flags.json", "flags.json", "file", False),
            ("file:/etc/flags/a.yaml", "/etc/flags/a.yaml", "file", False),
            ("http://flags.example/a.json", "http://flags.example/a.json", "http", False),
            ("https://flags.example:8443/a.json?v=2", "https://flags.example:8443/a.json?v=2", "http", False),
            ("grpc://flags.example:8015", "flags.example:8015", "grpc", False),
            ("grpcs://flags.example:8015", "flags.example:8015", "grpc", True),
            ("envoy://localhost:9211/flags.service", "envoy://localhost:9211/flags.service", "grpc", False),
            ("dns:///flags.example:8015", "dns:///flags.example:8015", "grpc", False),
            ("dns:flags.example", "dns:flags.example", "grpc", False),
            ("uds:/run/flags.sock", "uds:/run/flags.sock", "grpc", False),
            ("unix:/run/flags.sock", "unix:/run/flags.sock", "grpc", False),
            ("unix:/run/flags@1.sock", "unix:/run/flags@1.sock", "grpc", False),
            ("xds:///flags", "xds:///flags", "grpc", False),
            ("gs://bucket/dir/flags.json", "gs://bucket/dir/flags.json", "gcs", False),
            ("s3://bucket/flags.json?region=eu-west-1", "s3://bucket/flags.json?region=eu-west-1", "s3", False),
            ("azblob://container/flags.json", "azblob://container/flags.json", "azblob", False),
            ("core.openfeature.dev/team/flags", "team/flags", "kubernetes", False),
            ("core.openfeature.dev/team?labels=app=shop", "team?labels=app=shop", "kubernetes", False),
            ("core.openfeature.dev/", "core.openfeature.dev/", "kubernetes-self", False),
            ("configmap/team/flags/a.json", "configmap/team/flags/a.json", "configmap", False),
        ],
    )
    def test_its_beginning_says_what_it_is(self, uri: str, name: str, provider: str, tls: bool) -> None:
        (source,) = parse_sources((uri,), "")
        assert (source.name, source.provider, source.settings.tls) == (name, provider, tls)
        assert source.address == name

    @pytest.mark.parametrize(
        ("uri", "why"),
        [
            ("flags.json", "--uri: cannot tell what 'flags.json' is; write file:PATH"),
            ("ftp://flags.example", "cannot tell what 'ftp://flags.example' is"),
            ("file:", "--uri: 'file:' names nothing; write file:PATH"),
            ("grpc://", "write grpc://HOST:PORT"),
            ("https://", "is not an HTTP URL; write https://HOST/PATH"),
            ("https://flags.example:many/", "is not a URI: its host or port is malformed"),
            ("https://me:hush@flags.example:many/", "'https://…' is not a URI"),
            ("https://me:hush/hush@flags.example/", "'https://…' is not a URI"),
            ("https://me:hush@flags.ex\u2100mple/", "is not a URI"),
            ("me:hush@flags.example/flags.json", "cannot tell what 'flags.example/flags.json' is"),
            ("grpc://flags.example:8015?token=hush", "has credentials or a query in it"),
            ("dns:///flags.example:8015#hush", "has credentials or a query in it"),
            ("https://flags.example/a\nb", "no control characters"),
            ("s3://bucket", "does not name an object of a store; write s3://BUCKET/OBJECT"),
            ("azblob://container/", "write azblob://CONTAINER/OBJECT"),
            ("gs://me:hush@bucket/o", "has credentials in it; write gs://BUCKET/OBJECT"),
            ("grpc://me:hush@flags.example:8015", "has credentials or a query in it, which gRPC does not support"),
            ("dns:///me:hush@flags.example", "has credentials or"),
            ("dns://me:hush@flags.example/x", "has credentials or"),
            ("core.openfeature.dev/ns/flags?onDelete=drop", "onDelete is keep or remove, not 'drop'"),
        ],
    )
    def test_what_cannot_be_is_refused_with_a_remedy(self, uri: str, why: str) -> None:
        with pytest.raises(UsageError) as refused:
            parse_sources((uri,), "")
        assert why in str(refused.value)
        assert "hush" not in str(refused.value)

    def test_without_any_the_demo_is_served(self) -> None:
        assert parse_sources((), "") == parse_sources((), " ") == parse_sources((), []) == (Source("demo", "demo"),)

    def test_the_order_is_the_priority_and_uris_come_first(self) -> None:
        found = parse_sources(("file:a", "file:b"), '[{"uri": "c", "provider": "file"}]')
        assert [(source.name, source.position) for source in found] == [("a", 0), ("b", 1), ("c", 2)]


class TestIdentity:
    @pytest.mark.parametrize("provider", ["file", "fsnotify", "fileinfo"])
    def test_a_file_is_known_by_its_path(self, provider: str) -> None:
        assert one(uri="a.json", provider=provider) == Source("a.json", "file")
        assert one(uri="file:a.json", provider=provider) == Source("a.json", "file")

    def test_a_scheme_that_only_says_how_to_read_is_no_part_of_the_name(self) -> None:
        assert one(uri="grpc://flags.example:1", provider="grpc") == Source("flags.example:1", "grpc")
        assert one(uri="grpcs://flags.example:1", provider="grpc").settings == SourceSettings(tls=True)

    def test_one_uri_with_two_selectors_is_two_sources(self) -> None:
        configured = [{"uri": "flags.example:1", "provider": "grpc", "selector": each} for each in ("a", "a", "b")]
        found = parse_sources((), configured)
        assert len(set(found)) == 3
        assert [source.settings.selector for source in found] == ["a", "a", "b"]

    def test_the_frozen_record_is_its_own_key(self) -> None:
        every = {"headers": {"A": "b"}, "oauth": OAUTH, "interval": 7}
        assert one(uri="https://x.example", provider="http", **every) == one(
            uri="https://x.example", provider="http", **every
        )
        assert len({http(**every), http(**every), http()}) == 2


class TestSecrets:
    def test_user_and_password_in_a_url_are_sent_and_not_shown(self) -> None:
        (source,) = parse_sources(("https://me:h%40sh@flags.example/a.json",), "")
        assert source.name == source.address == "https://flags.example/a.json"
        assert source.settings.auth_header == "Basic bWU6aEBzaA=="

    def test_an_auth_header_beats_the_credentials_of_the_url(self) -> None:
        source = one(uri="https://me:hush@flags.example", provider="http", authHeader="Bearer x")
        assert source.settings.auth_header == "Bearer x"

    @pytest.mark.parametrize(
        "parameter", ["sig", "token", "X-Amz-Signature", "api_key", "auth", "jwt", "sas", "pass", "%74oken", "team"]
    )  # fmt: skip
    def test_values_in_a_query_are_sent_and_not_shown(self, parameter: str) -> None:
        uri = f"https://flags.example/a.json?v=1&{parameter}=hush%2Fhush;w=hush#hush"
        (source,) = parse_sources((uri,), "")
        assert source.address == uri
        assert source.name == f"https://flags.example/a.json?v=1&{parameter}=***;w=***#***"
        assert "hush" not in repr(source)

    def test_credentials_in_the_address_of_an_endpoint_are_not_shown(self) -> None:
        (source,) = parse_sources(("s3://b/o?region=x&endpoint=https://me:hush@minio.example",), "")
        assert source.name == "s3://b/o?region=x&endpoint=***"
        assert source.address.endswith("minio.example")

    @pytest.mark.parametrize("query", ["version=x", "ref=refs/heads/main", "env=prod&format=json", "V=1;branch=a+b"])
    def test_what_is_known_to_be_harmless_is_part_of_the_name(self, query: str) -> None:
        uri = f"https://flags.example/a.json?{query}"
        assert parse_sources((uri,), "") == (Source(uri, "http"),)

    def test_no_secret_is_in_any_text_about_a_source(self) -> None:
        source = one(
            uri="https://me:hush1@flags.example/a.json?token=hush2",
            provider="http",
            authHeader="hush3",
            headers={"X-Key": "hush4"},
            oauth=OAUTH | {"clientSecret": "hush5"},
        )
        for text in (repr(source), str(source), f"{source}", repr(source.settings.oauth)):
            assert "hush" not in text
        assert "auth_header=…" in repr(source)
        assert repr(SourceSettings()) == "SourceSettings()"

    @pytest.mark.parametrize(
        "fields", [{"authHeader": ["hush"]}, {"headers": {"a": 1, "b": "hush"}}, {"oauth": {"clientSecret": ["hush"]}},
                   {"authHeader": "hush\r\nX: y"}, {"headers": {"a b": "hush"}}, {"headers": {"a": "hush\n"}}]
    )  # fmt: skip
    def test_an_error_about_a_secret_does_not_show_it(self, fields: dict[str, Any]) -> None:
        told = refusal({"uri": "https://flags.example", "provider": "http", **fields})
        assert told.startswith(f"--sources: $.sources[0].{next(iter(fields))}")
        assert "hush" not in told


class TestFields:
    def test_every_field_of_an_http_source(self) -> None:
        found = http(
            authHeader="Bearer x", headers={"X-A": "1", "Host": "h"}, interval=60, intervalSeed="pod-1", timeoutS=3,
            oauth=FULL_OAUTH, certPath="/ca.pem", maxBytes=10,
        )  # fmt: skip
        assert found == SourceSettings(
            auth_header="Bearer x", headers=(("X-A", "1"), ("Host", "h")), interval=60.0, seed="pod-1", timeout=3.0,
            oauth=OAuthFields("me", "hush-hush", "https://login.example/token", "/etc/oauth", 30.0),
            cert_path="/ca.pem", most=10,
        )  # fmt: skip

    def test_every_field_of_a_grpc_source(self) -> None:
        found = grpc(
            tls=True, certPath="/ca.pem", providerID="me", selector="flagSetId=a", maxMsgSize=5, headers={"a": "b"}
        )
        assert found == SourceSettings(
            tls=True, cert_path="/ca.pem", provider_id="me", selector="flagSetId=a", max_message=5,
            headers=(("a", "b"),),
        )  # fmt: skip

    def test_a_token_file_is_the_only_credential(self) -> None:
        assert http(tokenFile="/token") == grpc(tokenFile="/token") == SourceSettings(token_file="/token")
        for other in ({"authHeader": "Bearer hush"}, {"oauth": OAUTH}, {"headers": {"AUTHORIZATION": "hush"}}):
            told = refusal({"uri": "https://flags.example", "provider": "http", "tokenFile": "/token", **other})
            assert "$.sources[0].tokenFile: is one of several credentials" in told
            assert "hush" not in told

    @pytest.mark.parametrize(("provider", "scheme"), [("gcs", "gs"), ("s3", "s3"), ("azblob", "azblob")])
    def test_every_field_of_a_blob_source(self, provider: str, scheme: str) -> None:
        source = one(uri=f"{scheme}://b/o", provider=provider, interval=9, intervalSeed="x", certPath="c", maxBytes=8)
        assert source == Source(
            f"{scheme}://b/o", provider, settings=SourceSettings(interval=9.0, seed="x", cert_path="c", most=8)
        )

    @pytest.mark.parametrize("provider", ["kubernetes", "configmap"])
    def test_every_field_of_objects_in_kubernetes(self, provider: str) -> None:
        found = one(uri="team/flags", provider=provider, maxBytes=8, onDelete="remove").settings
        assert found == SourceSettings(most=8, on_delete="remove")
        assert one(uri="team/flags", provider=provider, onDelete="keep").settings == SourceSettings()
        assert one(uri="team/flags?onDelete=remove", provider=provider).settings == SourceSettings(on_delete="remove")
        assert one(uri="team/flags?onDelete=remove", provider=provider, onDelete="keep").settings == SourceSettings()

    def test_objects_have_the_same_name_with_and_without_the_beginning_and_whatever_becomes_of_their_flags(
        self,
    ) -> None:
        for uri in ("team/flags", "core.openfeature.dev/team/flags", "core.openfeature.dev/team/flags?onDelete=remove"):
            assert one(uri=uri, provider="kubernetes").name == "team/flags"
        for uri in ("team/flags/key", "configmap/team/flags/key", "team/flags/key?onDelete=keep"):
            assert one(uri=uri, provider="configmap").name == "configmap/team/flags/key"
        several = one(uri="team?labels=a=b&onDelete=remove", provider="kubernetes")
        assert (several.name, several.settings) == ("team?labels=a=b", SourceSettings(on_delete="remove"))
        assert one(uri="core.openfeature.dev/?onDelete=remove", provider="kubernetes").provider == "kubernetes-self"

    def test_zero_means_the_usual(self) -> None:
        assert http(interval=0, timeoutS=0, maxBytes=0) == grpc(maxMsgSize=0) == SourceSettings()
        assert (SourceSettings().interval, SourceSettings().most, SourceSettings().max_message) == (
            5.0,
            64 << 20,
            64 << 20,
        )

    def test_null_says_nothing(self) -> None:
        assert http(authHeader=None, headers=None, interval=None, oauth=None) == SourceSettings()

    @pytest.mark.parametrize(
        ("fields", "required"),
        [({}, True), ({"required": True}, True), ({"required": False}, False), ({"optional": True}, False),
         ({"optional": False}, True), ({"optional": True, "required": False}, False)],
    )  # fmt: skip
    def test_a_source_is_required_unless_told_otherwise(self, fields: dict[str, Any], required: bool) -> None:
        assert one(uri="a", provider="file", **fields).required is required

    @pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
    def test_names_are_taken_in_any_case(self, change: Any) -> None:
        written: dict[str, Any] = {"authHeader": "x", "intervalSeed": "s", "timeoutS": 1, "maxBytes": 1}
        expected = http(**written, oauth=FULL_OAUTH)
        oauth = {change(name): value for name, value in FULL_OAUTH.items()}
        changed = {change(name): value for name, value in written.items()} | {change("oauth"): oauth}
        assert http(**changed) == expected

    def test_a_config_file_may_have_numbers_as_text_and_json_may_not(self) -> None:
        element = {"uri": "https://x.example", "provider": "http", "interval": "7"}
        assert parse_sources((), [element])[0].settings.interval == 7.0
        assert "$.sources[0].interval: expected `int`, got `str`" in refusal(element)

    def test_all_of_them_are_tried_here(self) -> None:
        names = "uri provider authHeader headers interval intervalSeed timeoutS oauth tls certPath providerID selector"
        ours = "maxMsgSize incrementalUpdates required optional maxBytes onDelete tokenFile credentialsFolder"
        assert Fields.__struct_encode_fields__ == tuple(f"{names} {ours}".split())


class TestRemarks:
    def test_a_misspelt_field_is_told_and_read_over(self) -> None:
        element = {"uri": "https://x.example", "provider": "http", "intervall": 7, "quux": "hush"}
        assert remarks({"uri": "a", "provider": "file"}, element) == [
            "--sources: $.sources[1].intervall is not a field and is ignored; did you mean interval?",
            "--sources: $.sources[1].quux is not a field and is ignored",
        ]

    def test_a_misspelt_field_of_oauth_too(self) -> None:
        told = remarks({"uri": "https://x.example", "provider": "http", "oauth": OAUTH | {"tokenUri": "x"}})
        assert told == ["--sources: $.sources[0].oauth.tokenUri is not a field and is ignored; did you mean tokenUrl?"]

    def test_a_field_that_has_no_effect_on_this_kind(self) -> None:
        assert remarks({"uri": "a", "provider": "file", "interval": 5, "tls": False, "headers": {}}) == [
            "--sources: $.sources[0].interval has no effect on a source of the kind file"
        ]

    def test_an_auth_header_beside_oauth(self) -> None:
        told = remarks({"uri": "https://x.example", "provider": "http", "oauth": OAUTH, "authHeader": "x"})
        assert told == ["--sources: $.sources[0].authHeader has no effect: oauth brings its own"]

    def test_what_is_right_is_not_remarked_on(self) -> None:
        assert remarks({"uri": "https://x.example", "provider": "http", "oauth": OAUTH, "required": False}) == []


WEB = {"uri": "https://x.example", "provider": "http"}
GRPC = {"uri": "x.example:1", "provider": "grpc"}


class TestRefusals:
    @pytest.mark.parametrize(
        ("element", "where", "why"),
        [
            (WEB | {"interval": -1}, ".interval", "expected `int` >= 0; it is whole seconds"),
            (WEB | {"interval": 86401}, ".interval", "expected `int` <= 86400; it is whole seconds"),
            (WEB | {"interval": 1.5}, ".interval", "expected `int`, got `float`"),
            (WEB | {"timeoutS": -1}, ".timeoutS", "it is seconds until"),
            (WEB | {"headers": ["a"]}, ".headers", "expected `object`, got `array`; it is an object of texts"),
            (WEB | {"headers": {"a": 1}}, ".headers[...]", "expected `str`, got `int`"),
            (WEB | {"oauth": "x"}, ".oauth", "it is an object with tokenUrl"),
            (WEB | {"oauth": {"clientID": 1}}, ".oauth.clientID", "expected `str`"),
            (WEB | {"oauth": {}}, ".oauth.tokenUrl", "is missing"),
            (WEB | {"oauth": OAUTH | {"tokenUrl": "login"}}, ".oauth.tokenUrl", "is not an HTTP URL"),
            (WEB | {"oauth": OAUTH | {"clientID": ""}}, ".oauth.clientID", "is missing; write it, or in folder"),
            (WEB | {"oauth": OAUTH | {"clientSecret": None}}, ".oauth.clientSecret", "is missing"),
            (WEB | {"uri": "http://x.example", "certPath": "c"}, ".certPath", "needs TLS; write https://"),
            (WEB | {"uri": "x.example"}, ".uri", "is not an HTTP URL"),
            (WEB | {"maxBytes": -1}, ".maxBytes", "expected `int` >= 0"),
            (WEB | {"tls": "yes"}, ".tls", "expected `bool`, got `str`; it is true or false"),
            (WEB | {"required": True, "optional": True}, ".optional", "says the opposite of required"),
            (GRPC | {"certPath": "c"}, ".certPath", 'needs TLS; add "tls": true'),
            (GRPC | {"maxMsgSize": -5}, ".maxMsgSize", "expected `int` >= 0; it is bytes"),
            (GRPC | {"provider": "ftp"}, ".provider", "unknown provider 'ftp'; known are file"),
            (
                {"uri": "a/b", "provider": "kubernetes", "onDelete": "drop"},
                ".onDelete",
                "it is keep (its flags stay) or",
            ),
            (GRPC | {"provider": "s3"}, ".uri", "write s3://BUCKET/OBJECT"),
            (GRPC | {"provider": 1}, ".provider", "expected `str`, got `int`"),
            ({"uri": "", "provider": "file"}, "", "uri is missing"),
            ({"uri": "x"}, "", "provider is missing"),
            ("x", "", "expected an object"),
        ],
    )
    def test_a_wrong_field_is_named_with_a_remedy(self, element: Any, where: str, why: str) -> None:
        told = refusal({"uri": "a", "provider": "file"}, element)
        assert told.startswith(f"--sources: $.sources[1]{where}: ")
        assert why in told

    @pytest.mark.parametrize("text", ["x", "[", "{}", '"x"', "7", "[" * 5000])
    def test_what_is_no_array_is_refused_with_an_example(self, text: str) -> None:
        with pytest.raises(UsageError, match=r'--sources: .*; write \[\{"uri": "flags.json", "provider": "file"\}\]'):
            parse_sources((), text)

    def test_a_folder_replaces_id_and_secret(self) -> None:
        assert http(oauth={"tokenUrl": "https://x.example", "folder": "/etc/oauth"}).oauth == OAuthFields(
            token_url="https://x.example", folder="/etc/oauth"
        )


class TestDocumentation:
    """docs/guides/sources.md tells what is true."""

    @pytest.mark.parametrize("example", re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL))
    def test_an_example_is_read_without_a_remark(self, example: str) -> None:
        assert remarks(*json.loads(example)) == []

    def test_the_config_file_is_read_without_a_remark(self) -> None:
        (example,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
        found: list[str] = []
        sources = parse_sources((), parse_yaml(example.encode(), Limits())["sources"], found.append)
        assert (len(sources), found) == (2, [])

    def test_a_documented_uri_is_one(self) -> None:
        found = re.findall(r"--uri (\S+)", "".join(re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)))
        assert len(parse_sources(tuple(found), "")) == len(found) > 4

    def test_every_field_is_in_the_table_and_no_other(self) -> None:
        table = DOCUMENT.partition("| field | kinds |")[2].partition("\n\n")[0]
        assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == Fields.__struct_encode_fields__
        table = DOCUMENT.partition("| field of `oauth` |")[2].partition("\n\n")[0]
        named = [
            name for cell in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for name in re.findall(r"\w+", cell)
        ]
        assert tuple(named) == OAuthFields.__struct_encode_fields__

    def test_the_kinds_of_a_field_are_those_that_have_a_use_for_it(self) -> None:
        kinds = {"file": "a", "http": "https://x.example", "grpc": "x.example:1", "s3": "s3://b/o"}
        values: dict[str, Any] = {
            "authHeader": "x", "headers": {"a": "b"}, "interval": 1, "intervalSeed": "x", "timeoutS": 1, "tls": True,
            "oauth": OAUTH, "certPath": "c", "providerID": "x", "selector": "x", "maxMsgSize": 1, "maxBytes": 1,
        }  # fmt: skip
        rows = dict(re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", DOCUMENT, re.MULTILINE))
        for name, value in values.items():
            told = rows[name].replace("blob stores", "s3").split(", ")
            for kind, uri in kinds.items():
                element = {"uri": uri, "provider": kind, name: value} | ({"tls": True} if kind == "grpc" else {})
                assert (remarks(element) == []) is (kind in told), (name, kind)

    def test_the_names_without_secrets_are_those_of_the_table(self) -> None:
        rows = re.findall(r"^\| `(https://\S+)` \| `(https://\S+)` \|", DOCUMENT, re.MULTILINE)
        assert len(rows) == 3
        for written, name in rows:
            assert parse_sources((written,), "")[0].name == name

    def test_the_values_that_are_part_of_a_name_are_those_that_it_lists(self) -> None:
        lists = DOCUMENT.partition("Only these values are part of the name:")[2].partition("Even they")[0]
        assert {name.lower() for name in re.findall(r"`([\w-]+)`", lists)} == HARMLESS
