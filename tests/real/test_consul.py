"""Flags and facts from a real Consul: every change arrives, and whatever happens to Consul, nothing is taken away."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process import AgentProcess
from tests.real import programs
from tests.real.consul import Consul, ConsulCluster, ConsulServer
from tests.real.processes import until
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.keys import ConsulWatch, watch_consul
from wigwag.sources.consul.query import ConsulDeps
from wigwag.sources.consul.service import ServiceHealth, ServiceWatch, watch_service
from wigwag.sources.document import Document, Merged

NewConsul = Callable[..., ConsulServer]
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
ON = {**FLAG, "defaultVariant": "on"}
RESOLVE = "/flagd.evaluation.v1.Service/ResolveBoolean"
TIMEOUT = 100.0
pytestmark = pytest.mark.timeout(240)  # an election of a leader takes its time
PAGE = Path(__file__).parent.parent.parent / "docs" / "guides" / "consul.md"


def host(consul: Consul) -> str:
    return consul.address.removeprefix("http://")


class Stream:
    """What a watcher yields, in order."""

    def __init__(self, items: AsyncIterator[Any]) -> None:
        self._items = items
        self.seen: list[Any] = []

    async def next(self) -> Any:
        self.seen.append(await anext(self._items))
        return self.seen[-1]

    async def until(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Read until something is wanted; return all that was read on the way."""
        passed: list[Any] = []
        while not passed or not wanted(passed[-1]):
            passed.append(await self.next())
        return passed


@asynccontextmanager
async def watching(watch: Any, spec: Any) -> AsyncIterator[Stream]:
    async with asyncio.timeout(TIMEOUT), closing(watch(spec, ConsulDeps(environment={}))) as stream:
        yield Stream(aiter(stream))


def trouble(*words: str) -> Callable[[Any], bool]:
    return lambda item: isinstance(item, Unavailable) and all(word in item.reason for word in words)


def is_document(content: bytes) -> Callable[[Any], bool]:
    return lambda item: item == Document(content, "json")


def test_a_key_that_is_written_changed_deleted_and_written_again(consul: Consul, prefix: str) -> None:
    key = f"{prefix}/shop.json"

    async def main() -> None:
        async with watching(watch_consul, ConsulWatch(ConsulAccess(host(consul)), key)) as stream:
            assert trouble("there is no such key")(await stream.next())
            consul.put(key, "1")
            await stream.until(is_document(b"1"))
            consul.put(key, "2")
            assert await stream.next() == Document(b"2", "json")
            consul.delete(key)
            assert trouble("there is no such key")(await stream.next())
            consul.put(key, "3")
            await stream.until(is_document(b"3"))

    asyncio.run(main())


def test_a_question_that_waits_in_vain_says_that_nothing_has_changed(consul: Consul, prefix: str) -> None:
    key = f"{prefix}/shop.json"
    consul.put(key, "1")

    async def main() -> None:
        async with watching(watch_consul, ConsulWatch(ConsulAccess(host(consul), wait=0.05), key)) as stream:
            assert await stream.next() == Document(b"1", "json")
            assert [await stream.next(), await stream.next()] == [UNCHANGED, UNCHANGED]

    asyncio.run(main())


def test_all_keys_below_a_prefix_are_one_document(consul: Consul, prefix: str) -> None:
    def named(document: Any) -> list[str]:
        return list(json.loads(document.content)["flags"])

    def written(*names: str) -> str:
        return json.dumps({"flags": dict.fromkeys(names, FLAG)})

    async def main() -> None:
        consul.put(f"{prefix}/b.json", written("b"))
        consul.put(f"{prefix}/a/x.yaml", "flags: {x: {variants: {on: 1}}}")
        async with watching(watch_consul, ConsulWatch(ConsulAccess(host(consul)), f"{prefix}/")) as stream:
            assert named(await stream.next()) == ["x", "b"]
            consul.put(f"{prefix}/c.json", written("c"))
            assert named(await stream.next()) == ["x", "b", "c"]
            consul.put(f"{prefix}/d.json", "{")
            assert trouble("d.json", "not valid JSON")(await stream.next())
            consul.delete(f"{prefix}/b.json")
            assert named(await stream.next()) == ["x", "c"]
            assert trouble("d.json")(await stream.next())

    asyncio.run(main())


def test_a_restored_snapshot_is_noticed_though_its_index_lies_behind(private_consul: NewConsul) -> None:
    consul = private_consul().consul
    consul.put("flags", "first")
    saved = consul.save()

    async def main() -> None:
        async with watching(watch_consul, ConsulWatch(ConsulAccess(host(consul), wait=2.0), "flags")) as stream:
            assert await stream.next() == Document(b"first")
            for number in range(5):
                consul.put("flags", f"later {number}")
            await stream.until(lambda item: item == Document(b"later 4"))
            await asyncio.to_thread(consul.restore, saved)
            await stream.until(lambda item: item == Document(b"first"))
            consul.put("flags", "again")
            await stream.until(lambda item: item == Document(b"again"))

    asyncio.run(main())


