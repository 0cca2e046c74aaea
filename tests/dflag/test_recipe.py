"""The recipe that opens docs/guides/dflag.md, as a server runs it: the lifespan, the service, and the mounted page."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Self

import pytest

from tests.dflag.kubelet import Volume
from tests.dflag.page.test_asgi import http
from tests.pipeline.fakes import run

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "guides" / "dflag.md"


def recipe(directory: Path) -> dict[str, Any]:
    """Run the first example of the document, with another directory."""
    code = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    assert code.count('"/etc/shop"') == 1
    names: dict[str, Any] = {}
    exec(compile(code.replace("/etc/shop", str(directory)), str(DOCUMENT), "exec"), names)
    return names


class Serving:
    """An ASGI server, as far as a test needs one."""

    def __init__(self, app: Any) -> None:
        self._app, self._events = app, asyncio.Queue[dict[str, Any]]()

    async def __aenter__(self) -> Self:
        self._messages = asyncio.Queue[dict[str, Any]]()
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self._tasks.create_task(self._app(scope, self._messages.get, self._events.put))
        await self._say("startup")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._say("shutdown")
        await self._tasks.__aexit__(None, None, None)

    async def _say(self, what: str) -> None:
        await self._messages.put({"type": f"lifespan.{what}"})
        assert (await self._events.get())["type"] == f"lifespan.{what}.complete"

    async def get(self, path: str) -> Any:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(http("GET", path), receive, send)
        assert sent[0]["status"] == 200
        return json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_the_recipe_follows_the_configmap_reads_the_environment_and_shows_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_RATE", "7")
    volume = Volume(tmp_path / "shop", {})
    names = recipe(tmp_path / "shop")
    rate = names["rate"]

    async def main() -> None:
        async with Serving(names["app"]) as server:
            assert await server.get("/") == {"rate": 7}
            volume.write({"rate": "20"})
            assert await rate.wait_for(lambda value: value == 20) == 20
            assert await server.get("/") == {"rate": 20}
            page = await server.get("/flags/")
            assert page["updater"]["running"]
            assert [flag["origin"] for flag in page["flags"] if flag["name"] == "rate"] == ["ConfigMap"]
        assert not names["flags"].updater.running

    run(main)
