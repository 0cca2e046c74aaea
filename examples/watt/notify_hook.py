"""A notify hook: write the endpoints of all Consul services as upstreams of nginx.

    notify_hook.py FILE URL      FILE is what it writes; URL is the snapshot, which watt appends

It fetches the snapshot, and replaces the file in one step if its content is another one. Reload nginx where it says so.
If it fails, it exits with another code than 0, and watt calls it again after a pause.
"""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen


def upstreams(snapshot: dict[str, Any]) -> str:
    """Return the configuration; a service without an endpoint answers 502, so it gets one that is always down."""
    blocks: list[str] = []
    for name, service in sorted(snapshot["Consul"]["Endpoints"].items()):
        servers = [f"    server {each['Address']}:{each['Port']};" for each in service["Endpoints"]]
        blocks.append("\n".join([f"upstream {name} {{", *(servers or ["    server 127.0.0.1:9 down;"]), "}"]))
    return "\n".join(blocks) + "\n"


def main(target: Path, url: str) -> None:
    """Write the file, if it changes."""
    with urlopen(url, timeout=10) as response:  # noqa: S310 - the URL is watt's
        text = upstreams(json.load(response))
    if target.exists() and target.read_text() == text:
        return
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.write_text(text)
    temporary.replace(target)
    print(f"{target} has changed: reload nginx")  # subprocess.run(["nginx", "-s", "reload"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
