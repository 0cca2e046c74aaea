"""The OpenAPI document of the page: `openapi.json`, named after the flag set. A test compares it with `routes`."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from wigwag.version import __version__


def document(name: str, root: str) -> dict[str, Any]:
    """Return the document for the page of a flag set that is mounted at `root`."""
    text: dict[str, Any] = json.loads(files("wigwag.dflag.page").joinpath("openapi.json").read_text())
    info = {"title": f"Flags of {name}" if name else "Flags", "version": __version__}
    return {**text, "info": info, "servers": [{"url": root or "/"}]}