def test_a_consul_that_is_killed_and_comes_back_empty_takes_nothing_away(private_consul: NewConsul) -> None:
    server = private_consul()
    consul = server.consul
    for number in range(20):
        consul.put("flags", str(number))

    async def main() -> None:
        async with watching(watch_consul, ConsulWatch(ConsulAccess(host(consul)), "flags")) as stream:
            await stream.next()
            server.server.kill()
            await stream.until(trouble("no connection"))
            server.server.start()
            passed = await stream.until(trouble("there is no such key"))
            assert all(isinstance(item, Unavailable) for item in passed)
            consul.put("flags", "new")
            assert (await stream.until(lambda item: not isinstance(item, Unavailable)))[-1] == Document(b"new")

    asyncio.run(main())


def test_a_consul_that_hangs_is_found_out(private_consul: NewConsul) -> None:
    server = private_consul()
    server.consul.put("flags", "1")

    async def main() -> None:
        spec = ConsulWatch(ConsulAccess(host(server.consul), wait=0.5), "flags")
        async with watching(watch_consul, spec) as stream:
            assert await stream.next() == Document(b"1")
            server.server.pause()
            try:
                await stream.until(trouble("does not answer in time"))
            finally:
                server.server.resume()
            await stream.until(lambda item: item is UNCHANGED)

    asyncio.run(main())


def test_without_a_leader_what_was_there_stays_and_a_new_leader_is_noticed(consul_cluster: ConsulCluster) -> None:
    first, second = consul_cluster.servers
    first.consul.put("flags", "1")
    until(lambda: second.consul.get("flags") == b"1", "the write being everywhere")

    async def main() -> None:
        async with watching(watch_consul, ConsulWatch(ConsulAccess(host(second.consul), wait=1.0), "flags")) as stream:
            assert await stream.next() == Document(b"1")
            first.server.kill()
            await stream.until(trouble("has no leader"))
            first.server.begin()
            passed = await stream.until(lambda item: item is UNCHANGED)
            assert not any(isinstance(item, Document) for item in passed)

    asyncio.run(main())


def test_a_token_that_is_revoked_is_told_and_another_one_in_its_file_is_taken(
    private_consul: NewConsul, tmp_path: Path
) -> None:
    consul = private_consul(acl=True).consul
    consul.put("flags/a.json", '{"flags": {}}')
    rules = 'key_prefix "flags/" { policy = "read" }'
    accessor, secret = consul.add_token(rules)
    path = tmp_path / "token"
    path.write_text(secret)

    async def main() -> None:
        access = ConsulAccess(host(consul), token_file=str(path), wait=0.5)
        async with watching(watch_consul, ConsulWatch(access, "flags/")) as stream:
            assert isinstance(await stream.next(), Merged)
            consul.revoke(accessor)
            passed = await stream.until(trouble("answered 403", "the token"))
            path.write_text(consul.add_token(rules)[1] + "\n")
            passed += await stream.until(lambda item: item is UNCHANGED)
            assert secret not in repr(passed)

    asyncio.run(main())


def test_a_token_that_may_see_some_keys_only_is_told_so(private_consul: NewConsul) -> None:
    consul = private_consul(acl=True).consul
    consul.put("flags/a", '{"flags": {}}')
    consul.put("flags/b", '{"flags": {}}')
    _, secret = consul.add_token('key "flags/a" { policy = "read" }')

    async def main() -> None:
        access = ConsulAccess(host(consul), token=secret)
        async with watching(watch_consul, ConsulWatch(access, "flags/")) as stream:
            assert trouble("may not read all of it")(await stream.next())
        async with watching(watch_consul, ConsulWatch(access, "flags/b")) as stream:
            assert trouble("the token may not read this")(await stream.next())

    asyncio.run(main())


def test_a_datacenter_or_a_namespace_that_is_not_there_is_told(consul: Consul, prefix: str) -> None:
    async def main() -> None:
        for access, said in (
            (ConsulAccess(host(consul), datacenter="mars"), "cannot reach that datacenter"),
            (ConsulAccess(host(consul), namespace="team"), "has no namespaces"),
        ):
            async with watching(watch_consul, ConsulWatch(access, prefix)) as stream:
                assert trouble(said)(await stream.next())

    asyncio.run(main())


def register(consul: Consul, name: str, number: int, status: str, *tags: str) -> None:
    check = {"TTL": "10m", "Status": status}
    told = {"ID": f"{name}-{number}", "Name": name, "Tags": tags, "Check": check}
    consul.rest.call("PUT", "/v1/agent/service/register", told)


