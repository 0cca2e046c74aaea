"""How a Consul agent is asked: where it is, who we are, what of it is meant, and what its refusals mean.

A token may be in a file, which is read for every question: it is replaced while we run. Nothing that Consul says is
quoted in an error, because it may name tokens and rules; what it is known to say is put into our own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlencode

from wigwag.errors import UsageError, WigwagError
from wigwag.sources.consul.query import LONGEST_WAIT, WAIT
from wigwag.sources.disk.read import read
from wigwag.version import __version__
from wigwag.wire.client.tls import Trust
from wigwag.wire.client.url import Url, parse_url
from wigwag.wire.h1.client import Fields, check_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.wire.client.client import ClientResponse

Consistency = Literal["default", "stale", "consistent"]
CONSISTENCIES = ("default", "stale", "consistent")
STALEST = 60.0
"""Seconds since its last contact with a leader after which a server's stale answer is not taken."""
_LARGEST_TOKEN = 64 << 10
_FILTERED = "x-consul-results-filtered-by-acls"
_SAID = (
    (b"No cluster leader", "Consul has no leader at present; see that most of its servers are up"),
    (b"No path to datacenter", "Consul knows no way to that datacenter; check its name"),
    (b"ACL not found", "Consul does not know the token, or it was revoked; give another"),
    (b"Permission denied", "the token may not read this; give it the right to, or another token"),
    (b"Enterprise feature", "this Consul has no namespaces and partitions; leave them out"),
)
_REMEDIES = {
    401: "check the credentials",
    403: "check the token and its rights",
    404: "see whether this is Consul",
    429: "too many requests or connections for its limits",
}


class ConsulRefusedError(WigwagError):
    """Consul answered, but not what was asked for."""

    def __init__(self, message: str, *, forget: bool = True) -> None:
        super().__init__(message)
        self.forget = forget
        """Whether the index that was waited for may mean nothing any more."""


@dataclass(frozen=True, slots=True, repr=False)
class ConsulAccess:
    """A Consul agent, and how to ask it. Shown without its secrets."""

    address: str = "127.0.0.1:8500"
    """HOST:PORT, or the path of a unix socket."""
    tls: bool = False
    datacenter: str = ""
    namespace: str = ""
    partition: str = ""
    token: str = ""
    token_file: str = ""
    """Where the token is, instead."""
    auth_header: str = ""
    """The whole `Authorization`, for what stands before Consul."""
    ca_path: str = ""
    """Trust what this signs; empty: what the system trusts."""
    cert_path: str = ""
    key_path: str = ""
    consistency: Consistency = "default"
    wait: float = WAIT
    """The longest that a question waits for a change, in seconds."""

    def __post_init__(self) -> None:
        self.url("/v1/status/leader", {})
        check_fields(self._credentials(self.token))
        if self.consistency not in CONSISTENCIES:
            raise UsageError(f"{self.consistency!r} is no consistency; use one of {', '.join(CONSISTENCIES)}")
        if not 0 < self.wait <= LONGEST_WAIT:
            raise UsageError(f"wait must be more than 0 and at most {LONGEST_WAIT:.0f} seconds")

    @property
    def socket(self) -> str:
        """The path of the unix socket by which it is asked; empty if there is none."""
        return self.address if self.address.startswith("/") else ""

    @property
    def trust(self) -> Trust:
        """What proves who Consul is, and who we are."""
        return Trust(self.ca_path, self.cert_path, self.key_path)

    @property
    def heartbeat(self) -> float:
        """How many seconds an answer takes at most while all is well; Consul adds up to a sixteenth by lot."""
        return self.wait * 17 / 16

    def __str__(self) -> str:
        return f"consul://{self.address}"

    __repr__ = __str__

    def url(self, path: str, query: Mapping[str, str]) -> Url:
        """Return where a question goes."""
        meant = {"dc": self.datacenter, "ns": self.namespace, "partition": self.partition}
        parameters = {**query, **{name: value for name, value in meant.items() if value}}
        if self.consistency != "default":
            parameters[self.consistency] = ""
        host = "localhost" if self.socket else self.address
        scheme = "https" if self.tls else "http"
        return parse_url(f"{scheme}://{host}{quote(path)}" + (f"?{urlencode(parameters)}" if parameters else ""))

    def fields(self) -> Fields:
        """Return the fields of a request, with the token of now."""
        token = _word(self.token_file) if self.token_file else self.token
        usual = (("Accept-Encoding", "gzip"), ("User-Agent", f"wigwag/{__version__}"))
        return (*usual, *self._credentials(token))

    def _credentials(self, token: str) -> Fields:
        found = (("X-Consul-Token", token), ("Authorization", self.auth_header))
        return tuple((name, value) for name, value in found if value)

    def judge(self, reply: ClientResponse, where: object) -> None:
        """Refuse what is no answer to the question: an error, part of the truth, or one that is too old."""
        missing = reply.status == 404 and reply.field("x-consul-index")
        if reply.status != 200 and not missing:
            raise refusal(reply, where)
        if reply.field(_FILTERED).lower() == "true":
            raise ConsulRefusedError(
                f"{where}: the token may not read all of it, and part of it is not taken for the whole"
            )
        contact = reply.field("x-consul-lastcontact")
        if self.consistency == "stale" and contact.isdigit() and int(contact) > STALEST * 1000:
            said = f"the server that answered has not heard from a leader for {int(contact) // 1000} s"
            raise ConsulRefusedError(f"{where}: {said}; see that most of its servers are up", forget=False)


def refusal(reply: ClientResponse, where: object) -> ConsulRefusedError:
    """Put a status that brings no answer into words."""
    status = reply.status
    known = next((words for said, words in _SAID if said in reply.body), "")
    remedy = known or _REMEDIES.get(status, "look at Consul" if status >= 500 else "see whether this is Consul")
    return ConsulRefusedError(f"{where}: answered {status}: {remedy}", forget=status < 500 and status != 429)


def index_of(reply: ClientResponse) -> int:
    """Return the index of an answer; 0 if it names none."""
    text = reply.field("x-consul-index")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _word(path: str) -> str:
    """Return what a file holds, without the line's end that editors leave."""
    try:
        found = read(path, _LARGEST_TOKEN).decode().strip()
        check_fields((("X-Consul-Token", found),))
    except (OSError, UnicodeDecodeError, UsageError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not the text of a token"
        raise UsageError(f"{path}: {reason}; it must hold the token for Consul") from None
    if not found:
        raise UsageError(f"{path}: is empty; it must hold the token for Consul")
    return found
