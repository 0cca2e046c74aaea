"""Which rights are used: what accounts ask of an API server, by its audit log, against the rules of their roles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_LOG = "audit.log"


class Right(NamedTuple):
    """Something that a rule allows; `resource` with the subresource, as rules write it."""

    verb: str
    group: str
    resource: str


def audit_flags(folder: Path) -> list[str]:
    """Return the flags of an API server that notes what service accounts ask for, in a folder."""
    accounts = {"level": "Metadata", "userGroups": ["system:serviceaccounts"], "omitStages": ["RequestReceived"]}
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [accounts, {"level": "None"}]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
    return [f"--audit-policy-file={folder / 'policy.yaml'}", f"--audit-log-path={folder / _LOG}"]


def requests(folder: Path, account: str) -> Iterator[Mapping[str, Any]]:
    """Yield the requests of an account, NAMESPACE:NAME, that were answered."""
    for line in (folder / _LOG).read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"] == f"system:serviceaccount:{account}" and "objectRef" in event:
            yield event


def used_rights(events: Iterable[Mapping[str, Any]]) -> set[Right]:
    """Return the rights without which these requests would have been refused."""
    used = set()
    for event in events:
        about = event["objectRef"]
        resource = "/".join(part for part in (about.get("resource"), about.get("subresource")) if part)
        used.add(Right(event["verb"], about.get("apiGroup", ""), resource))
        if event["verb"] == "patch" and event["responseStatus"]["code"] == 201:  # an apply that made the object
            used.add(Right("create", about.get("apiGroup", ""), resource))
    return used


def granted_rights(roles: Iterable[Mapping[str, Any]]) -> set[Right]:
    """Return what roles allow."""
    return {
        Right(verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def forbidden(events: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    """Return the requests that were refused for lack of a right; not those that their namespace was too late for."""
    decided = "authorization.k8s.io/decision"
    return [f"{each['verb']} {each['requestURI']}" for each in events if each["annotations"].get(decided) == "forbid"]
