"""Dynamic flags: typed settings of a service that change while it runs, driven by a mounted ConfigMap.

    from wigwag import dflag

    flags = dflag.FlagSet("example")
    rate = flags.int("rate", 10, "requests per second", validators=[dflag.in_range(0, 100)])
    updater = dflag.setup(flags, "/etc/dflag")
    rate.get()

May live here: flags, their values, where those come from, and the updater. May not: a network stack, nor anything that
importing this package would load without need. So each name is imported on first use, and asyncio when an updater
starts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wigwag.dflag.cluster.configmap import ConfigMap
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet, new
    from wigwag.dflag.frontends.arguments import add_to
    from wigwag.dflag.origin import LAST_WRITER, PRECEDENCE, Held, Origin
    from wigwag.dflag.page.server import PageServer
    from wigwag.dflag.page.site import Access, Site
    from wigwag.dflag.snapshot import Snapshot
    from wigwag.dflag.startup.levels import loglevel, loglevels
    from wigwag.dflag.startup.load import load_environment, load_files, load_texts
    from wigwag.dflag.startup.options import ServiceOptions
    from wigwag.dflag.startup.serving import install, service
    from wigwag.dflag.updating.health import Problem
    from wigwag.dflag.updating.places import Directory
    from wigwag.dflag.updating.policy import Policy
    from wigwag.dflag.updating.updater import Updater, setup, watching
    from wigwag.dflag.values.validators import Rule, each, in_range, length, matches, not_blank, one_of, url
    from wigwag.errors import FlagError, StartError, StaticFlagError, UsageError

__all__ = [
    "LAST_WRITER",
    "PRECEDENCE",
    "Access",
    "ConfigMap",
    "Directory",
    "DynFlag",
    "FlagError",
    "FlagSet",
    "Held",
    "Origin",
    "PageServer",
    "Policy",
    "Problem",
    "Rule",
    "ServiceOptions",
    "Site",
    "Snapshot",
    "StartError",
    "StaticFlagError",
    "Updater",
    "UsageError",
    "add_to",
    "each",
    "in_range",
    "install",
    "length",
    "load_environment",
    "load_files",
    "load_texts",
    "loglevel",
    "loglevels",
    "matches",
    "new",
    "not_blank",
    "one_of",
    "service",
    "setup",
    "url",
    "watching",
]
_MODULES = {
    "wigwag.dflag.cluster.configmap": "ConfigMap",
    "wigwag.dflag.flag": "DynFlag",
    "wigwag.dflag.flagset": "FlagSet new",
    "wigwag.dflag.frontends.arguments": "add_to",
    "wigwag.dflag.startup.levels": "loglevel loglevels",
    "wigwag.dflag.startup.load": "load_environment load_files load_texts",
    "wigwag.dflag.startup.options": "ServiceOptions",
    "wigwag.dflag.origin": "LAST_WRITER PRECEDENCE Held Origin",
    "wigwag.dflag.page.server": "PageServer",
    "wigwag.dflag.page.site": "Access Site",
    "wigwag.dflag.updating.places": "Directory",
    "wigwag.dflag.updating.health": "Problem",
    "wigwag.dflag.updating.policy": "Policy",
    "wigwag.dflag.startup.serving": "install service",
    "wigwag.dflag.snapshot": "Snapshot",
    "wigwag.dflag.updating.updater": "Updater setup watching",
    "wigwag.dflag.values.validators": "Rule each in_range length matches not_blank one_of url",
    "wigwag.errors": "FlagError StartError StaticFlagError UsageError",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
