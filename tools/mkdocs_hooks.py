"""What `mkdocs.yml` calls while it builds the site: pages are written for code hosts, and two things differ here.

Pages may link to files outside `docs`, such as an example. On a code host such a link leads somewhere; in the site it
would not, so there only the text of the link is left. And in the code of a table, code hosts want a backslash before a
bar, which the site would show.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_LINK = re.compile(r"\[([^\]]+)\]\((\.\.?/[^)#\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page as the site wants it."""
    return with_plain_bars(without_outside_links(markdown, DOCS / page.file.src_uri))


def with_plain_bars(markdown: str) -> str:
    r"""Remove the backslash before bars in the code of tables.

    >>> with_plain_bars(r"| `a \| b` | c \| d |")
    '| `a | b` | c \\| d |'
    """
    rows = re.compile(r"^\|.*$", re.MULTILINE)
    return rows.sub(lambda row: re.sub("`[^`]+`", lambda code: code[0].replace(r"\|", "|"), row[0]), markdown)


def without_outside_links(markdown: str, path: Path) -> str:
    """Replace links to files of the repository that are not in `docs` by their text.

    >>> without_outside_links("[a](../agent.md) and [b](../../bench/agent.py)", DOCS / "guides" / "flags.md")
    '[a](../agent.md) and b'
    """

    def replaced(link: re.Match[str]) -> str:
        target = (path.parent / link[2]).resolve()
        return link[0] if target.is_relative_to(DOCS.resolve()) or not target.exists() else link[1]

    return _LINK.sub(replaced, markdown)
