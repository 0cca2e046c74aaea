"""Single requests over real sockets: what is sent, what comes back, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kube.api import Api, cluster, kube, listing, obj, refusal
from tests.pipeline.fakes import FakeClock
from tests.sources.faulty import Authority, Server, serving, whole
from tests.wire.served import LOOPS, run
from wigwag.errors import UsageError
from wigwag.kube.client import DRY_RUN, STRICT, ApiRequest
from wigwag.kube.config.cluster import KubeUser, Plugin
from wigwag.kube.config.credentials import Credential
from wigwag.kube.config.tls import ClusterTrust
from wigwag.kube.errors import ApiError, ApiStatus, read_status
from wigwag.kube.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE, SERVICE_ACCOUNT, TOKEN_REVIEW, Kind
from wigwag.version import __version__
from wigwag.wire.client.errors import FetchError, UnreachableError, UntrustedError

loops = pytest.mark.parametrize("loop", LOOPS)
OK = whole(b'{"kind":"ConfigMap","metadata":{"name":"a"}}')
MAP = {"metadata": {"name": "a", "namespace": "ns"}, "data": {"k": "v"}}


def test_each_verb_is_the_right_request() -> None:
    async def main() -> None:
        async with cluster(OK) as api:
            client = api.kube(url=f"{api.url}/prefix/", user=KubeUser("t"))
            await client.get(CONFIG_MAP, "a", "ns")
            await client.get(NAMESPACE, "ns")
            await client.create(CONFIG_MAP, MAP)
            await client.create(SERVICE_ACCOUNT, {"spec": {}}, "ns", "app", "token")
            await client.create(TOKEN_REVIEW, {"spec": {}})
            await client.replace(DEPLOYMENT, MAP, "status")
            await client.patch(CONFIG_MAP, "a", {"data": None}, "ns")
            await client.patch(CONFIG_MAP, "a", [{"op": "remove", "path": "/data"}], "ns", how="json")
            await client.apply(CONFIG_MAP, MAP, "wigwag", force=True)
            await client.delete(CONFIG_MAP, "a", "ns")
            await client.delete(CONFIG_MAP, "a", "ns", {"preconditions": {"uid": "u"}})
            asked = [(each.method, each.target, each.headers.get("content-type", "")) for each in api.asked]
            one = "/prefix/api/v1/namespaces/ns/configmaps/a"
            assert asked == [
                ("GET", one, ""),
                ("GET", "/prefix/api/v1/namespaces/ns", ""),
                ("POST", "/prefix/api/v1/namespaces/ns/configmaps", "application/json"),
                ("POST", "/prefix/api/v1/namespaces/ns/serviceaccounts/app/token", "application/json"),
                ("POST", "/prefix/apis/authentication.k8s.io/v1/tokenreviews", "application/json"),
                ("PUT", "/prefix/apis/apps/v1/namespaces/ns/deployments/a/status", "application/json"),
                ("PATCH", one, "application/merge-patch+json"),
                ("PATCH", one, "application/json-patch+json"),
                ("PATCH", f"{one}?fieldManager=wigwag&force=true", "application/apply-patch+yaml"),
                ("DELETE", one, ""),
                ("DELETE", one, "application/json"),
            ]
            assert json.loads(api.asked[2].body) == MAP
            assert all(each.headers["user-agent"] == f"wigwag/{__version__}" for each in api.asked)
            assert all(each.headers["authorization"] == "Bearer t" for each in api.asked)

    run(main)


def test_names_cannot_lead_elsewhere() -> None:
    client = kube("http://127.0.0.1:1")
    for name in ("../secrets", "a/b", "a?watch=1", "", "a b", "%2e", "a\n"):
        with pytest.raises(UsageError):
            CONFIG_MAP.path("ns", name or " ")
    with pytest.raises(UsageError, match="the object has no"):
        asyncio.run(client.replace(CONFIG_MAP, {"metadata": {}}))
    with pytest.raises(UsageError, match="are cluster-scoped"):
        NAMESPACE.path("ns")
    with pytest.raises(UsageError, match="is not a kind"):
        Kind("", "v1", "Pods")


def test_a_list_is_read_in_pages_or_if_they_grow_old_in_one_piece() -> None:
    async def main() -> None:
        pages = listing(5, obj("a", 1), token="t"), listing(5, obj("b", 2))
        async with cluster(*pages) as api:
            found = await api.kube().list(CONFIG_MAP, "ns", labels="a=b")
            assert ([each["metadata"]["name"] for each in found.items], found.version) == (["a", "b"], "5")
            assert api.queries == [
                {"labelSelector": "a=b", "limit": "500"},
                {"labelSelector": "a=b", "limit": "500", "continue": "t"},
            ]
        async with cluster(pages[0], refusal(410, "Expired"), listing(9, obj("c", 3))) as api:
            found = await api.kube().list(CONFIG_MAP, "ns")
            assert ([each["metadata"]["name"] for each in found.items], found.version) == (["c"], "9")
            assert api.queries[2] == {}

    run(main)


def test_a_refusal_is_an_error_with_all_that_the_server_said() -> None:
    async def main() -> None:
        details = {"name": "a", "kind": "configmaps", "causes": [{"reason": "R", "message": "M", "field": "data"}]}
        said = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "changed", "details": details}
        async with cluster(whole(json.dumps(said).encode(), "409 Conflict")) as api:
            with pytest.raises(ApiError) as caught:
                await api.kube().replace(CONFIG_MAP, MAP)
        error = caught.value
        assert str(error) == ("PUT /api/v1/namespaces/ns/configmaps/a: the API server answered 409 Conflict: changed")
        assert (error.status.code, error.status.reason, error.status.about.name) == (409, "Conflict", "a")
        assert error.status.causes[0].field == "data"

    run(main)


def test_an_answer_that_we_have_already_is_not_sent_again() -> None:
    async def main() -> None:
        async with cluster(whole(b"", "304 Not Modified")) as api:
            client = api.kube()
            response = await client.fetch(ApiRequest("/api", etag='"7"'))
            assert (response.status, response.body) == (304, b"")
            assert api.asked[0].headers["if-none-match"] == '"7"'
            with pytest.raises(ApiError, match="304"):
                await client.fetch(ApiRequest("/api"))
            assert "if-none-match" not in api.asked[1].headers

    run(main)


def test_whatever_a_server_says_becomes_a_status() -> None:
    assert str(read_status(b"[1]", 500)) == "500 Internal Server Error"
    assert str(read_status(b'{"message": 5}', 599)) == "599"
    assert len(read_status(json.dumps({"message": "x" * 5000, "code": 400}).encode()).message) == 1000
    assert read_status(b'{"reason":"Expired"}').expired
    ahead = {"code": 504, "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}
    assert read_status(json.dumps(ahead).encode()).ahead


def test_reads_wait_for_a_busy_server_and_writes_do_not() -> None:
    clock = FakeClock()
    busy = refusal(429, "TooManyRequests", Retry_After="3")

    async def main() -> None:
        async with cluster(busy, refusal(503), OK) as api, asyncio.TaskGroup() as group:
            task = group.create_task(api.kube(clock=clock).get(CONFIG_MAP, "a", "ns"))
            paused = []
            while not task.done():
                await asyncio.sleep(0.001)
                for pause in clock.pending():
                    paused.append(round(pause, 3))
                    await clock.advance(pause)
            assert (await task)["kind"] == "ConfigMap"
            assert paused == [3.3, 0.6]
        async with cluster(busy) as api:
            with pytest.raises(ApiError) as caught:
                await api.kube(clock=clock).create(CONFIG_MAP, MAP)
            assert (caught.value.status.code, caught.value.retry_after, len(api.asked)) == (429, 3.0, 1)

    run(main)


def test_apply_is_retried_like_a_read_because_twice_is_the_same_as_once() -> None:
    async def main() -> None:
        async with cluster(refusal(503), OK) as api:
            client = api.kube(random=lambda: 0.0)
            await client.apply(CONFIG_MAP, MAP, "wigwag", force=True, query=DRY_RUN + STRICT)
            assert [asked.method for asked in api.asked] == ["PATCH", "PATCH"]
            wanted = {"fieldManager": "wigwag", "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
            assert api.queries == [wanted, wanted]

    run(main)


def test_an_error_says_what_it_is() -> None:
    for code, reason, name in [
        (409, "Conflict", "conflict"),
        (409, "AlreadyExists", "already_exists"),
        (403, "Forbidden", "forbidden"),
        (404, "NotFound", "not_found"),
        (429, "TooManyRequests", "busy"),
        (503, "ServiceUnavailable", "busy"),
    ]:
        error = ApiError("GET /x", read_status(b"", code) if reason != "AlreadyExists" else ApiStatus(code, reason))
        names = ("conflict", "already_exists", "forbidden", "not_found", "busy")
        assert [each for each in names if getattr(error, each)] == [name]


def test_a_read_gives_up_on_a_server_that_stays_away_or_asks_for_too_much() -> None:
    async def main() -> None:
        async with cluster(refusal(503)) as api:
            with pytest.raises(ApiError):
                await api.kube(random=lambda: 0.0).get(CONFIG_MAP, "a", "ns")
            assert len(api.asked) == 4
        with pytest.raises(UnreachableError):
            await kube(api.url, random=lambda: 0.0).get(CONFIG_MAP, "a", "ns")
        async with cluster(refusal(429, Retry_After="60")) as api:
            with pytest.raises(ApiError):
                await api.kube().get(CONFIG_MAP, "a", "ns")
            assert len(api.asked) == 1

    run(main)


def test_an_answer_that_is_no_object_is_an_error() -> None:
    async def main() -> None:
        async with cluster(whole(b"<html>")) as api:
            with pytest.raises(FetchError, match="the response is not a JSON object"):
                await api.kube().get(CONFIG_MAP, "a", "ns")

    run(main)


def test_a_redirect_is_not_followed_as_it_would_get_our_token() -> None:
    async def main() -> None:
        async with cluster(refusal(302, "Found", Location="http://127.0.0.1:1/")) as api:
            with pytest.raises(ApiError) as caught:
                await api.kube(KubeUser("t")).get(CONFIG_MAP, "a", "ns")
            assert (caught.value.status.code, len(api.asked)) == (302, 1)

    run(main)


# credentials


def test_a_token_that_is_refused_is_read_once_more(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")

    async def rotate(api: Api) -> bool:
        path.write_text("new")
        assert api.server is not None
        await api.server.write(refusal(401, "Unauthorized"))
        return True

    async def main() -> None:
        async with cluster(rotate, OK) as api:
            client = api.kube(KubeUser(token_file=str(path)))
            await client.get(CONFIG_MAP, "a", "ns")
            assert [each.headers["authorization"] for each in api.asked] == ["Bearer old", "Bearer new"]

    run(main)


def test_a_token_that_nobody_replaced_is_not_shown_twice(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")

    async def main() -> None:
        async with cluster(refusal(401, "Unauthorized")) as api:
            client = api.kube(KubeUser(token_file=str(tmp_path / "token")))
            for times in (1, 2):
                with pytest.raises(ApiError) as caught:
                    await client.get(CONFIG_MAP, "a", "ns")
                assert (caught.value.status.code, len(api.asked)) == (401, times)

    run(main)


@pytest.mark.parametrize(("user", "times"), [(KubeUser("t"), 1), (KubeUser(plugin=Plugin("v", "x")), 2)])
def test_who_stays_unknown_is_told_so(user: KubeUser, times: int) -> None:
    runs = []

    async def plugin(*_given: Any) -> Credential:
        runs.append(1)
        return Credential(f"t{len(runs)}")

    async def main() -> None:
        async with cluster(refusal(401, "Unauthorized")) as api:
            with pytest.raises(ApiError) as caught:
                await api.kube(user, run=plugin).create(CONFIG_MAP, MAP)
            assert (caught.value.status.code, len(api.asked)) == (401, times)

    run(main)


# TLS


def asking(authority: Authority, *names: str) -> ssl.SSLContext:
    """A server's context that asks for a client certificate of the same authority."""
    context = authority.context(*names)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.path)
    return context


