"""`policyctl rebalance`: move pods to where the policies would place them, each move proved before it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from kube_policy_scheduler.cli import cluster_sources
from kube_policy_scheduler.cli.commands.drift import selected
from kube_policy_scheduler.cli.given import Given, with_given
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import (
    format_option,
    interruptible,
    say,
    say_json,
    say_lines,
    status_line,
    terminal,
)
from kube_policy_scheduler.wording import part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kube_policy_scheduler.cluster.pods import PodInfo
    from kube_policy_scheduler.tooling.cluster_state import ClusterState
    from kube_policy_scheduler.tooling.rebalancing.moves import Move, MoveRule
    from kube_policy_scheduler.tooling.rebalancing.plan import RebalanceOptions
    from kube_policy_scheduler.tooling.rebalancing.room import RoomMove

_INTERRUPTED = 130
_MARGIN = 10.0
_REST_SECONDS = 600.0
_SOLVER_SECONDS = 20.0
"""One program of --for and --pending: the bound is one, and each choice of pods one or two."""

EPILOG = """
\b
Examples:
  policyctl rebalance --policies policies/                          # the plan; nothing is evicted
  policyctl rebalance --policies policies/ --apply                  # evict the pods of the plan
  policyctl rebalance --policies a.policy --cluster cluster.json.gz --margin 25 --format json
  policyctl rebalance --policies a.policy --refused-only --most 5 -n shop
  policyctl rebalance --policies a.policy --rest 1h --most-per-node 1
  policyctl rebalance --policies a.policy --for shop/train-0        # which few pods must move for a pending pod
  policyctl rebalance --policies a.policy --pending --most-per-node 8

\b
If a policy has a `rebalance`, its condition, margin, limit and rest apply to its pods; --margin, --refused-only and
--rest override them.

\b
A pod is moved only if its replacement goes to another node by more than --margin, both while the old pod terminates
and when it is gone, and if no earlier move of the plan drifts back. PodDisruptionBudgets, annotations that keep pods
in place, local storage and pods without a controller are respected.

\b
--for and --pending search greedily, and print a lower bound: no plan has fewer moves. With the extra `exact`
(`policyctl version` says how to add it), a solver finds the fewest moves if the cluster is small enough.

