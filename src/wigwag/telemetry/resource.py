"""Who sends: the resource that all telemetry of this process belongs to."""

from __future__ import annotations

import platform
import socket
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import Resource

from wigwag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "flagd"


def resource(attributes: Mapping[str, str]) -> Resource:
    """Return what flagd tells of itself, overridden by what the environment says."""
    own = {
        "service.name": NAME,
        "service.version": __version__,
        "host.name": socket.gethostname(),
        "os.type": platform.system().lower(),
        "process.runtime.name": platform.python_implementation().lower(),
        "process.runtime.version": platform.python_version(),
    }
    return Resource.create(own | dict(attributes))
