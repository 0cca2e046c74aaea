"""Informers: which keys a change of a watch concerns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.pipeline.fakes import FakeClock, run, settle
from wigwag.kube.control.informer import (
    Index,
    Informer,
    changed_keys,
    label_key,
    only_objects,
    own_key,
    owner_key,
    reopened,
)
from wigwag.kube.kinds import CONFIG_MAP, DEPLOYMENT, NODE
from wigwag.kube.watch.objects import ChangeJournal, Objects
from wigwag.kube.watch.reflector import Item
from wigwag.pipeline.spec import UNCHANGED, Unavailable

Object = dict[str, Any]
OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "uid": "1"}


def made(name: str, content: str = "", **metadata: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "ns", **metadata}, "data": {"content": content}}


def objects(*values: Object) -> Objects[Object]:
    return Objects({("ns", value["metadata"]["name"]): value for value in values})


async def items(*given: Item[Object]) -> AsyncIterator[Item[Object]]:
    for item in given:
        yield item


def test_a_change_concerns_the_owner_before_and_after_it() -> None:
    other = {**OWNER, "name": "other"}
    before, after = objects(made("x", ownerReferences=[OWNER])), objects(made("x", ownerReferences=[other]))
    assert changed_keys(before, after, owner_key(DEPLOYMENT)) == {("ns", "shop"), ("ns", "other")}
    assert changed_keys(after, objects(), owner_key(DEPLOYMENT)) == {("ns", "other")}
    assert changed_keys(None, after, owner_key(DEPLOYMENT), own_key) == {("ns", "other"), ("ns", "x")}
    assert changed_keys(after, after, own_key) == set()


def test_owners_of_other_kinds_and_groups_do_not_count() -> None:
    foreign = [{**OWNER, "apiVersion": "example.org/v1"}, {**OWNER, "kind": "ReplicaSet"}]
    assert owner_key(DEPLOYMENT)(("ns", "x"), made("x", ownerReferences=foreign)) == []
    assert owner_key(DEPLOYMENT)(("ns", "x"), made("x")) == []
    assert owner_key(CONFIG_MAP)(("ns", "x"), made("x", ownerReferences=[{**OWNER, "apiVersion": "v1"}])) == []
    node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "2"}
    assert owner_key(NODE)(("ns", "x"), made("x", ownerReferences=[node])) == [("", "n1")]


def test_labels_name_an_object_here_or_in_another_namespace() -> None:
    concerns = label_key("name", "namespace")
    assert concerns(("ns", "x"), made("x", labels={"name": "a"})) == [("ns", "a")]
    assert concerns(("ns", "x"), made("x", labels={"name": "a", "namespace": "b"})) == [("b", "a")]
    assert concerns(("ns", "x"), made("x")) == []


def test_objects_come_without_status_items_which_go_elsewhere() -> None:
    async def main() -> None:
        trouble, one, statuses = Unavailable("away"), objects(made("x")), list[Unavailable | None]()
        read = [each async for each in only_objects(items(trouble, one, UNCHANGED, trouble), statuses.append)]
        assert read == [one]
        assert statuses == [trouble, None, None, trouble]

    run(main)


def test_an_informer_feeds_queues_and_holds_the_newest_objects_through_another_watch() -> None:
    async def main() -> None:
        informer, keys, owners = Informer[Object](), list[Any](), list[Any]()
        informer.feed(keys.append, own_key)
        informer.feed(owners.append, owner_key(DEPLOYMENT))
        assert informer.get(("ns", "x")) is None
        journal = ChangeJournal()
        first = Objects({("ns", "x"): made("x"), ("ns", "y"): made("y")}, journal)
        journal.add(("ns", "y"))
        second = Objects({("ns", "x"): made("x"), ("ns", "y"): made("y", "new", ownerReferences=[OWNER])}, journal)
        await informer.follow(items(first, second, Unavailable("away")))
        assert sorted(keys) == [("ns", "x"), ("ns", "y"), ("ns", "y")]
        assert owners == [("ns", "shop")]
        assert str(informer.trouble) == str(Unavailable("away"))
        keys.clear()
        await informer.follow(items(objects(made("x"))))
        assert (keys, informer.trouble) == ([("ns", "y")], None)
        assert owners == [("ns", "shop")] * 2
        assert (informer.get(("ns", "x")), informer.get(("ns", "y"))) == (made("x"), None)

    run(main)


def test_a_watch_that_fails_or_ends_is_opened_again_after_a_pause() -> None:
    async def main() -> None:
        clock, opened = FakeClock(), 0

        async def watch() -> AsyncIterator[Any]:
            nonlocal opened
            opened += 1
            yield UNCHANGED
            if opened == 1:
                raise OSError("cut")

        seen: list[Any] = []

        async def read() -> None:
            async for item in reopened(watch, clock, lambda: 1.0):
                seen.append(item)  # noqa: PERF401 - each as it comes

        async with asyncio.TaskGroup() as group:
            reader = group.create_task(read())
            await settle()
            assert seen == [UNCHANGED, Unavailable("OSError: cut")]
            await clock.advance(60.0)
            assert seen[2:4] == [UNCHANGED, Unavailable("the watch ended")]
            reader.cancel()

    run(main)


def test_an_index_follows_what_objects_say() -> None:
    informer = Informer[Object]()
    index = Index(informer, label_key("source"))
    one, two = made("x", labels={"source": "a"}), made("y", labels={"source": "a"})
    informer.put(objects(one, two))
    assert index[("ns", "a")] == {("ns", "x"), ("ns", "y")}
    informer.put(objects(made("x", labels={"source": "b"}), two))
    assert index[("ns", "a")] == {("ns", "y")}
    assert index[("ns", "b")] == {("ns", "x")}
    informer.put(objects())
    assert index[("ns", "a")] == frozenset()
    assert not list(index), "nothing is left of keys without objects"


def test_objects_that_were_read_are_waited_for() -> None:
    async def main() -> None:
        informer = Informer[Object]()
        waiting = asyncio.ensure_future(informer.synced())
        await settle()
        assert not waiting.done()
        informer.put(objects())
        await waiting

    run(main)
