"""`wigwag sidecars`: which agents run with which image, and how far the operator is with upgrading them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wigwag.errors import UsageError, WigwagError
from wigwag.golang import duration_text
from wigwag.options import duration, option

if TYPE_CHECKING:
    from collections.abc import Mapping

HELP = "show which images the injected agents run, and how far an upgrade is"
DESCRIPTION = """\
Show how far the operator is with upgrading injected agents: each workload, the images that its pods run, and why an
upgrade pauses. The report is a ConfigMap that the operator keeps if it is started with --sidecar-upgrade.

  wigwag sidecars                                   of the cluster that your kubeconfig names
  wigwag sidecars --namespace shop
  wigwag sidecars --wait --timeout 10m              until all agents have the image, or one has failed

Exits with 0 if all agents have the operator's image, with 1 if some have not, with 2 if the report cannot be read.
"""
OPEN = ("behind", "upgrading", "failed")
"""The states that are not the end."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag sidecars`."""

    namespace: str = option("", "only workloads of this namespace", short="-n", metavar="NAME")
    operator_namespace: str = option(
        "open-feature-operator-system", "the namespace of the operator, which has the report", metavar="NAME"
    )
    wait: bool = option(False, "wait until the upgrade is over, or pauses")
    timeout: float = option(300.0, "how long to wait, with --wait", metavar="DURATION", convert=duration)


def run(options: Options) -> int:
    """Print the report, and return the exit code."""
    import asyncio

    report = asyncio.run(_report(options))
    if report is None:
        where = f"ConfigMap {options.operator_namespace}/open-feature-operator-sidecars"
        raise UsageError(
            f"there is no report ({where}); start the operator with --sidecar-upgrade, or name its --operator-namespace"
        )
    print(report.get("summary", ""))
    headings, *rows = report.get("workloads", "\n").splitlines()
    shown = [row for row in rows if options.namespace in ("", row.split()[0])]
    if shown:
        print(headings, *shown, sep="\n")
    return 0 if is_over(report) else 1


def is_over(report: Mapping[str, str]) -> bool:
    """Tell whether no agent is to be upgraded any more.

    >>> is_over({"behind": "0", "current": "5"}), is_over({"behind": "0", "failed": "1"})
    (True, False)
    """
    return all(report.get(state, "0") == "0" for state in OPEN)


async def _report(options: Options) -> Mapping[str, str] | None:
    """Return the data of the ConfigMap; with `--wait`, when it says that the upgrade is over or pauses."""
    import asyncio

    from wigwag.kube.hub import alone
    from wigwag.kube.kinds import CONFIG_MAP
    from wigwag.kube.watch.decode import plain
    from wigwag.kube.watch.spec import KubeWatch
    from wigwag.operator.upgrades.report import REPORT
    from wigwag.pipeline.spec import Unavailable, Unchanged
    from wigwag.pipeline.watch import closing

    data: Mapping[str, str] | None = None
    watch = alone(KubeWatch(CONFIG_MAP, options.operator_namespace, REPORT), plain)
    try:
        async with asyncio.timeout(options.timeout), closing(watch) as items:
            async for item in items:
                if isinstance(item, Unavailable):
                    raise WigwagError(f"the report cannot be read: {item.reason}")
                if isinstance(item, Unchanged):
                    continue
                data = next((each["data"] for each in item.values()), None)
                if data is None or not options.wait or is_over(data) or data.get("paused"):
                    return data
    except TimeoutError:
        if data is None:
            raise WigwagError(f"the API server has not answered within {duration_text(options.timeout)}") from None
    return data
