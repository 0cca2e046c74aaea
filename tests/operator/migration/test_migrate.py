"""Old objects become new ones, and nothing is lost in silence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.operator.migration.migrate import migrate
from wigwag.operator.migration.remarks import Migrated, Remark
from wigwag.operator.resources.featureflag import FeatureFlag
from wigwag.operator.resources.featureflagsource import FeatureFlagSource

FLAGS = {"flags": {"banner": {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}}}
WORDS = st.sampled_from(("flags", "name", "source", "provider", "http", "annotations", "openfeature.dev", "x", ""))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3))
TEXT = msgspec.json.encode(FLAGS).decode()


def old(kind: str, version: str, spec: Any, name: str = "shop", **metadata: Any) -> dict[str, Any]:
    about = {"name": name, **metadata}
    return {"apiVersion": f"core.openfeature.dev/{version}", "kind": kind, "metadata": about, "spec": spec}


def flags(spec: Any, version: str = "v1alpha1", **metadata: Any) -> dict[str, Any]:
    return old("FeatureFlagConfiguration", version, spec, **metadata)


def source(spec: Any, version: str = "v1alpha1", **metadata: Any) -> dict[str, Any]:
    return old("FlagSourceConfiguration", version, spec, **metadata)


def deployment(**annotations: str) -> dict[str, Any]:
    template = {"metadata": {"annotations": {f"openfeature.dev{name}": text for name, text in annotations.items()}}}
    about = {"name": "web", "namespace": "team"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": {"template": template}}


def named(**spec: Any) -> dict[str, Any]:
    """What a FeatureFlagConfiguration of another namespace says."""
    return flags(spec, name="b", namespace="ops")


EXAMPLES = [
    flags({"featureFlagSpec": TEXT, "serviceProvider": {"name": "flagd"}}, name="text", uid="1", generation=2),
    flags({"featureFlagSpec": {**FLAGS, "$evaluators": {"x": {"==": [1, 1]}}}}, "v1alpha2", name="structured"),
    named(
        syncProvider={
            "name": "http",
            "httpSyncConfiguration": {"target": "http://flags.test", "bearerToken": "token"},
        },
        flagDSpec={"metricsPort": 9, "envs": [{"name": "A", "value": "b"}]},
        resources={"limits": {"cpu": 1}},
    ),
    source({"port": 8080, "syncProviderArgs": None, "sources": []}, "v1alpha2", name="ports", namespace="team"),
    source(
        {
            "metricsPort": 9000,
            "image": "own",
            "defaultSyncProvider": "filepath",
            "sources": [{"source": "a"}, {"source": "flags.test:443", "provider": "grpcs", "tls": False}],
            "envVars": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "resources": {"requests": {"memory": "32Mi"}},
        },
        "v1alpha3",
        name="whole",
    ),
    deployment(**{"/featureflagconfiguration": "text,ops/b", "/flagsourceconfiguration": "ports", "": "enabled"}),
]
"""Old objects of each kind and version, for tests on a real API server, too."""


def annotated(manifest: Any) -> Any:
    return manifest["spec"]["template"]["metadata"]["annotations"]


def one(document: Any) -> Any:
    [result] = migrate([document])
    assert result.objects is not None
    [made] = result.objects
    return made


def severities(result: Migrated) -> list[tuple[str, str]]:
    return [(each.severity, each.path) for each in result.remarks]


def errors(result: Migrated) -> list[str]:
    return [each.message for each in result.remarks if each.severity == "error"]


class TestFlags:
    @pytest.mark.parametrize(("version", "spec"), [("v1alpha1", TEXT), ("v1alpha2", FLAGS)])
    def test_text_and_objects_become_a_flag_spec(self, version: str, spec: Any) -> None:
        made = one(flags({"featureFlagSpec": spec}, version))
        assert made == {
            "apiVersion": "core.openfeature.dev/v1beta1",
            "kind": "FeatureFlag",
            "metadata": {"name": "shop"},
            "spec": {"flagSpec": FLAGS},
        }

    def test_what_the_server_and_the_old_controller_wrote_does_not_travel(self) -> None:
        finalizer = "featureflagconfiguration.core.openfeature.dev/finalizer"
        applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"}
        about: dict[str, Any] = {
            "uid": "1",
            "resourceVersion": "2",
            "labels": {"a": "b"},
            "finalizers": [finalizer, "x/y"],
        }
        document = flags({"featureFlagSpec": TEXT}, annotations=applied, **about) | {"status": {}}
        made = one(document)
        assert made["metadata"] == {
            "name": "shop", "labels": {"a": "b"}, "annotations": {"team": "a"}, "finalizers": ["x/y"]
        }  # fmt: skip
        assert "status" not in made

    def test_what_is_about_the_agent_is_said_to_be_lost(self) -> None:
        spec = {"serviceProvider": {"name": "flagd"}, "syncProvider": {"name": "http"}, "flagDSpec": {"metricsPort": 1}}
        [result] = migrate([flags({**spec, "featureFlagSpec": TEXT, "other": 1})])
        assert severities(result) == [
            ("warning", "$.spec.serviceProvider"),
            ("warning", "$.spec.syncProvider"),
            ("warning", "$.spec.flagDSpec"),
            ("warning", "$.spec.other"),
        ]

    @pytest.mark.parametrize(
        ("spec", "reason"),
        [("{", "truncated"), ("[]", "Expected `object`"), ("{}", "missing required field `flags`"), (7, "Expected")],
    )
    def test_flags_that_cannot_be_read_are_left_alone(self, spec: Any, reason: str) -> None:
        [result] = migrate([flags({"featureFlagSpec": spec})])
        [error] = errors(result)
        assert result.objects is None
        assert reason in error
        assert error.endswith("the object is left as it is")

    def test_flags_that_the_operator_refuses_are_said_so(self) -> None:
        bad = {"flags": {"banner": {**FLAGS["flags"]["banner"], "defaultVariant": "of"}}}
        [result] = migrate([flags({"featureFlagSpec": bad}, "v1alpha2")])
        [remark] = result.remarks
        assert remark.severity == "warning"
        assert "the operator will refuse these flags: spec.flagSpec.flags.banner.defaultVariant" in remark.message


class TestSources:
    def test_fields_and_providers_have_their_new_names(self) -> None:
        entries = [
            {"source": "team/a", "provider": "filepath"},
            {"source": "flags.test:443", "provider": "grpcs", "selector": ""},
            {"source": "b", "provider": "kube-proxy"},
        ]
        spec = {"metricsPort": 9000, "port": 0, "evaluator": "", "defaultSyncProvider": "filepath", "sources": entries}
        made = one(source({**spec, "probesEnabled": False}, "v1alpha3"))
        assert made["kind"] == "FeatureFlagSource"
        assert made["spec"] == {
            "managementPort": 9000,
            "defaultSyncProvider": "file",
            "sources": [
                {"source": "team/a", "provider": "file"},
                {"source": "flags.test:443", "provider": "grpc", "tls": True},
                {"source": "b", "provider": "flagd-proxy"},
            ],
            "probesEnabled": False,
        }

    def test_an_early_name_of_the_sources_is_known(self) -> None:
        made = one(source({"syncProviders": [{"source": "a", "provider": "http"}]}, "v1alpha3"))
        assert made["spec"]["sources"] == [{"source": "a", "provider": "http"}]

    def test_what_is_dropped_is_said_with_what_to_do(self) -> None:
        spec = {"image": "own", "tag": "v1", "Port": 80, "sources": [{"source": "a", "interva": 5}]}
        [result] = migrate([source(spec)])
        assert result.remarks == (
            Remark(
                "warning",
                "$.spec.image",
                "image 'own' is dropped: set SIDECAR_IMAGE of the operator, which is for all agents",
            ),
            Remark(
                "warning", "$.spec.tag", "tag 'v1' is dropped: set SIDECAR_TAG of the operator, which is for all agents"
            ),
            Remark("warning", "$.spec.Port", "Port is dropped: it is no field; did you mean `port`?"),
            Remark(
                "warning",
                "$.spec.sources[0].interva",
                "interva is dropped: it is no field; did you mean `interval`?",
            ),
        )

    @pytest.mark.parametrize(
        ("spec", "reason"),
        [
            ({"port": 80}, "it has no sources, and v1beta1 needs one at least: add `sources`"),
            ({"sources": [{"source": "a", "provider": "ftp"}]}, "unknown provider 'ftp'; use one of kubernetes, file"),
            ({"sources": [{"source": 7}]}, "Expected `str`, got `int` - at `$.sources[0].source`"),
            ({"sources": {"a": 1}}, "Expected `array`"),
        ],
    )
    def test_what_the_api_server_would_refuse_is_left_alone(self, spec: Any, reason: str) -> None:
        [result] = migrate([source(spec)])
        assert result.objects is None
        assert reason in errors(result)[0]


class TestWorkloads:
    def test_old_annotations_are_replaced_in_their_places(self) -> None:
        given = {"": "enabled", "/flagsourceconfiguration": "a, ops/b", "/other": "kept"}
        assert list(annotated(one(deployment(**given))).items()) == [
            ("openfeature.dev/enabled", "true"),
            ("openfeature.dev/featureflagsource", "a, ops/b"),
            ("openfeature.dev/other", "kept"),
        ]

    def test_a_workload_that_names_flags_gets_a_source_with_what_their_objects_say(self) -> None:
        results = migrate(EXAMPLES)
        made, workload = results[-1].objects or ()
        assert made["metadata"] == {"name": "deployment-web", "namespace": "team"}
        assert made["spec"] == {
            "sources": [
                {"source": "text", "provider": "kubernetes"},
                {"source": "http://flags.test", "provider": "http", "httpSyncBearerToken": "token"},
            ],
            "managementPort": 9,
            "envVars": [{"name": "A", "value": "b"}],
            "resources": {"limits": {"cpu": 1}},
            "port": 8080,
        }
        assert annotated(workload)["openfeature.dev/featureflagsource"] == "deployment-web"
        assert severities(results[2]) == [], "nothing of it is lost"
        assert (results[3].objects, severities(results[3])) == ((), [("info", "$.spec")]), "it is in the new source"

    def test_pods_and_cron_jobs_have_their_templates_elsewhere(self) -> None:
        gate = {"metadata": {"annotations": {"openfeature.dev": "enabled"}}}
        pod = {"apiVersion": "v1", "kind": "Pod", **gate}
        job = {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": gate}}}}
        assert one(pod)["metadata"]["annotations"] == {"openfeature.dev/enabled": "true"}
        template = one(job)["spec"]["jobTemplate"]["spec"]["template"]
        assert template["metadata"]["annotations"] == {"openfeature.dev/enabled": "true"}

    def test_annotations_of_the_workload_itself_never_counted(self) -> None:
        misplaced = deployment()
        misplaced["metadata"]["annotations"] = {"openfeature.dev": "enabled"}
        [result] = migrate([misplaced])
        assert result.objects is None
        assert severities(result) == [("warning", '$.metadata.annotations["openfeature.dev"]')]
        service = {"kind": "Service", "metadata": misplaced["metadata"], "spec": {}}
        assert migrate([service]) == [Migrated()], "it has no pods"


def test_lists_become_their_items_and_remarks_say_which() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    items = [service, source({"tag": "v1", "sources": [{"source": "a"}]})]
    [result] = migrate([{"apiVersion": "v1", "kind": "List", "items": items}])
    assert [each["kind"] for each in result.objects or ()] == ["Service", "FeatureFlagSource"]
    assert severities(result) == [("warning", "$.items[1].spec.tag")]
    assert migrate([{"apiVersion": "v1", "kind": "List", "items": [service]}]) == [Migrated()]


@given(VALUES, VALUES)
def test_whatever_an_old_object_holds_the_result_fits_the_schema(first: Any, second: Any) -> None:
    documents = [
        first,
        flags({"featureFlagSpec": first, "syncProvider": second, "flagDSpec": first}),
        flags(second, "v1alpha2", name="b"),
        source({"sources": [first, second], "envVars": second, "resources": first}),
        source(first, name="b"),
        {**deployment(**{"/featureflagconfiguration": "shop, b"}), "metadata": {"name": "web", "annotations": second}},
        {"kind": "Pod", "metadata": first, "spec": second},
    ]
    for result in migrate(documents):
        for made in result.objects or ():
            kind = {"FeatureFlag": FeatureFlag, "FeatureFlagSource": FeatureFlagSource}.get(made.get("kind"))
            if kind:
                msgspec.convert({"spec": made["spec"]}, kind)
