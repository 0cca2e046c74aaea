"""How much a client may ask of the server: each number guards memory or time against one kind of abuse."""

from __future__ import annotations

from msgspec import Struct


class WireLimits(Struct, frozen=True, kw_only=True):
    """Limits of one listener."""

    header_bytes: int = 64 * 1024
    """All header names and values of one request, decoded."""
    header_count: int = 256
    body_bytes: int = 4 * 1024 * 1024
    """One request's body, decompressed. Over it: 413, or RESOURCE_EXHAUSTED."""
    connections: int = 10_000
    connections_per_address: int = 0
    """Of them, from one IPv4 address or IPv6 /64 that is not this machine; 0 for no limit."""
    http2: bool = True
    """Whether clients may speak HTTP/2. Without it, have TLS offer none, either."""
    streams: int = 256
    """Requests that one HTTP/2 connection may have under way."""
    header_seconds: float = 5.0
    """From the first byte of a request, or of a connection, to the end of its headers."""
    body_seconds: float = 30.0
    """From the end of the headers to the end of the body."""
    idle_seconds: float = 300.0
    """Without any request under way."""
    write_buffer: int = 256 * 1024
    """Bytes that wait for a client before its streams are no longer pulled."""
    write_seconds: float = 60.0
    """How long a client may take less than `write_bytes` while something waits for it."""
    write_bytes: int = 64 * 1024
    """What a client must take in `write_seconds`, unless it takes everything."""
    retained_bytes: int = 8 * 1024 * 1024
    """Bytes of responses that may wait for one client before its next requests and streams wait, too."""
    abuse: int = 500
    """Control frames (resets, settings, empty ones) in ten seconds before the connection is closed."""
    pings: int = 40_000
    """Pings in ten seconds before the connection is closed: four times what a grpcio client sends at its fastest."""
    ping_seconds: float = 30.0
    """Keep-alive enforcement: the shortest interval of pings on a connection with streams; 0 for none."""
    ping_without_stream: bool = True
