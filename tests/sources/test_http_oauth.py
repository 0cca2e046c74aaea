"""Tokens for an http source: when they are asked for, with what, and what is told when there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from bench.process import replace
from tests.pipeline.fakes import run
from tests.sources.faulty import FLAGS, Asked, Server, answer, redirect, serving, watching, whole
from wigwag.errors import UsageError
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.document import Document
from wigwag.sources.fields import OAuthFields
from wigwag.sources.remote.http import HttpWatch


def grant(**more: Any) -> Any:
    """Hand out t1, t2, …"""

    async def behave(_asked: Asked, server: Server) -> bytes:
        token = {"access_token": f"t{len(server.asked)}", "token_type": "bearer", **more}
        return whole(msgspec.json.encode(token), Content_Type="application/json")

    return behave


def tokens(source: Server) -> list[str]:
    return [asked.headers["authorization"] for asked in source.asked]


def test_a_token_is_asked_for_with_the_credentials_in_the_body_and_used_until_shortly_before_its_end() -> None:
    async def main() -> None:
        async with serving(grant(expires_in=60)) as login, serving(answer()) as source:
            oauth = OAuthFields("me", "s&cret", login.url)
            async with watching(source.url, oauth=oauth, auth_header="Basic x", interval=10.0) as watched:
                await watched.next()
                began = watched.clock.now()
                while watched.clock.now() < began + 55:
                    assert await watched.on() is UNCHANGED
            asked = login.asked[0]
            assert asked.method == "POST"
            assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
            expected = {"grant_type": ["client_credentials"], "client_id": ["me"], "client_secret": ["s&cret"]}
            assert parse_qs(asked.body.decode()) == expected
            assert len(login.asked) == 2
            assert set(tokens(source)) == {"Bearer t1", "Bearer t2"}
            assert tokens(source)[:5] == ["Bearer t1"] * 5

    run(main)


def test_a_token_without_an_end_is_used_until_it_is_refused_and_then_replaced_at_once() -> None:
    async def main() -> None:
        async def picky(asked: Asked, _server: Server) -> bytes:
            good = asked.headers["authorization"] == "Bearer t2"
            return whole() if good else whole(b"", "401 Unauthorized")

        async with (
            serving(grant()) as login,
            serving(answer()) as source,
            watching(source.url, oauth=OAuthFields("me", "secret", login.url)) as watched,
        ):
            await watched.next()
            source.behaviour = picky
            assert await watched.on() is UNCHANGED
            assert tokens(source) == ["Bearer t1", "Bearer t1", "Bearer t2"]

    run(main)


def test_a_source_that_refuses_every_token_is_asked_twice_at_a_time_and_no_more() -> None:
    async def main() -> None:
        async with (
            serving(grant()) as login,
            serving(answer(b"", "401 Unauthorized")) as source,
            watching(source.url, oauth=OAuthFields("me", "secret", login.url)) as watched,
        ):
            for trouble in (await watched.next(), await watched.on(), await watched.on()):
                assert "answered 401" in trouble.reason
            assert len(source.asked) == 6
            assert len(login.asked) == 4  # the second token of a pair is tried first the next time

    run(main)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (answer(b'{"error":"invalid_client"}', "401 No"), "the server answered 401 (invalid_client); check clientID"),
        (answer(b'{"error":"secret hunter2 is wrong"}', "400 Bad"), "the server answered 400; check clientID"),
        (answer(b"hunter2", "500 Oops"), "the server answered 500; check clientID"),
        (answer(b"<html>"), "the server answered without a token"),
        (answer(b'{"access_token": 7}'), "the server answered without a token"),
        (answer(b'{"access_token": "a\\r\\nX: y"}'), "the token cannot be sent in a header"),
        (redirect("http://localhost:9/"), "the server answered 302"),
    ],
)
def test_no_token_is_trouble_that_names_the_server_and_no_secret(behaviour: Any, said: str) -> None:
    async def main() -> None:
        async with serving(behaviour) as login, serving(answer()) as source:
            url = login.url + "?key=hunter2"
            async with watching(source.url, oauth=OAuthFields("me", "hunter2", url)) as watched:
                reason = (await watched.next()).reason
                assert said in reason
                assert f"http://localhost:{login.port}/flags?key=***" in reason
                assert "hunter2" not in reason
                assert source.asked == []
                login.behaviour = grant()
                assert await watched.on() == Document(FLAGS)

    run(main)


def test_credentials_from_a_folder_are_read_again_but_not_too_often(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "client-id").write_text("me\n")
        (tmp_path / "client-secret").write_text("old\n")
        async with serving(grant()) as login, serving(answer()) as source:
            oauth = OAuthFields("ignored", "ignored", login.url, str(tmp_path), reload_delay=30.0)
            async with watching(source.url, oauth=oauth, interval=10.0) as watched:
                await watched.next()
                (tmp_path / "client-secret").write_text("new\n")
                began = watched.clock.now()
                while watched.clock.now() < began + 28:
                    await watched.on()
                while watched.clock.now() < began + 45:
                    await watched.on()
            bodies = [parse_qs(asked.body.decode()) for asked in login.asked]
            assert [(body["client_id"], body["client_secret"]) for body in bodies] == [
                (["me"], ["old"]),
                (["me"], ["new"]),
            ]
            used = tokens(source)
            assert used.count("Bearer t1") in (3, 4)  # the change was not seen before its time
            assert used[-1] == "Bearer t2"

    run(main)


def test_a_folder_without_its_files_is_trouble_until_they_are_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(grant()) as login, serving(answer()) as source:
            oauth = OAuthFields(token_url=login.url, folder=str(tmp_path))
            async with watching(source.url, oauth=oauth) as watched:
                assert await watched.next() == Unavailable(
                    f"UsageError: {tmp_path}/client-id: No such file or directory; "
                    "the folder of oauth needs the files client-id and client-secret"
                )
                (tmp_path / "client-id").write_text("me")
                (tmp_path / "client-secret").write_text("")
                assert "client-secret: is empty" in (await watched.on()).reason
                (tmp_path / "client-secret").write_text("secret")
                assert await watched.on() == Document(FLAGS)

    run(main)


def test_a_token_url_that_cannot_work_is_refused_when_it_is_configured() -> None:
    with pytest.raises(UsageError, match="the URL is not of the scheme"):
        HttpWatch("https://flags.example/", oauth=OAuthFields("me", "s", "login.example"))


def test_the_token_in_a_file_is_read_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"

    async def main() -> None:
        async with serving(answer()) as server, watching(server.url, token_file=str(token)) as watched:
            assert f"{token}: No such file" in (await watched.next()).reason
            assert server.asked == []
            replace(token, "one")
            assert await watched.on() == Document(FLAGS)
            replace(token, "two")
            assert await watched.on() is UNCHANGED
            assert tokens(server) == ["Bearer one", "Bearer two"]

    run(main)


def test_a_token_file_that_was_replaced_while_the_token_was_refused_is_tried_at_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")

    async def picky(asked: Asked, _server: Server) -> bytes:
        if asked.headers["authorization"] == "Bearer two":
            return whole()
        replace(token, "two")
        return whole(b"", "401 Unauthorized")

    async def main() -> None:
        async with serving(picky) as server, watching(server.url, token_file=str(token)) as watched:
            assert await watched.next() == Document(FLAGS)
            assert tokens(server) == ["Bearer one", "Bearer two"]

    run(main)
