"""Rights: Roles and RoleBindings come and go with uses; the ClusterRoleBinding of the original."""

from __future__ import annotations

import pytest

from tests.operator.controllers.world import Object, World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.control.apply import MOST_PRUNED
from wigwag.kube.kinds import CLUSTER_ROLE_BINDING, CONFIG_MAP, DEPLOYMENT, FEATURE_FLAG, ROLE, ROLE_BINDING
from wigwag.operator.controllers.access import NO_NAMESPACE
from wigwag.operator.names import ALLOW_FROM, SERVICE_ACCOUNT, SYNC_BINDING, ObjectName, access_name
from wigwag.operator.reconcile.access import LABELS

ACCESS = access_name(ObjectName("team-a", "default"))
APPLIED = [f"apply {kind} team-a/{ACCESS}" for kind in ("Role", "RoleBinding")]


def world_with_a_reader() -> World:
    world = World()
    world.flag()
    world.source()
    world.workload()
    return world


def flags_of(world: World, namespace: str = "team-a") -> list[str]:
    names: list[str] = world.get(ROLE, ACCESS, namespace)["rules"][0]["resourceNames"]
    return names


def test_rights_come_with_a_use_follow_its_source_and_go_with_it() -> None:
    async def main() -> None:
        world = world_with_a_reader()
        async with world.running():
            assert (world.names(ROLE), flags_of(world)) == ([f"team-a/{ACCESS}"], ["shop"])
            assert await world.since("apply Role") == APPLIED
            world.source({"source": "other", "provider": "kubernetes"})
            assert await world.since("apply Role") == APPLIED
            assert flags_of(world) == ["other"]
            world.server.remove(DEPLOYMENT, ("team-a", "web"))
            deleted = await world.since("delete")
            assert deleted == [f"delete Role team-a/{ACCESS}", f"delete RoleBinding team-a/{ACCESS}"]

    run(main)


def test_what_was_left_by_an_earlier_leader_is_pruned_but_not_what_is_used() -> None:
    async def main() -> None:
        world = world_with_a_reader()
        async with world.running():
            pass
        world.server.objects[DEPLOYMENT].clear()
        async with world.running():
            assert (world.names(ROLE), world.names(ROLE_BINDING)) == ([], [])

    run(main)


def test_roles_that_somebody_forges_for_an_account_go_and_hold_up_nothing() -> None:
    async def main() -> None:
        world = world_with_a_reader()
        async with world.running():
            about = {"labels": LABELS, "annotations": {SERVICE_ACCOUNT: "team-a/default"}}
            await world.since()
            for number in range(3 * MOST_PRUNED):
                world.put(ROLE, f"forged-{number}", namespace="team-b", **about)
            world.source({"source": "other", "provider": "kubernetes"})
            await world.settle()
            asked = [each for each in world.server.asked if each.startswith(("apply", "delete"))]
            assert asked.index(APPLIED[0]) <= 2 * MOST_PRUNED, "between the others"
            assert world.names(ROLE) == [f"team-a/{ACCESS}"]
            assert flags_of(world) == ["other"]

    run(main)


def test_a_role_is_repaired_and_not_written_if_it_is_right() -> None:
    async def main() -> None:
        world = world_with_a_reader()
        async with world.running():
            role = world.get(ROLE, ACCESS)
            await world.since()
            world.server.put(ROLE, {**role, "rules": []})
            assert await world.since("apply") == [f"apply Role team-a/{ACCESS}"]
            assert flags_of(world) == ["shop"]
            world.server.remove(ROLE, ("team-a", ACCESS))
            assert await world.since("apply") == [f"apply Role team-a/{ACCESS}"]
            world.workload("another")  # of the same account
            assert await world.since("apply Role", "delete") == []

    run(main)


def test_a_namespace_that_is_missing_is_tried_again_and_holds_up_no_other() -> None:
    async def main() -> None:
        world = World(cross_namespace="allow")
        elsewhere = [{"source": f"{each}/shop", "provider": "kubernetes"} for each in ("nowhere", "team-b")]
        world.source(*elsewhere)
        world.workload()
        world.put(ROLE, "stale", labels={}, namespace="team-b")
        async with world.running():
            assert world.names(ROLE) == [f"team-b/{ACCESS}", "team-b/stale"]
            await world.since()
            world.server.namespaces.add("nowhere")
            await world.clock.advance(NO_NAMESPACE - 1)
            assert await world.since("apply") == []
            await world.clock.advance(2.0)
            assert f"nowhere/{ACCESS}" in world.names(ROLE)

    run(main)