def pair(authority: Authority, name: str) -> tuple[str, str]:
    """A certificate and its key, as text."""
    text = authority.issue(name).read_text()
    key, mark, certificate = text.partition("-----BEGIN CERTIFICATE-----")
    return mark + certificate, key


@loops
@pytest.mark.parametrize("as_text", [True, False], ids=["text", "files"])
def test_a_client_certificate_is_shown(tmp_path: Path, loop: str, as_text: bool) -> None:
    authority = Authority(tmp_path)
    certificate, key = pair(authority, "me")
    for name, text in (("me.crt", certificate), ("me.key", key)):
        (tmp_path / name).write_text(text)
    if as_text:
        data = authority.path.read_text()
        trust = ClusterTrust(authority_data=data, certificate_data=certificate, key_data=key)
    else:
        trust = ClusterTrust(str(authority.path), str(tmp_path / "me.crt"), str(tmp_path / "me.key"))

    async def main() -> None:
        async with cluster(OK, context=asking(authority, "api")) as api:
            client = api.kube(trust=trust)
            assert (await client.get(CONFIG_MAP, "a", "ns"))["kind"] == "ConfigMap"
            with pytest.raises(FetchError):
                await api.kube(trust=ClusterTrust(str(authority.path)), random=lambda: 0.0).create(CONFIG_MAP, MAP)

    run(main, loop)


