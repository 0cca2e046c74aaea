"""Variables of agents and workloads, in the order of the original.

The user's variables come first. Their names get the prefix, except for those of cloud providers, which their libraries
look for. Then come those that tell a provider where the agent is.

Credentials are for the agent only: variables of cloud providers, those from a Secret, and those whose name says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from wigwag.operator.resources.kubernetes import EnvVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec
    from wigwag.operator.resources.inprocessconfiguration import InProcessSpec

CLOUD = ("AZURE_STORAGE", "AWS_", "GOOGLE_")
"""How names begin that get no prefix."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(PRIVATE|API|ACCESS|ACCOUNT)_?KEY", re.IGNORECASE)


def prefixed(prefix: str, name: str) -> str:
    """Return the name of a variable.

    >>> prefixed("FLAGD", "PORT"), prefixed(" ", "PORT")
    ('FLAGD_PORT', 'PORT')
    """
    return f"{prefix}_{name}" if prefix.strip() else name


def agent_variables(spec: FeatureFlagSourceSpec) -> list[EnvVar]:
    """Return the variables of an agent."""
    own = {
        "MANAGEMENT_PORT": str(spec.management_port),
        "PORT": str(spec.port),
        "EVALUATOR": spec.evaluator,
        "LOG_FORMAT": spec.log_format,
        "RESOLVER": "rpc",
    }
    if spec.socket_path:
        own["SOCKET_PATH"] = spec.socket_path
    return _together(spec.env_var_prefix, spec.env_vars, own)


def in_process_variables(spec: InProcessSpec) -> list[EnvVar]:
    """Return the variables of workloads with in-process providers."""
    own = {
        "HOST": spec.host,
        "PORT": str(spec.port),
        "TLS": str(spec.tls).lower(),
        "CACHE": spec.cache,
        "MAX_CACHE_SIZE": str(spec.cache_max_size),
        "RESOLVER": "in-process",
    }
    optional = {
        "SOCKET_PATH": spec.socket_path,
        "OFFLINE_FLAG_SOURCE_PATH": spec.offline_flag_source_path,
        "SOURCE_SELECTOR": spec.selector,
    }
    own |= {name: value for name, value in optional.items() if value}
    return _together(spec.env_var_prefix, spec.env_vars, own)


def _together(prefix: str, given: Iterable[EnvVar], own: dict[str, str]) -> list[EnvVar]:
    """Return the user's variables and ours; of several with one name the last, which is the one that counts."""
    variables: dict[str, EnvVar] = {}
    ours = [EnvVar(prefixed(prefix, name), value) for name, value in own.items()]
    for each in (*(_named(prefix, each) for each in given), *ours):
        variables.pop(each.name, None)
        variables[each.name] = each
    return list(variables.values())


def _named(prefix: str, variable: EnvVar) -> EnvVar:
    """Return a variable under its full name; `value` goes before `valueFrom`."""
    name = variable.name if variable.name.startswith(CLOUD) else prefixed(prefix, variable.name)
    return EnvVar(name, variable.value, None if variable.value else variable.value_from)


def is_credential(variable: EnvVar) -> bool:
    """Tell whether a variable is for the agent only.

    >>> is_credential(EnvVar("AWS_REGION")), is_credential(EnvVar("FLAGD_PORT")), is_credential(EnvVar("APP_TOKEN"))
    (True, False, True)
    """
    secret = "secretKeyRef" in (variable.value_from or {})
    return secret or variable.name.startswith(CLOUD) or _SECRET.search(variable.name) is not None


def workload_variables(variables: Sequence[EnvVar], *, share_credentials: bool) -> list[EnvVar]:
    """Return the variables of an agent that the workload's containers get, too."""
    return [each for each in variables if share_credentials or not is_credential(each)]