def test_rights_are_pruned_although_others_cannot_be_given() -> None:
    async def main() -> None:
        world = World(cross_namespace="allow")
        world.source({"source": "team-b/shop", "provider": "kubernetes"})
        world.workload()
        async with world.running():
            world.server.refusals += [(f"apply Role team-a/{ACCESS}", refusal(403))] * 2
            world.source({"source": "shop", "provider": "kubernetes"})
            await world.settle()
            assert world.names(ROLE) == []
            await world.clock.advance(5.0)
            assert world.names(ROLE) == [f"team-a/{ACCESS}"]

    run(main)


def test_a_role_of_somebody_else_is_not_touched_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = world_with_a_reader()
        world.put(ROLE, ACCESS)
        async with world.running():
            await world.clock.advance(100.0)
            assert "rules" not in world.get(ROLE, ACCESS)
            world.server.remove(ROLE, ("team-a", ACCESS))
            await world.clock.advance(60.0)
            assert flags_of(world) == ["shop"]

    run(main)
    said = [each.getMessage() for each in caplog.records if "is not ours" in each.getMessage()]
    assert len(said) == 1
    assert "team-a/default: AccessError: namespace team-a: Role" in said[0]


def test_a_grant_that_is_withdrawn_ends_the_right_and_a_flag_that_is_new_owns_it() -> None:
    async def main() -> None:
        world = World()
        world.source({"source": "team-b/shop", "provider": "kubernetes"})
        world.workload()
        async with world.running():
            assert world.names(ROLE) == []
            world.flag(namespace="team-b", annotations={ALLOW_FROM: "team-a"})
            await world.settle()
            [owner] = world.get(ROLE, ACCESS, "team-b")["metadata"]["ownerReferences"]
            assert owner["uid"] == world.get(FEATURE_FLAG, "shop", "team-b")["metadata"]["uid"]
            world.flag(namespace="team-b")
            await world.settle()
            assert world.names(ROLE) == []

    run(main)


def binding(*subjects: Object) -> Object:
    return {"metadata": {"name": SYNC_BINDING}, "subjects": list(subjects)}


def test_with_the_switch_there_are_subjects_and_no_roles(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = world_with_a_reader()
        async with world.running():
            assert world.names(ROLE)
        switched = World(cluster_role_binding=True)
        switched.server.objects = world.server.objects
        switched.server.version = 1000
        async with switched.running():
            assert switched.names(ROLE) == [], "they are of the time before the switch"
            await switched.since()
            switched.server.put(CLUSTER_ROLE_BINDING, binding())
            await switched.settle()
            subjects = switched.get(CLUSTER_ROLE_BINDING, SYNC_BINDING, "")["subjects"]
            assert [each["name"] for each in subjects if each["namespace"] == "team-a"] == ["default"]
            assert await switched.since("replace") == [f"replace ClusterRoleBinding /{SYNC_BINDING}"]
            switched.server.put(CLUSTER_ROLE_BINDING, binding())
            switched.server.held = {CLUSTER_ROLE_BINDING}
            switched.server.remove(DEPLOYMENT, ("team-a", "web"))
            await switched.settle()
            switched.server.release()
            await switched.clock.advance(1.0)
            subjects = switched.get(CLUSTER_ROLE_BINDING, SYNC_BINDING, "")["subjects"]
            assert not [each for each in subjects if each["namespace"] == "team-a"]

    run(main)
    assert sum("does not exist; apply the operator's manifests" in each.getMessage() for each in caplog.records) == 1


def test_u90_a_binding_that_cannot_be_written_is_retried_and_stops_nothing() -> None:
    async def main() -> None:
        world = World(cluster_role_binding=True)
        world.flag()
        world.source({"source": "shop", "provider": "kubernetes"}, {"source": "shop", "provider": "file"})
        world.workload()
        world.server.put(CLUSTER_ROLE_BINDING, binding())
        world.server.refusals += [("replace", refusal(500))] * 3
        async with world.running():
            assert world.get(CLUSTER_ROLE_BINDING, SYNC_BINDING, "")["subjects"] == []
            assert world.names(CONFIG_MAP) == ["team-a/shop"]
            await world.clock.advance(5.0)
            assert len(world.get(CLUSTER_ROLE_BINDING, SYNC_BINDING, "")["subjects"]) == 3

    run(main)


def test_a_binding_of_ours_to_another_role_is_replaced_because_it_cannot_be_changed() -> None:
    async def main() -> None:
        world = world_with_a_reader()
        async with world.running():
            binding = world.get(ROLE_BINDING, ACCESS)
            reference = binding["roleRef"]
            await world.since()
            world.server.put(ROLE_BINDING, {**binding, "roleRef": {**reference, "name": "another"}})
            asked = await world.since("delete", "apply RoleBinding")
            assert asked == [f"apply RoleBinding team-a/{ACCESS}", f"delete RoleBinding team-a/{ACCESS}"]
            assert world.get(ROLE_BINDING, ACCESS)["roleRef"] == reference

    run(main)
