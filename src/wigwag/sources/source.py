"""A source: where flags come from, as one frozen record. `kinds.parse_sources` makes it from `--uri` and `--sources`.

A source is its own key in the pipeline. Two sources may have the same name (one gRPC server with two selectors), so
the position is part of the key. Secrets are in the settings, and `repr` does not show them.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import fields

from wigwag.sources.fields import OAuthFields

DEMO = "demo"
MOST = 64 << 20
INTERVAL = 5.0
_SECRET = ("address", "auth_header", "headers", "oauth")


class SourceSettings(Struct, frozen=True):
    """How to reach a source. Each kind reads the settings that it uses."""

    address: str = ""
    """The whole URI, if it differs from the name."""
    auth_header: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    interval: float = INTERVAL
    """Seconds between polls."""
    seed: str = ""
    """Decides the offset of the polls within the interval; empty: random."""
    timeout: float = 0.0
    oauth: OAuthFields | None = None
    tls: bool = False
    cert_path: str = ""
    provider_id: str = ""
    selector: str = ""
    incremental: bool = False
    """Whether a document replaces only the flag sets that it names."""
    max_message: int = MOST
    most: int = MOST
    """The largest document that is accepted, in bytes."""
    root: str = ""
    """The directory that a file must be in; empty: any."""
    on_delete: str = ""
    """What happens to flags when their object is deleted: `remove` removes them, empty keeps them."""
    token_file: str = ""
    """The file with the bearer token; read again for each connection."""
    credentials_folder: str = ""
    """The directory with credentials (see `credentials`); read again for each request or connection."""

    def __repr__(self) -> str:
        """Show what differs from the default; secrets as `…`."""
        values = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        shown = (f"{name}={'…' if name in _SECRET else repr(value)}" for name, value, usual in values if value != usual)
        return f"SourceSettings({', '.join(shown)})"


class Source(Struct, frozen=True, cache_hash=True):
    """Where flags come from."""

    name: str
    """The URI without secrets; the selector `source=` matches it."""
    provider: str
    position: int = 0
    """The priority: a later source wins. Also tells two sources of the same name apart."""
    settings: SourceSettings = SourceSettings()
    required: bool = True
    """Whether the agent is ready only when this source has answered."""

    @property
    def address(self) -> str:
        """The URI to connect to. It may hold secrets: do not show it."""
        return self.settings.address or self.name
