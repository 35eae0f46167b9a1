"""`policyctl drift`: pods on nodes that the policies would now refuse, or put elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources
from kube_policy_scheduler.cli.given import Given, with_given
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say_json, say_lines, status_line, terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube_policy_scheduler.cluster.objects import Requirement
    from kube_policy_scheduler.cluster.pods import PodInfo

EPILOG = """
\b
Examples:
  policyctl drift --policies policies/                     # your current kubectl context
  policyctl drift --policies policies/ --cluster cluster.json.gz --margin 25
  policyctl drift --policies a.policy -n shop -l app=web,tier!=test --format json
  policyctl drift --cluster cluster.yaml                   # with Kubernetes' own rules

\b
A pod has drifted if its node would now be rejected (a taint, a label, a metric), or if another node is better by
more than --margin, in points of the policy's scores. The command moves and evicts nothing.

\b
Exit codes: 0 no pod has drifted; 1 a pod has drifted; 2 the command could not run.
"""


SECTION = Section.CHANGE


@click.command(epilog=EPILOG)
@cluster_sources.cluster_options
@cluster_sources.policies_option()
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, help="Check only pods of this namespace; may be repeated."
)
@click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Check only pods with these labels, as in kubectl."
)
@click.option(
    "--margin", type=click.FloatRange(0), default=10.0, show_default=True, metavar="POINTS",
    help="Report a pod only if another node is better by more than this margin.",
)  # fmt: skip
@click.option("--refused-only", is_flag=True, help="Report only pods whose node would now be rejected.")
@cluster_sources.decision_options
@click.option("--all", "whole", is_flag=True, help="List all pods, not only the first 20.")
@cluster_sources.output_options
@owner_options
@with_given
def command(
    given: Given,
    namespaces: tuple[str, ...],
    selector: str,
    margin: float,
    refused_only: bool,
    whole: bool,
    form: str,
    html: Path | None,
) -> int:
    """List running pods that the policies would now place elsewhere.

    The command decides each pod again as if it were not on its node, while all other pods stay. It ignores finished
    pods, pods that are being deleted, DaemonSet pods, static pods, and pods that no policy governs.
    """
    from kube_policy_scheduler.tooling.drift import GANG_SHORT, HELD, DriftOptions, data, drift, lines

    wanted = selected(namespaces, selector)
    inputs = given.inputs()
    limit = None if refused_only else margin
    options = DriftOptions(inputs.ruleset, limit, inputs.cluster.now, inputs.signals, given.seed, wanted)
    with status_line() as show:
        found = drift(inputs.cluster.state(), options, progress=lambda at, of: show(f"{at:,} of {of:,} pods decided"))
    if not found.checked and not found.skipped.keys() & {HELD, GANG_SHORT}:  # those are what the policies say
        left = ", ".join(f"{count:,} {why}" for why, count in found.skipped.items())
        chosen = " that --namespace and --selector select" if namespaces or selector else ""
        which = f"there is no pod to check: {left}" if left else f"no pod{chosen} is on a node"
        raise click.ClickException(f"{which}; nothing was checked")
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal(), most=len(found.drifted) if whole else 20))
    if html is not None:
        from kube_policy_scheduler.pages.reports import drift_page

        texts = {source.name: source.text for source in inputs.ruleset.sources}
        page = drift_page(data(found), sources=texts, ruled_by=inputs.ruleset.name)
        cluster_sources.write_page(html, page)
    return 1 if found.drifted else 0


def selected(namespaces: tuple[str, ...], selector: str) -> Callable[[PodInfo], bool]:
    """Return which pods `--namespace` and `--selector` choose.

    Raises:
        click.UsageError: the selector cannot be read.
    """
    from kube_policy_scheduler.cluster import objects
    from kube_policy_scheduler.cluster.selectors import SelectorError, label_selector

    try:
        requirements = [_requirement(text) for text in re.split(r",(?![^(]*\))", selector) if selector.strip()]
        chosen = label_selector(objects.LabelSelector(match_expressions=requirements))
    except (SelectorError, ValueError) as error:
        raise click.UsageError(f"--selector: {error}") from error
    assert chosen is not None, "only an absent selector gives None"
    return lambda pod: (not namespaces or pod.namespace in namespaces) and chosen.matches(pod.labels)


_EQUAL = re.compile(r"([^\s=!()]+)\s*(==|=|!=)\s*([^\s=!()]*)")
_SET = re.compile(r"([^\s=!()]+)\s+(in|notin)\s*\(([^()]*)\)")
_PRESENT = re.compile(r"(!?)\s*([^\s=!()]+)")


def _requirement(text: str) -> Requirement:
    """Read one requirement as kubectl does: `app=web`, `tier!=test`, `zone in (a, b)`, `gpu`, `!gpu`."""
    from kube_policy_scheduler.cluster import objects

    text = text.strip()
    if found := _EQUAL.fullmatch(text):
        key, sign, value = found.groups()
        return objects.Requirement(key=key, operator="NotIn" if sign == "!=" else "In", values=[value])
    if found := _SET.fullmatch(text):
        key, word, given = found.groups()
        values = [value.strip() for value in given.split(",")]
        return objects.Requirement(key=key, operator="In" if word == "in" else "NotIn", values=values)
    if found := _PRESENT.fullmatch(text):
        return objects.Requirement(key=found[2], operator="DoesNotExist" if found[1] else "Exists")
    raise ValueError(f"expected for example `app=web`, `tier!=test`, `zone in (a, b)`, `gpu` or `!gpu`, not `{text}`")
