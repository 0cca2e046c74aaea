"""The watcher of each kind of spec: what it yields becomes a `WatchPart`.

Kubernetes watches share one client and one discovery per process, Consul watches one client per agent, directories one
inotify handle. The pipeline starts a watcher per spec, and starts it again if it fails.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.kube.discovery import NamedWatch, watch_named
from wigwag.kube.hub import Hub
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources.consul.endpoints import watch_endpoints
from wigwag.sources.consul.hub import ConsulHub
from wigwag.sources.consul.keys import KeysWatch, watch_keys
from wigwag.sources.disk.directory import DirectoryWatch, watch_directory
from wigwag.sources.disk.follow import FollowDeps
from wigwag.sources.disk.notify import Notifier
from wigwag.sources.kinds import documents
from wigwag.watt.objects import decoder
from wigwag.watt.snapshot import TableName, WatchPart, entry
from wigwag.watt.specs import ConsulSpec, DirectorySpec, DocumentSpec, KeysSpec, KubernetesSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from wigwag.sources.consul.endpoints import ServiceEndpoints
    from wigwag.watt.specs import Spec

ENDPOINTS, KEYS = TableName("Consul", "Endpoints"), TableName("Consul", "KV")
_encode = msgspec.json.Encoder().encode
