"""`remoteFlagProvider` of a FeatureFlag: a source elsewhere, whose flags are added to those of the object.

Its types are the agent's own kinds of sources. The schema has no rule for them: it would refuse a typo before the
webhook can say what was probably meant. `operator.remoteflags` checks what the schema cannot.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from wigwag.operator.resources.schema import declared
from wigwag.sources.fields import LONGEST_INTERVAL
from wigwag.sources.kinds import REMOTE

TYPES = tuple(name for kind in REMOTE for name in kind.names)
"""What `type` may be."""
MERGE, OVERRIDE = "merge", "override"
_NO_PASSWORD = declared(
    "Its address, as the agent takes it in `--sources`.",
    rules={
        "!self.matches('^[^/?#]*//[^/?#]*@')": (
            "has a user or a password in it, which everybody reads who reads the object; put them into a Secret"
        )
    },
)


class RemoteCredentials(Struct, frozen=True, kw_only=True):
    """Where the agent finds its credentials."""

    secret: Annotated[
        str,
        Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
        declared("A Secret in the namespace of the pod. It is mounted into the agent's container, and nowhere else."),
    ]


class RemoteFlagProvider(Struct, frozen=True, kw_only=True, rename="camel"):
    """A source elsewhere, whose flags are added to those of the object."""

    type: Annotated[str, Meta(max_length=63), declared(f"One of {', '.join(TYPES)}.")]
    uri: Annotated[str, Meta(min_length=1, max_length=2048), _NO_PASSWORD]
    strategy: Annotated[
        Literal["merge", "override"],
        declared(
            "Which definition of a flag wins: `merge`, that of the object; `override`, the remote's.", default=MERGE
        ),
    ] = "merge"
    credentials: RemoteCredentials | None = None
    interval: Annotated[
        int, Meta(ge=0, le=LONGEST_INTERVAL), declared("Seconds between polls; 0: 5 s.", format="int32")
    ] = 0
    selector: Annotated[str, Meta(max_length=1024), declared("Which flags to ask a gRPC server for.")] = ""
    provider_id: Annotated[str, Meta(max_length=253)] = field(default="", name="providerID")
    tls: Annotated[bool, declared("Use TLS where the URI does not say so.")] = False
    required: Annotated[bool, declared("Whether agents are ready only when it has answered.")] = False
