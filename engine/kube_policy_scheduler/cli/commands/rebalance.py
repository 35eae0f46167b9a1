"""`policyctl rebalance`: move pods to where the policies would place them, each move proved before it is made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.commands.drift import selected
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.terminal import (
    format_option,
    interruptible,
    say,
    say_json,
    say_lines,
    status_line,
    terminal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kube_policy_scheduler.tooling.rebalancing.plan import Move

_INTERRUPTED = 130

EPILOG = """
\b
Examples:
  policyctl rebalance --policies policies/                          # the plan; nothing is evicted
  policyctl rebalance --policies policies/ --apply                  # evict the pods of the plan
  policyctl rebalance --policies a.policy --cluster cluster.json.gz --margin 25 --format json
  policyctl rebalance --policies a.policy --refused-only --most 5 -n shop
  policyctl rebalance --policies a.policy --rest 1h --most-per-node 1

\b
A pod is moved only if its replacement goes to another node by more than --margin, both while the old pod terminates
and when it is gone, and if no earlier move of the plan drifts back. PodDisruptionBudgets, annotations that keep pods
in place, local storage and pods without a controller are respected.

\b
Exit codes: 0 no pod is to be moved, or all were evicted; 1 pods are to be moved (without --apply), or some could not
be evicted; 2 the command could not run; 130 Ctrl-C.
"""


class _Duration(click.ParamType):  # type: ignore[type-arg]  # older clicks know no arguments
    """A duration such as 30min."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        import re

        from kube_policy_scheduler.times import parse_duration

        if not re.fullmatch(r"([0-9]{1,6}(s|min|h|d)){1,4}", str(value)):
            self.fail(f"expected a duration such as 10min or 1h30min, got {value!r}", param, ctx)
        return parse_duration(str(value))


@click.command(epilog=EPILOG)
@cluster_sources.cluster_options
@cluster_sources.policies_option(more=" Only pods that they govern move.", required=True)
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, help="Move only pods of this namespace; may be repeated."
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="Move only pods with these labels, as in kubectl.")
@click.option(
    "--margin", type=click.FloatRange(0), default=10.0, show_default=True, metavar="POINTS",
    help="Move a pod only if another node is better by more than this margin.",
)  # fmt: skip
@click.option("--refused-only", is_flag=True, help="Move only pods whose node would now be rejected.")
@click.option("--most", type=click.IntRange(0), default=10, show_default=True, help="Move at most so many pods.")
@click.option(
    "--most-per-node", type=click.IntRange(0), default=2, show_default=True, help="Off one node, at most so many."
)
@click.option(
    "--most-per-workload", type=click.IntRange(0), default=1, show_default=True, help="Of one controller, at most."
)
@click.option(
    "--most-per-namespace", type=click.IntRange(0), default=5, show_default=True, help="Of one namespace, at most."
)
@click.option(
    "--rest", type=_Duration(), default="10min", show_default=True,
    help="Leave a workload alone while one of its pods is younger: it rests after each move.",
)  # fmt: skip
@click.option("--move-local-storage", is_flag=True, help="Move pods with emptyDir or hostPath, too.")
@click.option("--apply", is_flag=True, help="Evict the pods of the plan.  [default: only print the plan]")
@cluster_sources.decision_options
@click.option("--all", "whole", is_flag=True, help="List all pods, not only the first 20.")
@format_option()
@owner_options
def command(
    clusters: tuple[Path, ...],
    kubeconfig: Path | None,
    context: str | None,
    policies: tuple[Path, ...],
    namespaces: tuple[str, ...],
    selector: str,
    margin: float,
    refused_only: bool,
    most: int,
    most_per_node: int,
    most_per_workload: int,
    most_per_namespace: int,
    rest: float,
    move_local_storage: bool,
    apply: bool,
    metrics: Path | None,
    prometheus_url: str | None,
    seed: int,
    now: float | None,
    whole: bool,
    form: str,
) -> int:
    """Plan which pods to move to the nodes that the policies would choose now, or evict them.

    The controller of an evicted pod creates a replacement, and the scheduler places it. The command decides in advance
    where each replacement goes, and plans only moves that are certain.
    """
    from kube_policy_scheduler.cli.policies import compiled
    from kube_policy_scheduler.documents.yaml_document import DocumentError
    from kube_policy_scheduler.tooling.cluster_state import cluster_state
    from kube_policy_scheduler.tooling.rebalancing.plan import MoveBudgets, RebalanceOptions, plan
    from kube_policy_scheduler.tooling.rebalancing.report import data, lines
    from kube_policy_scheduler.tooling.rulesets import Ruleset

    if apply and clusters:
        raise click.UsageError("--apply evicts pods of a live cluster: do not use --cluster with it")
    wanted = selected(namespaces, selector)
    try:
        sources = cluster_sources.policies_in(policies)
        policy_set = compiled(sources)
        things, moment = cluster_sources.cluster_at(
            clusters, kubeconfig=kubeconfig, context=context, now=now, scheduler=min(policy_set.schedulers)
        )
        signals = cluster_sources.signals_of([policy_set], metrics=metrics, prometheus_url=prometheus_url, now=moment)
    except DocumentError as error:
        say(files.rendered(error.diagnostics, err=True), err=True)
        return 2
    name = ", ".join(str(path) for path in policies)
    options = RebalanceOptions(
        Ruleset(name, policy_set, sources), None if refused_only else margin, moment, signals, seed,
        MoveBudgets(most, most_per_node, most_per_workload, most_per_namespace), rest, not move_local_storage, wanted,
    )  # fmt: skip
    with interruptible() as stop:
        with status_line() as show:
            found = plan(
                cluster_state(things), options, stop=stop,
                progress=lambda what, at, of: show(f"{at:,} of {of:,} {what}"),
            )  # fmt: skip
        outcomes = _evicted(found.moves, kubeconfig, context, stop) if apply else None
        interrupted = stop()
    if form == "json":
        say_json(data(found, outcomes))
    else:
        say_lines(lines(found, to=terminal(), most=len(found.moves) if whole else 20, outcomes=outcomes))
        if found.moves and not apply:
            say("Nothing was evicted: to move these pods, use --apply")
    if interrupted:
        return _INTERRUPTED
    from kube_policy_scheduler.adapters.kube.evictions import EVICTED

    if outcomes is not None:
        return int(any(outcomes.get(move.uid) != EVICTED for move in found.moves))
    return 1 if found.moves else 0


def _evicted(
    moves: Sequence[Move], kubeconfig: Path | None, context: str | None, stop: Callable[[], bool]
) -> dict[str, str]:
    """Evict the pods of a plan in turn, and return what became of each, by uid."""
    import asyncio

    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.evictions import Evicted, evict

    outcomes: dict[str, str] = {}

    async def run() -> None:
        names = ((move.pod.partition("/"), move.uid) for move in moves)
        pods = [Evicted(namespace, name, uid) for (namespace, _, name), uid in names]
        asked = evict(pods, kubeconfig=str(kubeconfig) if kubeconfig else None, context=context)
        with status_line() as show:
            async for pod, outcome in asked:
                outcomes[pod.uid] = outcome
                show(f"{len(outcomes):,} of {len(pods):,} pods evicted")
                if stop():
                    await asked.aclose()
                    break

    try:
        asyncio.run(run())
    except KubeError as error:
        raise click.ClickException(f"cannot evict: {error}") from error
    return outcomes