\b
Exit codes: 0 no pod is to be moved, or all were evicted; 1 pods are to be moved (without --apply), or some could not
be evicted; 2 the command could not run; 130 Ctrl-C.
"""


SECTION = Section.CLUSTER


@click.command(epilog=EPILOG)
@cluster_sources.cluster_options
@cluster_sources.policies_option(more=" Only pods that they govern move.", required=True)
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, help="Move only pods of this namespace; may be repeated."
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="Move only pods with these labels, as in kubectl.")
@click.option(
    "--margin", type=click.FloatRange(0), default=None, metavar="POINTS",
    help="Move a pod only if another node is better by more than this margin.  [default: what `rebalance` in its policy"
    " says, or 10]",
)  # fmt: skip
@click.option("--refused-only", is_flag=True, help="Move only pods whose node would now be rejected.")
@click.option("--most", type=click.IntRange(0), default=10, show_default=True, help="Move at most this many pods.")
@click.option(
    "--most-per-node",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="Move at most this many pods off one node.",
)
@click.option(
    "--most-per-workload",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Move at most this many pods of one controller.",
)
@click.option(
    "--most-per-namespace",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Move at most this many pods of one namespace.",
)
@click.option(
    "--rest", type=cluster_sources.Duration(), default=None,
    help="Leave a workload alone while one of its pods is younger: it rests after each move.  [default: what"
    " `rebalance` in its policy says, or 10min]",
)  # fmt: skip
@click.option(
    "--for", "waiting", multiple=True, metavar="POD",
    help="Instead, find the fewest moves that make room for this pending pod: NAME or NAMESPACE/NAME; may be repeated.",
)  # fmt: skip
@click.option("--pending", is_flag=True, help="The same, for all pending pods that a policy governs.")
@click.option("--move-local-storage", is_flag=True, help="Move pods with emptyDir or hostPath, too.")
@click.option("--apply", is_flag=True, help="Evict the pods of the plan.  [default: only print the plan]")
@cluster_sources.decision_options
@click.option("--all", "whole", is_flag=True, help="List all pods, not only the first 20.")
@format_option()
@owner_options
@with_given
def command(
    given: Given,
    namespaces: tuple[str, ...],
    selector: str,
    margin: float | None,
    refused_only: bool,
    most: int,
    most_per_node: int,
    most_per_workload: int,
    most_per_namespace: int,
    rest: float | None,
    waiting: tuple[str, ...],
    pending: bool,
    move_local_storage: bool,
    apply: bool,
    whole: bool,
    form: str,
) -> int:
    """Plan which pods to move to the nodes that the policies would choose now, or evict them.

    The controller of an evicted pod creates a replacement, and the scheduler places it. The command decides in advance
    where each replacement goes, and plans only moves that are certain.
    """

    from kube_policy_scheduler.tooling.rebalancing.moves import MoveBudgets, MoveRule
    from kube_policy_scheduler.tooling.rebalancing.plan import RebalanceOptions, plan, stated_in
    from kube_policy_scheduler.tooling.rebalancing.report import data, lines

    if apply and given.clusters:
        raise click.UsageError("--apply evicts pods of a live cluster: do not use --cluster with it")
    wanted = selected(namespaces, selector)
    inputs = given.inputs()
    there = inputs.cluster.state()
    default = MoveRule(
        None if refused_only else _MARGIN if margin is None else margin, _REST_SECONDS if rest is None else rest
    )
    stated = stated_in(inputs.ruleset, there.cluster, signals=inputs.signals, now=inputs.cluster.now, default=default)

    def rule(pod: PodInfo) -> MoveRule | None:
        found = stated(pod)
        if found is not None and (refused_only or margin is not None):
            found = msgspec.structs.replace(found, margin=default.margin)
        return found if found is None or rest is None else msgspec.structs.replace(found, rest_seconds=rest)

    options = RebalanceOptions(
        inputs.ruleset, default.margin, inputs.cluster.now, inputs.signals, given.seed,
        MoveBudgets(most, most_per_node, most_per_workload, most_per_namespace),
        local_storage=not move_local_storage, wanted=wanted, stated=rule,
    )  # fmt: skip
    if waiting or pending:
        return _make_room(there, options, waiting, form=form, apply=given if apply else None)
    with interruptible() as stop:
        with status_line() as show:
            found = plan(
                there, options, stop=stop,
                progress=lambda what, at, of: show(f"{at:,} of {of:,} {what}"),
            )  # fmt: skip
        outcomes = _evicted(found.moves, given, stop) if apply else None
        interrupted = stop()
    if form == "json":
        say_json(data(found, outcomes))
    else:
        say_lines(lines(found, to=terminal(), most=len(found.moves) if whole else 20, outcomes=outcomes))
        if found.moves and not apply:
            say("Nothing was evicted: to move these pods, use --apply")
    if interrupted:
        return _INTERRUPTED
    from kube_policy_scheduler.adapters.kube.eviction_api import EVICTED

    if outcomes is not None:
        return int(any(outcomes.get(move.uid) != EVICTED for move in found.moves))
    return 1 if found.moves else 0


def _make_room(
    there: ClusterState,
    options: RebalanceOptions,
    names: tuple[str, ...],
    *,
    form: str,
    apply: Given | None,
) -> int:
    """Find room for pending pods, and return the exit code."""
    from kube_policy_scheduler.adapters.kube.eviction_api import EVICTED
    from kube_policy_scheduler.cli.exact import solver
    from kube_policy_scheduler.tooling.cluster_state import UnknownPod
    from kube_policy_scheduler.tooling.rebalancing.report import room_data, room_lines
    from kube_policy_scheduler.tooling.rebalancing.room import plan_room

    try:
        chosen = {there.find(name).metadata.uid for name in names}
    except UnknownPod as error:
        raise click.UsageError(str(error)) from error
    pods = [
        pod
        for pod in there.pending()
        if (pod.uid in chosen if names else options.ruleset.rules(pod) is not None) and not pod.terminating
    ]
    if len(pods) < len(chosen):
        raise click.UsageError("a pod that --for names has a node already")
    with interruptible() as stop:
        with status_line() as show:
            found = plan_room(
                there, options, pods, solve=solver(stop, seconds=_SOLVER_SECONDS), stop=stop, progress=show
            )
        outcomes = _evicted(found.moves, apply, stop) if apply is not None else None
        interrupted = stop()
    if form == "json":
        say_json(room_data(found, outcomes))
    else:
        say_lines(room_lines(found, to=terminal(), outcomes=outcomes))
        if found.moves and outcomes is None:
            say("Nothing was evicted: to move these pods, use --apply")
    if interrupted:
        return _INTERRUPTED
    if outcomes is not None:
        return int(any(outcomes.get(move.uid) != EVICTED for move in found.moves))
    return int(bool(found.moves) or found.placed < len(found.seats))


def _evicted(moves: Sequence[Move | RoomMove], given: Given, stop: Callable[[], bool]) -> dict[str, str]:
    """Evict the pods of a plan in turn, and return the outcome of each, by uid."""
    import asyncio

    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.eviction_api import Evicted, evict

    outcomes: dict[str, str] = {}

    async def run() -> None:
        names = ((move.pod.partition("/"), move.uid) for move in moves)
        pods = [Evicted(namespace, name, uid) for (namespace, _, name), uid in names]
        kubeconfig = str(given.kubeconfig) if given.kubeconfig else None
        asked = evict(pods, kubeconfig=kubeconfig, context=given.context)
        with status_line() as show:
            async for pod, outcome in asked:
                outcomes[pod.uid] = outcome
                show(f"{part_of(len(outcomes), len(pods), 'pod')} evicted")
                if stop():
                    await asked.aclose()
                    break

    try:
        asyncio.run(run())
    except KubeError as error:
        raise click.ClickException(f"cannot evict: {error}") from error
    return outcomes
