"""InProcessConfiguration: the environment of workloads whose OpenFeature provider evaluates flags by itself."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from wigwag.operator.resources.kubernetes import EnvVar, ObjectMeta, ObjectStatus, Port
from wigwag.operator.resources.schema import declared


class InProcessSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where an in-process provider finds its flags."""

    port: Annotated[Port, declared(default=8015)] = 8015
    socket_path: str = ""
    host: Annotated[str, declared(default="localhost")] = "localhost"
    tls: Annotated[bool, declared(default=False)] = False
    offline_flag_source_path: str = ""
    selector: str = ""
    cache: Annotated[str, Meta(pattern="^(lru|disabled)$"), declared(default="lru")] = "lru"
    cache_max_size: Annotated[int, declared(default=1000)] = 1000
    env_vars: list[EnvVar] = []
    env_var_prefix: Annotated[str, declared(default="FLAGD")] = "FLAGD"


class InProcessStatus(ObjectStatus, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who uses a configuration."""

    workloads: Annotated[int, declared("How many workloads name this object.")] = 0


class InProcessConfiguration(Struct, frozen=True, kw_only=True):
    """An object of the kind InProcessConfiguration."""

    metadata: ObjectMeta = ObjectMeta()
    spec: InProcessSpec = InProcessSpec()
    status: InProcessStatus = InProcessStatus()
