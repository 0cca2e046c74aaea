"""A small web service whose settings are dynamic flags: change its ConfigMap, and it behaves otherwise at once.

    python examples/server_kube/server.py --config-dir=examples/server_kube/flags --config-port=8081
    curl localhost:8080/

There is nothing here but the standard library and `wigwag.dflag`. README.md tells what to try.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from wigwag import dflag

log = logging.getLogger("example")


@dataclass(frozen=True)
class Policy:
    """A flag that is JSON: who is let in, and how often."""

    policy: str = "allow"
    rate: int = 50


flags = dflag.FlagSet("example")
port = flags.int("example_my_static_int", 8080, "the port to serve at; 0 is any that is free", dynamic=False)
greeting = flags.str("example_my_dynamic_string", "initial_value", "what it says", validators=[dflag.not_blank])
times = flags.int("example_my_dynamic_int", 1, "how often it says so", validators=[dflag.in_range(1, 100)])
patience = flags.duration("example_my_dynamic_duration", "2s", "how long it waits for a slow client")


def acceptable(policy: Policy) -> bool:
    """Tell whether a policy makes sense; what does not is refused, and the one before it stays."""
    return policy.policy in ("allow", "deny") and policy.rate > 0


admission = flags.json("example_my_dynamic_json", Policy(), "who is let in", validators=[acceptable])


class Handler(BaseHTTPRequestHandler):
    """Answers requests. Each sees the flags of one generation, whatever changes meanwhile."""

    def setup(self) -> None:
        """Be as patient with a client as the flag says."""
        self.request.settimeout(patience.get().total_seconds())
        super().setup()

    def do_GET(self) -> None:
        """Say what there is to say."""
        with flags.pinned() as snapshot:
            allowed = admission().policy == "allow"
            told = {
                "says": [greeting()] * times() if allowed else [],
                "policy": asdict(admission()),
                "generation": snapshot.generation,
            }
        body = json.dumps(told).encode() + b"\n"
        self.send_response(200 if allowed else 403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log a request, at a level that `loglevel` shows or hides."""
        log.debug(format, *args)


def tell(old: dflag.Snapshot, new: dflag.Snapshot) -> None:
    """Log what has changed. One call for each generation; a single flag can have notifiers of its own."""
    changed = {name: new[name] for name in new if new[name] != old[name]}
    log.info("generation %d: %s", new.generation, changed)


def main() -> None:
    """Serve until told to stop."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    parser = argparse.ArgumentParser(description="A web service with dynamic flags.")
    parser.add_argument("--bind", default="127.0.0.1", help="the address to serve at")
    dflag.install(parser, flags)
    options = parser.parse_args()
    flags.on_change(tell)
    with dflag.service(flags, options, environment=os.environ):
        server = ThreadingHTTPServer((options.bind, port.get()), Handler)
        stop = Thread(target=server.shutdown)  # not here: it waits for the loop that a signal interrupts
        signal.signal(signal.SIGTERM, lambda number, frame: stop.start())
        log.info("serving at http://%s:%d/", *server.server_address[:2])
        with server:
            server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
