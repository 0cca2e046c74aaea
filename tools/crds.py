"""Writes the custom resource definitions of the operator: `python -m tools.crds`. A test compares what is committed."""

from __future__ import annotations

from pathlib import Path

from wigwag.operator.resources.crd import RESOURCES, to_yaml

CRDS = Path(__file__).parent.parent / "src" / "wigwag" / "kube" / "crds"


def main() -> None:
    """Write every definition."""
    for resource in RESOURCES:
        (CRDS / resource.file_name).write_text(to_yaml(resource))


if __name__ == "__main__":
    main()
