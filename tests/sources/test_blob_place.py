"""What the URL of a blob and the environment say about its store: the options that flagd's users have."""

from __future__ import annotations

from typing import Any

import pytest

from wigwag.errors import UsageError
from wigwag.sources.builtin.blob import S3
from wigwag.sources.remote.blob import BlobAddress, locate

ACCOUNT = {"AZURE_STORAGE_ACCOUNT": "acme"}
CONNECTION = "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=a2V5==;EndpointSuffix=core.example"


def config(url: str, **environment: str) -> dict[str, Any]:
    return locate(url, environment).config


class TestS3:
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("", {}),
            ("?region=eu-west-1", {"region": "eu-west-1"}),
            ("?endpoint=https://minio.example", {"endpoint": "https://minio.example"}),
            ("?endpoint=minio.example:9000", {"endpoint": "https://minio.example:9000"}),
            ("?endpoint=minio:9000&disable_https=true", {"endpoint": "http://minio:9000"}),
            ("?endpoint=minio:9000&disableSSL=true", {"endpoint": "http://minio:9000"}),
            ("?region=eu-west-1&disable_https=1", {"region": "eu-west-1", "endpoint": "http://s3.eu-west-1.amazonaws.com"}),
            ("?anonymous=true", {"skip_signature": True}),
            ("?anonymous=false", {}),
            ("?use_path_style=true&s3ForcePathStyle=true&awssdk=v2&hostname_immutable=true", {}),
        ],
    )  # fmt: skip
    def test_options_of_the_url(self, query: str, expected: dict[str, Any]) -> None:
        found = locate(f"s3://bucket/dir/flags.json{query}", {})
        assert found[:4] == ("s3", "bucket", "dir/flags.json", expected)
        assert found.insecure is str(expected.get("endpoint", "")).startswith("http:")
        assert found.unused == ()

    @pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
    def test_the_endpoint_of_the_environment(self, name: str) -> None:
        found = locate("s3://b/o", {name: "http://minio:9000"})
        assert (found.config, found.insecure) == ({"endpoint": "http://minio:9000"}, True)
        assert config("s3://b/o?endpoint=https://x", **{name: "http://minio:9000"}) == {"endpoint": "https://x"}

    def test_what_has_no_effect_is_handed_back(self) -> None:
        found = locate("s3://b/o?profile=me&fips=true&region=x&ssetype=aes256", {})
        assert found.unused == (
            ("profile", "; profiles are not read: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"),
            ("fips", ""),
        )

    def test_a_prefix_is_a_part_of_the_name(self) -> None:
        assert locate("s3://b/o.json?prefix=team/", {}).name == "team/o.json"


class TestGoogle:
    def test_the_usual_place(self) -> None:
        assert locate("gs://b/a/o", {}) == BlobAddress("gs", "b", "a/o", {}, insecure=False, unused=())

    def test_an_emulator(self) -> None:
        expected = {"base_url": "http://localhost:4443", "skip_signature": True}
        assert config("gs://b/o", STORAGE_EMULATOR_HOST="localhost:4443") == expected
        assert config("gs://b/o", STORAGE_EMULATOR_HOST="http://localhost:4443") == expected

    def test_options_of_the_url(self) -> None:
        assert config("gs://b/o?anonymous=true&access_id=-") == {"skip_signature": True}
        assert config("gs://b/o?universe_domain=x.example") == {"base_url": "https://storage.x.example"}


class TestAzure:
    @pytest.mark.parametrize(
        ("query", "environment", "endpoint"),
        [
            ("", {}, None),
            ("", {"AZURE_STORAGE_PROTOCOL": "https"}, None),
            ("", {"AZURE_STORAGE_DOMAIN": "blob.x.example"}, "https://acme.blob.x.example"),
            ("?domain=blob.x.example&protocol=http", {}, "http://acme.blob.x.example"),
            ("?localemu=true", {}, "http://127.0.0.1:10000/acme"),
            ("", {"AZURE_STORAGE_IS_LOCAL_EMULATOR": "true", "AZURE_STORAGE_DOMAIN": "az:1"}, "http://az:1/acme"),
        ],
    )
    def test_where_an_account_is(self, query: str, environment: dict[str, str], endpoint: str | None) -> None:
        found = locate(f"azblob://c/o{query}", ACCOUNT | environment)
        assert found.config == {"account_name": "acme"} | ({"endpoint": endpoint} if endpoint else {})
        assert found.insecure is bool(endpoint and endpoint.startswith("http:"))

    def test_who_we_are(self) -> None:
        assert config("azblob://c/o", **ACCOUNT, AZURE_STORAGE_KEY="k")["account_key"] == "k"
        assert config("azblob://c/o", **ACCOUNT, AZURE_STORAGE_SAS_TOKEN="?sv=1&sig=2")["sas_key"] == "sv=1&sig=2"

    def test_a_connection_string_says_it_all(self) -> None:
        assert config("azblob://c/o", AZURE_STORAGE_CONNECTION_STRING=CONNECTION) == {
            "account_name": "acme",
            "account_key": "a2V5==",
            "endpoint": "https://acme.blob.core.example",
        }
        text = "AccountName=dev;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/dev/"
        found = locate("azblob://c/o", {"AZURE_STORAGE_CONNECTION_STRING": text})
        assert (found.config["endpoint"], found.insecure) == ("http://127.0.0.1:1/dev", True)

    @pytest.mark.parametrize("environment", [{}, {"AZURE_STORAGE_ACCOUNT": ""}])
    def test_without_an_account_it_says_what_to_set(self, environment: dict[str, str]) -> None:
        with pytest.raises(UsageError, match="the storage account is missing; set AZURE_STORAGE_ACCOUNT"):
            locate("azblob://c/o", environment)
        assert config("azblob://c/o?storage_account=x") == {"account_name": "x"}


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3:///o", "ftp://b/o", "flags.json"])
def test_what_names_no_object_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="write s3://BUCKET/OBJECT"):
        S3.address_of(url)
