"""Writes the manifests in `deploy` that follow from code or from other manifests: `python -m tools.manifests`.

| file | from |
|---|---|
| `kustomize/crds` | the records of `wigwag.operator.resources` |
| `kustomize/webhooks` | `wigwag.operator.admission.registration` |
| `kustomize/namespaced/tenant` | the ClusterRoles in `kustomize/rbac`, as Roles of one namespace |
| `kustomize/operator/settings.env` | `wigwag.operator.settings`: every variable, with its default |
| `kustomize/components/revisions`, `kustomize/canary` | the same, for several operators in one cluster |
| `helm/…/files` | `kustomize`: what no value of the chart changes, as lists that its templates read |
| the table in `helm/…/README.md` | the comments in `values.yaml` beside it |
| version numbers | `wigwag.version` |

A test compares what is committed. Nothing else is written twice: the Deployment of the chart has values in it, and the
tests compare what it renders with that of `kustomize`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from wigwag.kube.kinds import CLUSTER_FEATURE_FLAG_SOURCE, NAMESPACE, ROLE, ROLE_BINDING
from wigwag.operator.admission.registration import WebhookEndpoint, mutating, validating
from wigwag.operator.names import OPERATOR_ACCOUNT, PROXY_ACCOUNT, SYNC_BINDING
from wigwag.operator.resources.crd import RESOURCES, definition
from wigwag.operator.revisions import DEFAULT, Ownership
from wigwag.operator.settings import PREFIXES, PodSettings
from wigwag.options import declared
from wigwag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
KUSTOMIZE, CHART = DEPLOY / "kustomize", DEPLOY / "helm" / "wigwag-operator"
CRDS = KUSTOMIZE / "crds"
CHART_FILES = {
    "crds": [f"crds/{resource.file_name}" for resource in RESOURCES],
    "rbac": ["rbac/operator.yaml"],
    "sync": ["rbac/sync.yaml"],
    "certificates": ["rbac/certificates.yaml"],
    "webhooks": ["webhooks/service.yaml", "webhooks/mutating.yaml", "webhooks/validating.yaml"],
    "cert-manager": ["components/cert-manager/certificate.yaml"],
    "cluster-role-binding": ["components/cluster-role-binding/rbac.yaml"],
    "proxy-auth": ["components/proxy-auth/rbac.yaml"],
    "monitoring": ["components/monitoring/monitors.yaml"],
    "network-policies": ["components/network-policies/policies.yaml"],
    "sidecar-upgrades": ["components/sidecar-upgrades/rbac.yaml"],
    "watchdog": ["components/watchdog/rbac.yaml"],
    "kill-switch": ["components/kill-switch/rbac.yaml"],
    "revisions": ["components/revisions/rbac.yaml"],
    "revisions-webhooks": ["webhooks/service.yaml", "components/revisions/webhooks.yaml"],
    "canary-webhooks": ["webhooks/service.yaml", "canary/webhooks.yaml"],
    "own": ["namespaced/own.yaml"],
    "tenant": ["namespaced/tenant/rights.yaml"],
}
"""Files of the chart, and which manifests each is made of."""
VERSIONED = {
    KUSTOMIZE / "operator" / "deployment.yaml": r"^( +image: wigwag:)\S+",
    DEPLOY / "Containerfile": r"(image\.version=\"|-t wigwag:)[^\s\"]+",
    CHART / "Chart.yaml": r"^((?:v|appV)ersion: )\S+",
}
"""Files that are written by hand, and where they name the version."""
CANARY, CANARY_NAMESPACE = "canary", "open-feature-operator-canary"
"""The revision of a second operator, and its namespace."""
_HEADER = "# Written by tools/manifests.py. Do not edit.\n"
_SHORT = 90
_VALUE = re.compile(r"( *)(\w+):(?: (.*?))?(?: # (.*))?")


def rendered() -> dict[Path, str]:
    """Return the text of every file."""
    made = {CRDS / resource.file_name: to_yaml(definition(resource)) for resource in RESOURCES}
    endpoint = WebhookEndpoint("")
    for name, configuration in (("mutating", mutating(endpoint)), ("validating", validating(endpoint))):
        made[KUSTOMIZE / "webhooks" / f"{name}.yaml"] = to_yaml(configuration)
    made[KUSTOMIZE / "namespaced" / "tenant" / "rights.yaml"] = _HEADER + "---\n".join(_tenant_rights())
    made[KUSTOMIZE / "operator" / "settings.env"] = _HEADER + "".join(_variables())
    made[KUSTOMIZE / "components" / "revisions" / "webhooks.yaml"] = all_yaml(webhooks(DEFAULT))
    made |= canary()
    for name, paths in CHART_FILES.items():
        texts = [made.get(KUSTOMIZE / path) or (KUSTOMIZE / path).read_text() for path in paths]
        items = [each for text in texts for each in yaml.safe_load_all(text)]
        made[CHART / "files" / f"{name}.yaml"] = to_yaml({"items": items})
    readme = CHART / "README.md"
    before, table, after = re.split(r"(?<=\n)(\| value .*\n)(?:\|.*\n)+", readme.read_text())
    made[readme] = before + table + "|---|---|---|\n" + "".join(map(_row, chart_values())) + after
    for path, pattern in VERSIONED.items():
        made[path] = re.sub(pattern, rf"\g<1>{__version__}", path.read_text(), flags=re.MULTILINE)
    return made


def webhooks(revision: str, namespace: str = WebhookEndpoint("").namespace) -> list[Any]:
    """Return the webhook configurations of one of several operators."""
    endpoint = WebhookEndpoint("", namespace=namespace)
    return [mutating(endpoint, revision=revision), validating(endpoint, revision=revision)]


def canary() -> dict[Path, str]:
    """Return the manifests of a second operator: those of the first, in another namespace and under other names."""
    folder, old = KUSTOMIZE / "canary", WebhookEndpoint("").namespace
    paths = [
        *(f"operator/{name}.yaml" for name in ("namespace", "deployment", "disruption")),
        *(f"rbac/{name}.yaml" for name in ("certificates", "operator", "sync")),
        *(f"components/{name}/rbac.yaml" for name in ("revisions", "sidecar-upgrades")),
    ]
    objects = [each for path in paths for each in loaded(KUSTOMIZE / path)]
    for each in objects:
        if each["kind"] == "Deployment":
            arguments = each["spec"]["template"]["spec"]["containers"][0]["args"]
            arguments += [f"--revision={CANARY}", "--sidecar-upgrade=in-place"]
    texts = [yaml.safe_dump(_revised(each), sort_keys=False) for each in objects]
    settings = _HEADER + "".join(_variables())
    return {
        folder / "operator.yaml": _HEADER + "---\n".join(texts).replace(old, CANARY_NAMESPACE),
        folder / "webhooks.yaml": all_yaml(webhooks(CANARY, CANARY_NAMESPACE)),
        folder / "service.yaml": (KUSTOMIZE / "webhooks" / "service.yaml").read_text().replace(old, CANARY_NAMESPACE),
        folder / "settings.env": settings,
    }


def _revised(manifest: Any) -> Any:
    """Give objects of the whole cluster other names, and refer to them by those."""
    name = Ownership(CANARY).name
    if manifest["kind"] in ("ClusterRole", "ClusterRoleBinding"):
        manifest["metadata"]["name"] = name(manifest["metadata"]["name"])
    if manifest.get("roleRef", {}).get("kind") == "ClusterRole":
        manifest["roleRef"]["name"] = name(manifest["roleRef"]["name"])
    for rule in manifest.get("rules") or ():
        if rule["apiGroups"] == ["admissionregistration.k8s.io"]:
            rule["resourceNames"] = [name(each) for each in rule["resourceNames"]]
    return manifest


def loaded(path: Path) -> list[Any]:
    """Return the objects of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def all_yaml(values: list[Any]) -> str:
    """Return a file with several objects."""
    return _HEADER + "---\n".join(to_yaml(value).removeprefix(_HEADER) for value in values)


