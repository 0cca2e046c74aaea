"""InProcessConfiguration: the environment of workloads whose OpenFeature provider evaluates flags by itself."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from wigwag.operator.resources.kubernetes import EnvVar, ObjectMeta, ObjectStatus, Port
from wigwag.operator.resources.schema import declared


class InProcessSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where an in-process provider finds its flags."""

    port: Annotated[Port, declared("Of the server that sends the flags.", default=8015)] = 8015
    socket_path: Annotated[str, declared("Its Unix socket, instead of host and port.")] = ""
    host: Annotated[str, declared("Of the server that sends the flags.", default="localhost")] = "localhost"
    tls: Annotated[bool, declared("Connect by TLS.", default=False)] = False
    offline_flag_source_path: Annotated[str, declared("Read flags from this file instead.")] = ""
    selector: Annotated[str, declared("Which flags to ask for.")] = ""
    cache: Annotated[
        str, Meta(pattern="^(lru|disabled)$"), declared("Of resolved values: lru or disabled.", default="lru")
    ] = "lru"
    cache_max_size: Annotated[int, declared("How many values the cache holds.", default=1000)] = 1000
    env_vars: Annotated[list[EnvVar], declared("As in a container; each name gets the prefix.")] = []
    env_var_prefix: Annotated[str, declared("Of all variables.", default="FLAGD")] = "FLAGD"


class InProcessStatus(ObjectStatus, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who uses a configuration."""

    workloads: Annotated[int, declared("How many workloads name this object.")] = 0


class InProcessConfiguration(Struct, frozen=True, kw_only=True):
    """An object of the kind InProcessConfiguration."""

    metadata: ObjectMeta = ObjectMeta()
    spec: InProcessSpec = InProcessSpec()
    status: InProcessStatus = InProcessStatus()
