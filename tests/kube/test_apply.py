"""Server-side apply: when there is a request, and when not. What a real server does with it is in tests/real."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from tests.pipeline.fakes import run
from wigwag.errors import UsageError
from wigwag.kube.client import ObjectList
from wigwag.kube.control.apply import Applier, owner_reference, project
from wigwag.kube.errors import ApiError, ApiStatus, Cause, Details
from wigwag.kube.kinds import CONFIG_MAP, DEPLOYMENT, Kind, Query

Object = dict[str, Any]
HASH = "example.org/applied"
CONFLICT = ApiError("PATCH /x", ApiStatus(409, "Conflict"))
FIELDS = ApiError("PATCH /x", ApiStatus(409, "Conflict", "a", Details(causes=(Cause("FieldManagerConflict"),))))


class OneObject:
    """A server with one object, on which fields are set and never taken away."""

    def __init__(self, live: Object | None = None) -> None:
        self.live, self.version = live, 0
        self.asked: list[str] = []
        self.errors: list[ApiError] = []
        self.forced: list[bool] = []
        self.deletions: list[Any] = []
        self.spelling: dict[str, str] = {}
        """Values that the server stores in another way."""
        self.patches: list[Any] = []

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        self.asked.append("get")
        return self.live

    async def list(self, kind: Kind, namespace: str = "", labels: str = "") -> ObjectList:
        self.asked.append(f"list {labels}")
        return ObjectList((self.live,) if self.live else (), "1")

    async def apply(
        self, kind: Kind, body: Mapping[str, Any], manager: str, *, force: bool = False, query: Query = ()
    ) -> Object:
        self.asked.append("apply")
        self.forced.append(force)
        if self.errors:
            raise self.errors.pop(0)
        self.version += 1
        stored = {name: self.spelling.get(value, value) for name, value in body["data"].items()}
        metadata = {"uid": "u1", **body["metadata"], "resourceVersion": str(self.version)}
        self.live = {**body, "metadata": metadata, "data": stored}
        return self.live

    async def patch(self, kind: Kind, name: str, change: Any, namespace: str = "", *, query: Query = ()) -> Object:
        self.asked.append("patch")
        self.patches.append(change)
        assert self.live is not None
        return self.live

    async def delete(self, kind: Kind, name: str, namespace: str = "", options: Any = None) -> None:
        self.deletions.append((name, options))
        raise CONFLICT


def applier(server: OneObject, **more: Any) -> Applier:
    return Applier(server, "wigwag", {"by": "wigwag"}, HASH, **more)


def body(**data: str) -> Object:
    return {"metadata": {"name": "x", "namespace": "ns"}, "data": data}


def test_an_object_is_read_created_and_then_left_alone() -> None:
    async def main() -> None:
        server = OneObject()
        ours = applier(server)
        created = await ours.apply(CONFIG_MAP, body(a="1"))
        assert (created.outcome, server.asked, server.forced) == ("created", ["get", "apply"], [False])
        assert created.object["metadata"]["labels"] == {"by": "wigwag"}
        assert created.object["kind"] == "ConfigMap"
        assert (await ours.apply(CONFIG_MAP, body(a="1"), created.object)).outcome == "unchanged"
        assert (await ours.apply(CONFIG_MAP, body(), created.object)).outcome == "updated"
        assert server.asked[2:] == ["apply"]
        assert server.forced == [False, True]

    run(main)


def test_an_object_of_a_list_has_no_kind_and_is_unchanged_all_the_same() -> None:
    async def main() -> None:
        server = OneObject()
        live = (await applier(server).apply(CONFIG_MAP, body(a="1"))).object
        listed = {name: value for name, value in live.items() if name not in ("apiVersion", "kind")}
        assert (await applier(server).apply(CONFIG_MAP, body(a="1"), listed)).outcome == "unchanged"

    run(main)


def test_a_watch_that_is_behind_causes_no_second_write() -> None:
    async def main() -> None:
        server = OneObject()
        ours = applier(server)
        old = (await ours.apply(CONFIG_MAP, body(a="1"))).object
        assert (await ours.apply(CONFIG_MAP, body(a="2"), old)).outcome == "updated"
        assert (await ours.apply(CONFIG_MAP, body(a="2"), old)).outcome == "unchanged"
        assert (await ours.apply(CONFIG_MAP, body(a="3"), old)).outcome == "updated"

    run(main)


def test_another_spelling_of_the_server_is_no_difference_but_an_edit_is() -> None:
    async def main() -> None:
        server = OneObject()
        server.spelling = {"1000m": "1"}
        ours = applier(server)
        live = (await ours.apply(CONFIG_MAP, body(cpu="1000m"))).object
        later = {**live, "metadata": {**live["metadata"], "resourceVersion": "70"}}
        assert (await ours.apply(CONFIG_MAP, body(cpu="1000m"), later)).outcome == "unchanged"
        edited = {**later, "data": {"cpu": "7"}}
        assert (await ours.apply(CONFIG_MAP, body(cpu="1000m"), edited)).outcome == "updated"

    run(main)


def test_a_conflict_is_read_and_applied_again_but_not_for_ever() -> None:
    async def main() -> None:
        server = OneObject()
        ours = applier(server)
        live = (await ours.apply(CONFIG_MAP, body(a="1"))).object
        server.errors = [CONFLICT, CONFLICT]
        assert (await ours.apply(CONFIG_MAP, body(a="2"), live)).outcome == "updated"
        assert server.asked[2:] == ["apply", "get", "apply", "get", "apply"]
        server.errors = [CONFLICT] * 9
        with pytest.raises(ApiError, match="409"):
            await ours.apply(CONFIG_MAP, body(a="3"))

    run(main)


def test_another_manager_of_a_field_is_refused_and_other_errors_are_raised() -> None:
    async def main() -> None:
        server = OneObject()
        ours = applier(server, force=False)
        live = (await ours.apply(CONFIG_MAP, body(a="1"))).object
        server.errors = [FIELDS]
        refused = await ours.apply(CONFIG_MAP, body(a="2"), live)
        assert (refused.outcome, refused.reason, refused.object) == ("refused", "a", live)
        server.errors = [ApiError("PATCH /x", ApiStatus(403, "Forbidden"))]
        with pytest.raises(ApiError, match="Forbidden") as caught:
            await ours.apply(CONFIG_MAP, body(a="2"), live)
        assert caught.value.forbidden

    run(main)


def test_an_object_that_somebody_creates_at_the_same_moment_is_looked_at_again() -> None:
    async def main() -> None:
        server = OneObject()
        ours = applier(server)

        theirs = {"metadata": {"name": "x", "namespace": "ns", "uid": "u2"}, "data": {"a": "theirs"}}
        answers: list[Object | None] = [None, theirs]

        async def find(kind: Kind, name: str, namespace: str = "") -> Object | None:
            return answers.pop(0)

        server.find = find  # type: ignore[method-assign]
        server.errors = [FIELDS]
        refused = await ours.apply(CONFIG_MAP, body(a="1"))
        assert refused.outcome == "refused"
        assert "is not ours" in refused.reason

    run(main)


def test_an_object_that_is_being_deleted_is_not_applied() -> None:
    async def main() -> None:
        server = OneObject()
        ours = applier(server)
        live = (await ours.apply(CONFIG_MAP, body(a="1"))).object
        going = {**live, "metadata": {**live["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
        assert (await ours.apply(CONFIG_MAP, body(a="2"), going)).outcome == "deleting"
        assert await ours.prune(CONFIG_MAP, (), live=[going]) == []

    run(main)


def test_prune_names_the_uid_and_ignores_objects_of_others_and_of_other_namespaces() -> None:
    async def main() -> None:
        server = OneObject()
        ours = applier(server)
        await ours.apply(CONFIG_MAP, body(a="1"))
        assert await ours.prune(CONFIG_MAP, (), "other") == []
        assert await ours.prune(CONFIG_MAP, [("ns", "x")], "ns") == []
        assert server.asked[-1] == "list by=wigwag"
        foreign = [{"metadata": {"name": "y", "namespace": "ns", "uid": "u3", "labels": {"by": "somebody"}}}]
        assert await ours.prune(CONFIG_MAP, (), live=foreign) == []
        assert await ours.prune(CONFIG_MAP, (), "ns") == [("ns", "x")]
        assert server.deletions == [("x", {"preconditions": {"uid": "u1"}, "propagationPolicy": "Background"})]

    run(main)


DUPLICATE = ApiError(
    "PATCH /x",
    ApiStatus(422, "Invalid", "", Details(causes=(Cause("FieldValueDuplicate", "", "data.ports[1].name"),))),
)


def test_an_item_of_others_that_cannot_be_beside_ours_becomes_ours_and_the_object_is_applied_again() -> None:
    async def main() -> None:
        server = OneObject()
        ours = applier(server)
        live = (await ours.apply(CONFIG_MAP, body(a="1"))).object
        theirs: Object = {"f:data": {"f:ports": {'k:{"port":81}': {"f:name": {}}}}}
        entry = {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsV1": theirs}
        server.live = {**live, "metadata": {**live["metadata"], "managedFields": [entry]}}
        server.errors = [DUPLICATE]
        assert (await ours.apply(CONFIG_MAP, body(a="2"), live)).outcome == "updated"
        assert server.asked[2:] == ["apply", "get", "patch", "apply"]
        [patch] = server.patches
        assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("u1", "1")
        [claimed] = patch["metadata"]["managedFields"]
        assert (claimed["manager"], claimed["operation"], claimed["fieldsV1"]) == ("wigwag", "Apply", theirs)

    run(main)


@pytest.mark.parametrize("force", [True, False])
def test_a_duplicate_that_nobody_else_owns_is_an_error(force: bool) -> None:
    async def main() -> None:
        server = OneObject()
        ours = applier(server, force=force)
        live = (await ours.apply(CONFIG_MAP, body(a="1"))).object
        server.errors = [DUPLICATE]
        with pytest.raises(ApiError, match="422"):
            await ours.apply(CONFIG_MAP, body(a="2"), live)
        assert server.patches == []

    run(main)


def test_a_key_that_somebody_adds_to_an_atomic_map_is_a_difference() -> None:
    service = {"metadata": {"name": "x", "labels": {}}, "spec": {"selector": {"app": "x"}, "ports": []}}
    edited = {**service, "spec": {"selector": {"app": "x", "tier": "y"}, "type": "ClusterIP", "ports": []}}
    assert project(edited, service) != service
    labelled = {**service, "metadata": {"name": "x", "labels": {"of": "others"}}}
    assert project(labelled, service) == service, "labels are no atomic map"


def test_an_owner_reference_has_all_that_garbage_collection_needs() -> None:
    reference = owner_reference(DEPLOYMENT, {"metadata": {"name": "shop", "uid": "1"}})
    assert reference == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "uid": "1", "controller": True}


def test_an_applier_without_labels_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one"):
        Applier(OneObject(), "wigwag", {}, HASH)


def test_what_an_intent_does_not_speak_about_does_not_count() -> None:
    live = {"a": {"b": 1, "c": 2}, "list": [{"x": 1, "y": 2}], "longer": [1, 2]}
    assert project(live, {"a": {"b": 5}, "list": [{"x": 0}], "longer": [1], "new": 1}) == {
        "a": {"b": 1},
        "list": [{"x": 1}],
        "longer": [1, 2],
    }


def test_u15_an_object_goes_to_an_owner_that_was_created_again_only() -> None:
    def owned(name: str, uid: str) -> Object:
        reference = owner_reference(CONFIG_MAP, {"metadata": {"name": name, "uid": uid}})
        return {"metadata": {"name": "x", "namespace": "ns", "ownerReferences": [reference]}, "data": {}}

    async def main() -> None:
        ours = applier(OneObject())
        live = (await ours.apply(CONFIG_MAP, owned("a", "1"))).object
        refused = await ours.apply(CONFIG_MAP, owned("b", "2"), live)
        assert (refused.outcome, refused.reason) == ("refused", "ConfigMap x is controlled by ConfigMap a")
        taken = await ours.apply(CONFIG_MAP, owned("a", "2"), live)
        assert taken.object["metadata"]["ownerReferences"][0]["uid"] == "2"

    run(main)


def test_an_object_in_a_namespace_that_is_being_deleted_is_left_out_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Terminating(OneObject):
        async def apply(self, *_: Any, **__: Any) -> Object:
            raise ApiError("x", ApiStatus(403, "Forbidden", details=Details(causes=(Cause("NamespaceTerminating"),))))

    async def main() -> None:
        ours = applier(Terminating())
        with caplog.at_level(logging.INFO):
            outcomes = [(await ours.apply(CONFIG_MAP, body(a="1"))).outcome for _ in range(2)]
        assert outcomes == ["deleting"] * 2
        assert caplog.messages == ["ConfigMap ns/x is not made: its namespace is being deleted"]

    run(main)
