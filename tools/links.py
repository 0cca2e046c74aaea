"""What `mkdocs.yml` calls while it builds the site.

Pages may link to files outside `docs`, such as an example. On a code host such a link leads somewhere; in the site it
would not, so there the text of the link is left without the link.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_LINK = re.compile(r"\[([^\]]+)\]\((\.\.?/[^)#\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page without links that leave `docs`."""
    return without_outside_links(markdown, DOCS / page.file.src_uri)


def without_outside_links(markdown: str, path: Path) -> str:
    """Replace links to files of the repository that are not in `docs` by their text.

    >>> without_outside_links("[a](../agent.md) and [b](../../bench/agent.py)", DOCS / "guides" / "flags.md")
    '[a](../agent.md) and b'
    """

    def replaced(link: re.Match[str]) -> str:
        target = (path.parent / link[2]).resolve()
        return link[0] if target.is_relative_to(DOCS.resolve()) or not target.exists() else link[1]

    return _LINK.sub(replaced, markdown)
