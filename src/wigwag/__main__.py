"""`python -m wigwag` is `wigwag`."""

from __future__ import annotations

import sys

from wigwag.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