def deregister(consul: Consul, name: str, number: int) -> None:
    consul.rest.call("PUT", f"/v1/agent/service/deregister/{name}-{number}")


def test_the_health_of_a_service_is_followed_to_its_last_instance(consul: Consul, prefix: str) -> None:
    async def main() -> None:
        async with watching(watch_service, ServiceWatch(ConsulAccess(host(consul)), prefix)) as stream:
            assert await stream.next() == ServiceHealth()
            register(consul, prefix, 1, "passing", "v1")
            await stream.until(lambda item: item == ServiceHealth(1, tags=("v1",)))
            register(consul, prefix, 2, "critical", "v2")
            await stream.until(lambda item: item == ServiceHealth(1, critical=1, tags=("v1", "v2")))
            for number in (1, 2):
                deregister(consul, prefix, number)
            await stream.until(lambda item: item == ServiceHealth())

    asyncio.run(main())


def test_a_service_that_may_not_be_seen_is_not_one_without_instances(private_consul: NewConsul) -> None:
    consul = private_consul(acl=True).consul
    register(consul, "web", 1, "passing")
    _, secret = consul.add_token('key_prefix "" { policy = "read" }')

    async def main() -> None:
        access = ConsulAccess(host(consul), token=secret, wait=0.2)
        async with watching(watch_service, ServiceWatch(access, "web")) as stream:
            for _ in range(3):
                assert trouble("may not read all of it")(await stream.next())

    asyncio.run(main())


# the agent


def value(agent: AgentProcess, key: str = "x") -> Any:
    body = agent.fetch("evaluation", RESOLVE, {"flagKey": key}, content_type="application/json")[1]
    return json.loads(body).get("value")


def source(agent: AgentProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(agent.fetch("management", "/debug/sources")[1])[0]
    return found


def test_an_agent_follows_a_key_and_outlives_consul(private_consul: NewConsul) -> None:
    server = private_consul()
    key = "flags/shop.json"
    server.consul.put(key, json.dumps({"flags": {"x": FLAG}}))
    with AgentProcess(f"--uri=consul://{host(server.consul)}/{key}") as agent:
        assert value(agent) is False
        server.consul.put(key, json.dumps({"flags": {"x": ON}}))
        until(lambda: value(agent) is True, "the change being served")
        server.server.kill()
        until(lambda: source(agent)["state"] == "failing", "the failure being noticed")
        before = source(agent)["ageSeconds"]
        until(lambda: source(agent)["ageSeconds"] > before, "the age growing")
        assert value(agent) is True
        assert agent.fetch("management", "/readyz")[0] == 200
        server.server.start()
        until(lambda: "there is no such key" in (source(agent)["error"] or ""), "Consul being empty")
        assert value(agent) is True
        server.consul.put(key, json.dumps({"flags": {"x": FLAG}}))
        until(lambda: value(agent) is False, "the recovery")
        assert source(agent)["state"] == "live"


@pytest.mark.parametrize("form", ["{service}", "consul://{host}/{service}"])
def test_an_agent_knows_how_a_service_is_doing(
    consul: Consul, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("CONSUL_HTTP_ADDR", host(consul))
    rule = {"if": [{">=": [{"var": f"consul.{prefix}.passing"}, 2]}, "on"]}
    (tmp_path / "f.json").write_text(json.dumps({"flags": {"x": {**FLAG, "targeting": rule}}}))
    register(consul, prefix, 1, "passing")
    service = form.format(host=host(consul), service=prefix)
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}", f"--context-from-consul={service}") as agent:
        assert value(agent) is False
        register(consul, prefix, 2, "passing")
        until(lambda: value(agent) is True, "the second instance being counted")
        deregister(consul, prefix, 2)
        until(lambda: value(agent) is False, "the second instance being gone")
    deregister(consul, prefix, 1)


def test_the_examples_of_the_page_work(
    private_consul: NewConsul, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.read_text()
    document, commands, rules = (
        re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[0] for language in ("json", "sh", "hcl")
    )
    consul = private_consul(acl=True).consul
    monkeypatch.setenv("CONSUL_HTTP_ADDR", host(consul))
    (tmp_path / "shop.json").write_text(document)
    put, start = (line.split() for line in commands.splitlines())
    given = {**os.environ, "CONSUL_HTTP_TOKEN": consul.token}
    subprocess.run([programs.consul(), *put[1:]], cwd=tmp_path, env=given, check=True, capture_output=True)
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", consul.add_token(rules)[1])
    options = [word.replace("127.0.0.1:8500", host(consul)) for word in start[2:]]
    with AgentProcess(*options) as agent:
        assert value(agent, "new-checkout") is False
        for number in (1, 2):
            register(consul, "payment", number, "passing")
        until(lambda: value(agent, "new-checkout") is True, "the service being well")