def _tenant_rights() -> Iterator[str]:
    """Yield what the operator and its proxy may do in one namespace: what their ClusterRoles say of such objects."""
    documents = [each for name in ("operator", "sync") for each in _documents(KUSTOMIZE / "rbac" / f"{name}.yaml")]
    for name, role, account in (
        ("tenant", "open-feature-operator-manager-role", OPERATOR_ACCOUNT),
        ("tenant-sync", SYNC_BINDING, PROXY_ACCOUNT),
    ):
        [found] = (each for each in documents if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", role))
        rules = [{**rule, "resources": [*filter(_is_namespaced, rule["resources"])]} for rule in found["rules"]]
        made = {"name": f"open-feature-operator-{name}-role"}
        reference = {"apiGroup": ROLE.group, "kind": ROLE.kind, **made}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": WebhookEndpoint("").namespace}
        rights = {"metadata": made, "rules": [rule for rule in rules if rule["resources"]]}
        binding = {"metadata": {"name": f"open-feature-operator-{name}-rolebinding"}, "roleRef": reference}
        for kind, body in ((ROLE, rights), (ROLE_BINDING, {**binding, "subjects": [subject]})):
            yield to_yaml({"apiVersion": kind.api, "kind": kind.kind, **body}).removeprefix(_HEADER)


def _documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def _is_namespaced(resource: str) -> bool:
    return resource.partition("/")[0] not in (CLUSTER_FEATURE_FLAG_SOURCE.plural, NAMESPACE.plural)


def to_yaml(value: Any) -> str:
    """Return a file."""
    text: str = yaml.dump(value, Dumper=_Compact, sort_keys=False, width=1000)
    return _HEADER + text


class ChartValue(NamedTuple):
    """A value of the chart that has a default and a comment."""

    name: str
    default: str
    comment: str


def chart_values() -> Iterator[ChartValue]:
    """Yield the values of the chart, in their order."""
    parents: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        if match := _VALUE.fullmatch(line):
            indent, name, default, comment = match.groups()
            parents = [*parents[: len(indent) // 2], name]
            if default:
                yield ChartValue(".".join(parents), default, comment or "")


def _row(value: ChartValue) -> str:
    return f"| `{value.name}` | `{value.default}` | {value.comment} |\n"


def _variables() -> Iterator[str]:
    """Yield every variable, except for those of the pod, which Kubernetes fills in."""
    for record, prefix in PREFIXES.items():
        if record is not PodSettings:
            yield f"\n# {record.__doc__}\n"
            for each in declared(record):
                value = str(each.default).lower() if isinstance(each.default, bool) else each.default
                yield f"# {each.help}\n{prefix}{each.name.upper()}={value}\n"


class _Compact(yaml.SafeDumper):
    """Writes maps and lists of scalars that fit on a line as one line, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        return super().represent_mapping(tag, mapping, flow_style=_fits(mapping, mapping.values()))

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, flow_style=_fits(sequence, sequence))


def _fits(value: Any, members: Iterable[Any]) -> bool:
    return len(str(value)) < _SHORT and not any(isinstance(each, dict | list) for each in members)


def main() -> None:
    """Write every file."""
    for path, text in rendered().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