@loops
def test_a_server_is_believed_only_if_its_certificate_is_for_it(tmp_path: Path, loop: str) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("kubernetes"))

    async def main() -> None:
        async with cluster(OK, context=context) as api:
            by_name = api.url.replace("127.0.0.1", "localhost")
            with pytest.raises(UntrustedError):
                await api.kube(trust=ClusterTrust(str(other.path))).get(CONFIG_MAP, "a", "ns")
            with pytest.raises(UntrustedError):
                await api.kube(url=by_name, trust=ClusterTrust(str(authority.path))).get(CONFIG_MAP, "a", "ns")
            for trust in (ClusterTrust(str(authority.path), server_name="kubernetes"), ClusterTrust(insecure=True)):
                client = api.kube(url=by_name, trust=trust)
                await client.get(CONFIG_MAP, "a", "ns")

    run(main, loop)


def test_an_authority_that_is_replaced_is_believed_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    current = tmp_path / "ca.crt"
    current.write_bytes(old.path.read_bytes())

    async def main() -> None:
        async with cluster(OK, context=new.context("api")) as api:
            client = api.kube(trust=ClusterTrust(str(current)))
            with pytest.raises(UntrustedError):
                await client.get(CONFIG_MAP, "a", "ns")
            current.unlink()
            current.write_bytes(new.path.read_bytes())
            await client.get(CONFIG_MAP, "a", "ns")

    run(main)


