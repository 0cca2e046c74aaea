"""The unit tests of open-feature-operator, numbered by group, and ours for the same behaviour. Paths are from here.

| group | theirs | ours |
|---|---|---|
| U01, U22 | providers | test_sources.py::test_u01_u22_every_provider_is_known |
| U02, U03 | names of variables | test_environment.py::test_u02_u03_a_name_gets_the_prefix_if_there_is_one |
| U04 | id and file of a flag | test_names.py::test_u04_a_flag_has_an_id_and_a_file_name |
| U05 | equal variables | test_merge.py::test_u05_of_variables_with_one_name_the_last_counts |
| U06 | equal arguments | test_merge.py::test_u06_arguments_keep_their_first_place |
| U07 | ConfigMap of a flag | test_configmaps.py::test_u07_a_config_map_has_the_document_the_owner_and_the_annotation |
| U08 | metadata of flags | test_validation.py::test_u08_metadata_is_read_as_it_is_written |
| U09 | merge of nothing | test_merge.py::test_u09_merging_nothing_changes_nothing |
| U10 | merge of sources | test_merge.py::test_u10_every_member_has_its_rule |
| U11 | variables of an agent | test_environment.py::test_u11_an_agents_variables_have_an_order |
| | | test_environment.py::test_u11_variables_come_from_anywhere |
| U12 | merge in-process | test_merge.py::test_u12_a_default_does_not_override_in_process |
| U13 | variables in-process | test_environment.py::test_u13_in_process_variables_have_an_order |
| U14 | index of workloads | test_access.py::test_u14_a_workload_counts_by_the_annotations_of_its_template |
| | | controllers/test_consumers.py::test_workloads_that_name_an_object_are_found_among_all_kinds |
| U15 | shared owner | ../kube/test_apply.py::test_u15_an_object_goes_to_an_owner_that_was_created_again_only |
| U16 | flag found or not | test_sources.py::test_u16_u48_a_flag_that_is_missing_refuses_the_pod |
| | | test_statuses.py::test_u16_a_flag_that_is_missing_is_named |
| U17 | NAMESPACE/NAME | test_names.py::test_u17_a_name_may_have_a_namespace |
| U18 | back-off | ../kube/test_queue.py::test_back_off_grows_by_key_and_is_forgotten_after_a_success |
| | | ../pipeline/test_backoff.py::test_the_pause_doubles_up_to_a_ceiling_and_is_between_half_of_it_and_all_of_it |
| U19 | index of pods | test_access.py::test_u19_only_marked_pods_read_the_api |
| U20 | enabled | test_names.py::test_u20_only_true_enables |
| U21 | lists | test_names.py::test_u21_a_list_has_spaces_and_commas_too_many |
| U23 | defaults | test_settings.py::test_u23_the_environment_makes_the_defaults_of_sources |
| U24 | sidecar or in-process | test_names.py::test_u24_a_sidecar_goes_before_in_process |
| U25 | default provider | test_sources.py::test_u25_a_source_without_a_provider_has_the_default_one |
| U26-U31 | arguments | test_agent.py::test_u26_to_u31_arguments_have_an_order |
| U32 | resources | test_agent.py::test_u32_a_block_of_resources_replaces_that_of_the_operator |
| U33 | sync-provider-args | test_agent.py::test_u33_arguments_of_sync_providers_are_not_passed_on (1) |
| U34 | source `kubernetes` | test_sources.py::test_u34_kubernetes_marks_the_pod |
| | | test_access.py::test_u34_u50_a_pod_without_an_account_uses_default (2) |
| U35 | source `file` | test_sources.py::test_u35_file_mounts_the_config_map |
| | | controllers/test_flags.py::test_flags_are_read_when_they_change_and_not_when_all_is_current (3) |
| U36 | its ConfigMap exists | test_flags.py::test_u36_one_that_the_original_has_made_is_adopted (4) |
| | | controllers/test_flags.py::test_one_of_the_original_is_adopted |
| | | controllers/test_flags.py::test_one_of_the_users_stays_until_it_goes |
| U37 | source `http` | test_sources.py::test_u37_http_has_a_token_and_an_interval |
| U38-U40 | azblob, gcs, s3 | test_sources.py::test_u38_u39_u40_blobs_have_an_interval |
| U41 | source `grpc` | test_sources.py::test_u41_grpc_has_certificates_and_a_selector |
| U42, U43 | no proxy yet | test_sources.py::test_u42_u43_a_pod_waits_for_the_proxy |
| U44 | proxy | test_sources.py::test_u44_a_ready_proxy_is_asked_for_the_flag |
| U45 | agent is there | test_admission.py::test_u45_an_agent_that_is_there_already_is_replaced_in_place |
| U46 | unknown provider | test_sources.py::test_u46_an_unknown_provider_is_an_error |
| U47 | standalone | test_agent.py::test_u47_standalone_it_is_a_regular_container |
| U48 | ConfigMap of a flag | test_flags.py::test_u48_a_config_map_is_made_where_pods_mount_the_flag (3) |
| | | test_sources.py::test_u16_u48_a_flag_that_is_missing_refuses_the_pod |
| U49 | security context | test_agent.py::test_u49_the_security_context_is_the_originals |
| U50 | rights of `default` | test_access.py::test_u34_u50_a_pod_without_an_account_uses_default (2) |
| U51 | rights of an account | test_access.py::test_u51_a_role_names_the_flags_of_an_account_and_no_others (2) |
| U52 | right is there | test_access.py::test_u52_a_binding_that_is_right_is_not_written |
| | | controllers/test_access.py::test_a_role_is_repaired_and_not_written_if_it_is_right |
| U53 | no binding | test_access.py::test_u53_a_missing_binding_is_a_problem |
| | | controllers/test_access.py::test_with_the_switch_there_are_subjects_and_no_roles |
| U54 | no account | test_access.py::test_u54_an_account_has_rights_before_it_exists (5) |
| U55 | proxy: defaults | test_settings.py::test_u55_the_proxy_has_the_defaults_of_the_original |
| U56 | proxy: environment | test_settings.py::test_u56_every_variable_of_the_proxy_counts |
| | | test_reconcile_proxy.py::test_u56_every_variable_of_the_proxy_is_honoured |
| U57 | proxy: constructor | test_reconcile_proxy.py::test_equal_settings_give_equal_objects (6) |
| U58, U62 | proxy: drift | controllers/test_proxy.py::test_each_object_is_repaired_and_not_written_if_it_is_right |
| | | ../real/test_operator_reconcile.py::test_objects_that_have_drifted_are_repaired |
| U59 | proxy: of others | controllers/test_proxy.py::test_one_of_the_original_is_taken_over_and_one_of_others_is_not |
| U60 | proxy: right | controllers/test_proxy.py::test_each_object_is_repaired_and_not_written_if_it_is_right |
| U61 | proxy: objects | test_reconcile_proxy.py::test_u61_the_objects_of_the_proxy |
| U63 | rollout | test_rollout.py::test_u63_a_change_rolls_every_kind_of_workload |
| | | controllers/test_sources.py::test_all_kinds_of_workloads_are_rolled_before_the_status_says_so |
| U64 | no rollout | test_rollout.py::test_u64_without_rollout_on_change_nothing_is_rolled |
| U65 | no workload | test_rollout.py::test_u65_without_workloads_there_is_nothing_to_do |
| U66 | proxy of a source | test_reconcile_proxy.py::test_u66_the_proxy_is_deployed_for_sources_that_need_it |
| | | test_reconcile_proxy.py::test_u66_the_service_leads_to_the_container |
| U67, U84 | routes | test_reconcile_flagd.py::test_u67_u84_routes_of_the_gateway_api |
| U68, U85 | ingress | test_reconcile_flagd.py::test_u68_u85_an_ingress_has_three_paths_for_each_host |
| U69 | no ingress | test_reconcile_flagd.py::test_u69_what_is_disabled_is_to_be_removed |
| | | controllers/test_flagd.py::test_what_is_disabled_is_removed_and_nothing_else |
| U70 | no Flagd | controllers/test_flagd.py::test_u70_a_flagd_that_is_gone_or_goes_is_left_alone |
| U71-U74 | errors | controllers/test_flagd.py::test_u71_to_u74_an_error_of_the_server_is_retried |
| U75 | create | controllers/test_flagd.py::test_a_flagd_gets_its_objects_and_a_status |
| U76, U78 | update | controllers/test_flagd.py::test_u76_u78_one_of_ours_is_updated_and_one_of_others_is_not |
| U77 | cannot create | controllers/test_flagd.py::test_u77_an_object_that_the_server_refuses_holds_up_no_other |
| U79 | Deployment | test_reconcile_flagd.py::test_u79_the_deployment |
| U80 | source unusable | test_reconcile_flagd.py::test_u80_a_source_that_cannot_be_used_changes_nothing |
| U81 | no container | test_reconcile_flagd.py::test_u79_the_deployment (6) |
| U82 | no source | test_reconcile_flagd.py::test_u82_a_missing_source_changes_nothing |
| | | controllers/test_flagd.py::test_u82_a_source_that_comes_changes_or_goes_is_a_reason_to_look |
| U83, U86, U89 | equality | test_upstream.py::test_u83_u86_u89_an_object_differs_by_what_is_planned_only |
| | | test_reconcile_flagd.py::test_u83_equal_input_gives_equal_objects |
| | | ../real/test_operator_reconcile.py::test_the_server_accepts_what_is_planned_and_applying_it_again_is_no_write |
| U87 | paths | test_reconcile_flagd.py::test_u87_paths_of_an_ingress_are_those_of_the_services_unless_given |
| U88 | ports | test_reconcile_flagd.py::test_u88_ports_of_the_service |
| U90 | backfill | test_access.py::test_u90_after_a_restart_rights_come_from_the_pods_that_run (7) |
| | | test_access.py::test_u90_subjects_are_added_and_pruned |
| | | controllers/test_access.py::test_u90_a_binding_that_cannot_be_written_is_retried_and_stops_nothing |
| U91 | not enabled | test_admission.py::test_u91_a_pod_without_the_annotation_is_left_alone |
| U92 | no owner | test_admission.py::test_u92_a_pod_without_an_owner_is_refused |
| U93 | rights fail | test_admission.py::test_u93_a_pod_is_admitted_whether_or_not_its_rights_are_there (2) |
| | | controllers/test_access.py::test_rights_are_pruned_although_others_cannot_be_given |
| U94 | proxy not ready | test_sources.py::test_u42_u43_a_pod_waits_for_the_proxy |
| U95 | no source | test_admission.py::test_u95_a_source_that_is_missing_is_not_found |
| U96 | sidecar | test_admission.py::test_u96_a_pod_gets_the_agent |
| U97 | in-process | test_admission.py::test_u97_in_process_only_the_environment_changes |
| U98 | no name | test_admission.py::test_u98_enabled_but_without_a_name_is_refused |
| U99 | no pod | test_admission.py::test_u99_what_is_no_pod_is_a_bad_request |
| U100 | readiness | admission/test_webhooks.py::test_u100_pods_are_refused_until_all_objects_are_read (8) |
| U101 | validation | test_validation.py::test_u101_a_bad_document_is_refused_with_path_and_reason |
| | | test_validation.py::test_u101_a_good_document_is_accepted |

Where ours differs on purpose:

1. Agents have no such option. A warning says so.
2. Admission writes nothing, so a dry run has no effect and a slow server refuses no pod. A controller gives rights:
   by Roles that name the flags of an account, or as subjects of the original's ClusterRoleBinding if a switch says so.
3. A controller makes the ConfigMap, and writes it when the flags change, which the original never does.
4. A flag is the only owner of its ConfigMap: it is removed when no pod mounts it, so pods need not own it. One of the
   original is adopted; one of the user's, which the original would mount, stays as it is and the status says so.
5. A RoleBinding may name an account that does not exist yet.
6. Cannot happen: there is no constructor that may fail, and the container is made, not looked for.
7. There is no backfill at the start. What pods that run use is always counted, so a restart is like any change.
8. The original sets a flag when its backfill has ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.operator.controllers.world import FakeServer
from tests.operator.known import Laid, flagd_object, settings, source_object
from tests.pipeline.fakes import FakeClock, run
from wigwag.kube.control.apply import Applier
from wigwag.kube.kinds import DEPLOYMENT, INGRESS, SERVICE
from wigwag.operator.names import MANAGED_BY, OPERATOR
from wigwag.operator.reconcile.flagd import plan_flagd

HERE = Path(__file__).parent
GROUPS = 101
ROW = re.compile(r"^\| (?:(U[-\dU, ]+) )?\|[^|]*\| (\S+\.py)::(test_\w+)(?: \(\d\))? \|$", re.MULTILINE)
Object = dict[str, Any]


def test_every_group_has_a_test_that_exists() -> None:
    rows = ROW.findall(__doc__ or "")
    assert len(rows) == (__doc__ or "").count("::"), "a row is malformed"
    for _, path, name in rows:
        assert f"def {name}(" in (HERE / path).read_text(), f"{path}::{name}"
    groups: list[int] = []
    for listed, _, _ in rows:
        for part in filter(None, listed.split(", ")):
            first, _, last = part.replace("U", "").partition("-")
            groups += range(int(first), int(last or first) + 1)
    assert sorted(groups) == list(range(1, GROUPS + 1))


def with_metadata(**members: Any) -> Callable[[Object], Object]:
    def edit(live: Object) -> Object:
        metadata = live["metadata"]
        changed = {
            name: {**metadata[name], **value} if isinstance(value, dict) else value for name, value in members.items()
        }
        return {**live, "metadata": {**metadata, **changed}}

    return edit


def with_spec(**members: Any) -> Callable[[Object], Object]:
    return lambda live: {**live, "spec": {**live["spec"], **members}}


@pytest.mark.parametrize(
    ("kind", "edit", "outcome"),
    [
        (DEPLOYMENT, with_spec(), "unchanged"),
        (DEPLOYMENT, with_spec(replicas=7), "updated"),
        (DEPLOYMENT, with_spec(template={}), "updated"),
        (DEPLOYMENT, with_spec(revisionHistoryLimit=10), "unchanged"),
        (DEPLOYMENT, with_metadata(labels={"app": "other"}), "updated"),
        (DEPLOYMENT, with_metadata(ownerReferences=[]), "updated"),
        (DEPLOYMENT, with_metadata(annotations={"deployment.kubernetes.io/revision": "2"}), "unchanged"),
        (DEPLOYMENT, with_metadata(labels={MANAGED_BY: "somebody"}), "refused"),
        (INGRESS, with_spec(), "unchanged"),
        (INGRESS, with_spec(rules=[]), "updated"),
        (INGRESS, with_spec(ingressClassName="nginx"), "unchanged"),
        (INGRESS, with_metadata(annotations={"note": "other"}), "updated"),
        (INGRESS, with_metadata(annotations={"more": "x"}), "unchanged"),
        (SERVICE, with_spec(), "unchanged"),
        (SERVICE, with_spec(type="NodePort"), "updated"),
        (SERVICE, with_spec(ports=[]), "updated"),
        (SERVICE, with_spec(selector={"app": "flagd-sample", "tier": "x"}), "updated"),
        (SERVICE, with_spec(clusterIP="10.0.0.1"), "unchanged"),
    ],
)
def test_u83_u86_u89_an_object_differs_by_what_is_planned_only(
    kind: Any, edit: Callable[[Object], Object], outcome: str
) -> None:
    known = Laid(sources={"team-a/flags": source_object({"source": "http://x", "provider": "http"})})
    ingress = {"enabled": True, "hosts": ["flagd.test"], "annotations": {"note": "x"}}
    plan = plan_flagd(flagd_object(ingress=ingress), known, settings())
    [planned] = [each for each in plan.apply if each.kind == kind]

    async def main() -> None:
        server = FakeServer(FakeClock())
        ours, another = (Applier(server, "wigwag", {MANAGED_BY: OPERATOR}, "example.org/applied") for _ in range(2))
        live = (await ours.apply(*planned)).object
        edited = server.put(kind, edit(live))
        for applier in (ours, another):  # the second remembers nothing
            assert (await applier.apply(kind, planned.body, edited)).outcome == outcome

    run(main)
