"""watt as an object: the pipeline, its hooks and outputs, and the numbered snapshots. It listens on no port.

    watches ─▶ Pipeline ─▶ WattSnapshot ─▶ History ─▶ notify hooks, directories, readers
       ▲                        │
       └── watch hooks, resolvers

As a library:

    async with Watt(source=["services"], notify=[print]) as watt:
        async for snapshot in watt:
            ...

The keyword arguments are the options of `wigwag watt`; hooks may be Python functions.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wigwag.errors import UsageError
from wigwag.kube.hub import Hub
from wigwag.pipeline.limit import Composite, Interval, unlimited
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.pipeline.watch import WatchPolicy
from wigwag.watt.options import options_of
from wigwag.watt.resolvers import Resolvers
from wigwag.watt.snapshot import Assembler
from wigwag.watt.specs import KubernetesSpec
from wigwag.watt.watchers import Watchers
from wigwag.watt.watchset import read_watch_set, read_watches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from wigwag.watt.options import WattOptions
    from wigwag.watt.snapshot import WatchPart, WattSnapshot
    from wigwag.watt.specs import Spec