def test_the_certificates_of_a_plugin_are_shown_and_replaced_when_they_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pairs = [pair(authority, "old"), pair(authority, "new")]

    async def plugin(*_given: Any) -> Credential:
        return Credential("", *pairs.pop(0))

    async def main() -> None:
        shown: list[str] = []
        async with cluster(judge(shown), context=asking(authority, "api")) as api:
            client = api.kube(KubeUser(plugin=Plugin("v", "x")), ClusterTrust(str(authority.path)), run=plugin)
            for _ in range(2):
                await client.get(CONFIG_MAP, "a", "ns")
            assert shown == ["old", "new", "new"]

    run(main)


def test_a_certificate_that_is_replaced_is_shown_by_a_new_connection(tmp_path: Path) -> None:
    authority, mine = Authority(tmp_path), tmp_path / "mine.pem"
    mine.write_bytes(authority.issue("old").read_bytes())

    async def main() -> None:
        shown: list[str] = []
        async with cluster(judge(shown), context=asking(authority, "api")) as api:
            client = api.kube(trust=ClusterTrust(str(authority.path), str(mine)))
            with pytest.raises(ApiError):
                await client.get(CONFIG_MAP, "a", "ns")
            mine.unlink()
            mine.write_bytes(authority.issue("new").read_bytes())
            await client.get(CONFIG_MAP, "a", "ns")
            assert shown == ["old", "old", "old", "new"]

    run(main)


def judge(shown: list[str]) -> Callable[[Api], Awaitable[bool]]:
    """Note whose certificate is shown, and know only the one called `new`."""

    async def behave(api: Api) -> bool:
        assert api.server is not None
        shown.append(api.server.ends[1].get_extra_info("peercert")["subject"][0][0][1])
        await api.server.write(OK if shown[-1] == "new" else refusal(401, "Unauthorized"))
        return True

    return behave


def test_the_proxy_of_a_kubeconfig_is_used_even_for_this_machine() -> None:
    async def main() -> None:
        async def refuse(_asked: Any, _server: Server) -> bytes:
            return whole(b"", "403 Forbidden")

        async with serving(refuse) as proxy:
            client = kube("https://127.0.0.1:1", proxy=f"http://127.0.0.1:{proxy.port}", random=lambda: 0.0)
            with pytest.raises(UnreachableError, match="answered 403 to CONNECT"):
                await client.get(CONFIG_MAP, "a", "ns")
            assert proxy.asked[0].method == "CONNECT"

    run(main)


def test_the_proxy_of_the_environment_is_used_unless_the_server_is_excepted() -> None:
    async def main() -> None:
        async def refuse(_asked: Any, _server: Server) -> bytes:
            return whole(b"", "403 Forbidden")

        async with serving(refuse) as proxy, cluster(OK) as api:
            environment = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}", "NO_PROXY": "api.example,127.0.0.1"}
            client = api.kube(url="https://flags.example:6443", environment=environment, random=lambda: 0.0)
            with pytest.raises(UnreachableError, match="answered 403 to CONNECT"):
                await client.create(CONFIG_MAP, MAP)
            assert [each.target for each in proxy.asked] == ["flags.example:6443"]
            through = {**environment, "HTTP_PROXY": environment["HTTPS_PROXY"]}
            await api.kube(environment=through).get(CONFIG_MAP, "a", "ns")
            assert (len(api.asked), len(proxy.asked)) == (1, 1)

    run(main)
