"""FeatureFlag: a set of flags.

Beyond the original: `defaultVariant` may be left out or null, as flagd allows, members of `flagSpec` that are not known
here are kept for the agent instead of being dropped, `tests` say what contexts must get, and `remoteFlagProvider` says
where more flags are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from wigwag.operator.resources.kubernetes import ObjectMeta, ObjectStatus
from wigwag.operator.resources.remoteflagprovider import RemoteFlagProvider
from wigwag.operator.resources.schema import OPEN, declared


class FlagDefinition(Struct, frozen=True, kw_only=True, rename="camel"):
    """A flag: its variants, which of them is the default, and a rule that chooses one."""

    state: Literal["ENABLED", "DISABLED"]
    variants: dict[str, Any]
    default_variant: Annotated[
        str | None, declared("Without it, the default in the application's code is used.", nullable=True)
    ] = None
    targeting: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class FlagSpec(Struct, frozen=True, kw_only=True):
    """The document that the agent reads."""

    flags: Annotated[
        dict[str, Annotated[FlagDefinition, declared(**{OPEN: True})]] | None,
        declared("Null is what the API server makes of an empty map that takes the place of flags.", nullable=True),
    ]
    evaluators: dict[str, Any] | None = field(default=None, name="$evaluators")
    metadata: dict[str, Any] | None = None


MOST_TESTS = 200


class FlagTest(Struct, frozen=True, kw_only=True):
    """A context, and the variant that it must get. A change of the flags that breaks a test is refused."""

    flag: Annotated[str, Meta(min_length=1)]
    variant: Annotated[str | None, declared("Null: the default in the application's code.", nullable=True)]
    context: dict[str, Any] | None = None
    name: Annotated[str, Meta(max_length=200), declared("Shown when the test fails.")] = ""
    timestamp: Annotated[
        int | None, declared("The time that rules see, in Unix seconds; by default the present.", format="int64")
    ] = None


class FeatureFlagSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """A set of flags."""

    flag_spec: Annotated[FlagSpec, declared(**{OPEN: True})] | None = None
    tests: Annotated[
        list[FlagTest], Meta(max_length=MOST_TESTS), declared("A change of the flags that breaks one is refused.")
    ] = []
    remote_flag_provider: RemoteFlagProvider | None = None


class AgentNotCurrent(Struct, frozen=True, kw_only=True):
    """An agent that does not have the flags yet, or does not say so."""

    pod: Annotated[str, declared("Its pod, as NAMESPACE/NAME.")]
    reason: str = ""


class AgentsStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which agents have the flags."""

    summary: Annotated[str, declared("Agents that have the flags, of all that use them, such as 41/42.")] = ""
    total: Annotated[int, declared("Agents that run and use the flags.")] = 0
    current: Annotated[int, declared("How many of them have the flags of `digest`.")] = 0
    unknown: Annotated[int, declared("How many of them did not say what they have.")] = 0
    clients: Annotated[int, declared("In-process clients that get the flags from a proxy.")] = 0
    clients_current: Annotated[int, declared("How many of them have been sent the flags of `digest`.")] = 0
    digest: Annotated[str, declared("The digest of the flags that agents should have.")] = ""
    observed_generation: Annotated[int, declared("The generation of the flags.", format="int64")] = 0
    lagging: Annotated[list[AgentNotCurrent], declared("Agents with other flags, the first of them.")] = []
    silent: Annotated[list[AgentNotCurrent], declared("Agents that do not say what they have, the first of them.")] = []


class FeatureFlagStatus(ObjectStatus, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the operator found in the flags."""

    flags: Annotated[int, declared("How many flags there are.")] = 0
    enabled: Annotated[int, declared("How many of them are enabled.")] = 0
    rules: Annotated[int, declared("How many of them have a targeting rule.")] = 0
    evaluators: int = 0
    errors: Annotated[int, declared("How many findings of the linter are errors.")] = 0
    warnings: Annotated[int, declared("How many other findings the linter has.")] = 0
    agents: Annotated[AgentsStatus | None, declared("How far the flags have come.")] = None


class FeatureFlag(Struct, frozen=True, kw_only=True):
    """An object of the kind FeatureFlag."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FeatureFlagSpec = FeatureFlagSpec()
    status: FeatureFlagStatus = FeatureFlagStatus()
