"""Pictures of the console for the documentation: the demo flags in a real browser, light and dark.

    .venv/bin/python -m tools.screenshots

Some evaluations are made before, so that there is something to see.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

from tests.agent.process import AgentProcess
from tests.console.browser import browser

IMAGES = Path(__file__).parent.parent / "docs/images"
USERS = 200
VIEWS = {
    "flags": ("flags", "document.querySelectorAll('.spark rect').length > 3"),
    "flag": ("flag?key=background-colour&set=demo", "document.querySelector('.here')"),
    "whatif": ("whatif", "document.querySelector('#whatif-diff')"),
}


def main() -> None:
    """Start an agent, look at it, and write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, AgentProcess() as agent, browser(Path(profile)) as running:
        page = running.open(f"http://{agent.address('management')}/console/", 1180, 560)
        for number in range(USERS):
            evaluate(agent.address("OFREP"), {"targetingKey": f"user-{number}", "email": f"u{number}@example.com"})
        page.wait(VIEWS["flags"][1])
        for scheme in ("light", "dark"):
            page.prefer(scheme)
            for name, (place, shown) in VIEWS.items():
                page.run(f"location.hash = {json.dumps('#/' + place)}")
                page.wait(shown)
                page.wait("document.getAnimations().length === 0")
                page.screenshot(IMAGES / f"console-{name}-{scheme}.png")


def evaluate(address: str, context: dict[str, str]) -> None:
    """Evaluate all flags."""
    body = json.dumps({"context": context}).encode()
    with urlopen(Request(f"http://{address}/ofrep/v1/evaluate/flags", body), timeout=20) as response:
        response.read()


if __name__ == "__main__":
    main()
