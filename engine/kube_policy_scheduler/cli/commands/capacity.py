"""`policyctl capacity`: how much more fits, which nodes you can remove, what pending pods need, loss of a zone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.given import Given, scheduler_of, with_given
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import interruptible, say_json, say_lines, status_line, terminal
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kube_policy_scheduler.cluster.pods import PodInfo
    from kube_policy_scheduler.tooling.capacity.report import Capacity
    from kube_policy_scheduler.tooling.capacity.seats import Seats
    from kube_policy_scheduler.tooling.capacity.shapes import Shape

ZONE = "topology.kubernetes.io/zone"
_SHAPES = 6
_INTERRUPTED = 130
_SOLVER_SECONDS = 2.0
"""Of each program behind a bound."""

EPILOG = """
\b
Examples:
  policyctl capacity --policies policies/                     # pending pods, nodes that you can remove, loss of a zone
  policyctl capacity --policies policies/ --pod web.yaml      # how many more of this pod fit, and what stops the next
  policyctl capacity --pod web.yaml --at-least 100            # exit with 1 if fewer fit
  policyctl capacity --removable --cluster cluster.json.gz    # which nodes you can drain and remove
  policyctl capacity --pending --like gpu-node-1              # how many more nodes like this one are needed
  policyctl capacity --lose topology.kubernetes.io/zone       # each zone in turn
  policyctl capacity --removable --prices prices.yaml         # and what these nodes cost
  policyctl capacity --lose node-pool=spot --preempt --html report.html

\b
The scheduling cycle decides every pod, with the policies and metrics that you give. Each answer comes with a bound that
follows from resources alone. The command changes nothing in the cluster. Ctrl-C prints what is known so far.

\b
With the extra `exact` (`policyctl version` says how to add it), the bounds are closer, and --pending finds the
cheapest mix of several shapes of nodes.

\b
Exit codes: 0 everything that was asked about fits; 1 something does not fit, or a loss ends pods that nothing creates
again; 2 the command could not run; 130 Ctrl-C.
"""


SECTION = Section.CLUSTER


@click.command(epilog=EPILOG)
@cluster_sources.cluster_options
@cluster_sources.policies_option()
@click.option(
    "--pod", "pod_file", type=click.Path(path_type=Path), metavar="FILE",
    help="How many more of this pod fit: a Pod as for kubectl apply, or the short form of policy tests.",
)  # fmt: skip
@click.option("--at-least", type=click.IntRange(0), metavar="N", help="With --pod: exit with 1 if fewer fit.")
@click.option("--pending", is_flag=True, help="How many new nodes the pending pods need, for each shape of node.")
@click.option("--removable", is_flag=True, help="Which nodes you can drain and remove.")
@click.option(
    "--lose", multiple=True, metavar="LABEL[=VALUE]",
    help="Whether all pods find a place if the nodes with this label are lost; without a value, each value in turn.",
)  # fmt: skip
@click.option(
    "--like", "likes", multiple=True, metavar="NODE",
    help=f"New nodes are like this one; may be repeated.  [default: the {_SHAPES} most frequent shapes]",
)  # fmt: skip
@click.option(
    "--most", type=click.IntRange(1), default=100_000, show_default=True, metavar="N",
    help="Try at most this many copies of --pod, and this many new nodes of a shape.",
)  # fmt: skip
@click.option("--preempt", is_flag=True, help="With --lose: evict pods of lower priority if that helps.")
@click.option("--move-local-storage", is_flag=True, help="With --removable: pods with emptyDir or hostPath move, too.")
@cluster_sources.decision_options
@click.option("--all", "whole", is_flag=True, help="List everything, not only the first 20.")
@cluster_sources.output_options
@owner_options
@with_given
def command(
    given: Given,
    pod_file: Path | None,
    at_least: int | None,
    pending: bool,
    removable: bool,
    lose: tuple[str, ...],
    likes: tuple[str, ...],
    most: int,
    preempt: bool,
    move_local_storage: bool,
    whole: bool,
    form: str,
    html: Path | None,
) -> int:
    """Show how much room a cluster has, by the policies' own decisions.

    Without --pod, --pending, --removable or --lose, the report answers what needs no further input: what the pending
    pods need, which nodes you can remove, and whether all pods find a place if a zone is lost.
    """
    from kube_policy_scheduler.tooling.capacity.report import data, lines
    from kube_policy_scheduler.tooling.capacity.seats import Seats

    if at_least is not None and pod_file is None:
        raise click.UsageError("--at-least counts copies of a pod: add --pod FILE")
    inputs = given.inputs()
    there = inputs.cluster.state()
    seats = Seats(there, inputs.ruleset, signals=inputs.signals, now=inputs.cluster.now, seed=given.seed)
    scheduler = scheduler_of(inputs.ruleset.policy_set)
    pod = _pod(pod_file, seats, scheduler=scheduler) if pod_file is not None else None
    if not seats.cluster.nodes.size:
        raise click.ClickException("the cluster has no nodes; nothing was checked")
    shapes = _shapes(seats, likes)
    asked_nothing = not (pod_file or pending or removable or lose)
    losses = _losses(seats, lose or ((ZONE,) if asked_nothing else ()), optional=asked_nothing)
    with status_line() as show, interruptible() as stop:
        asked = _Questions(
            pod, losses, shapes, pending=pending or asked_nothing, removable=removable or asked_nothing,
            at_least=at_least, most=most, preempts=preempt, local_storage=not move_local_storage,
        )  # fmt: skip
        found = asked.answer(seats, stop=stop, show=show)
        interrupted = stop()
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal(), most=1_000_000 if whole else 20))
    if html is not None:
        from kube_policy_scheduler.pages.reports import capacity_page

        cluster_sources.write_page(html, capacity_page(data(found), ruled_by=inputs.ruleset.name), plots=True)
    if interrupted:
        return _INTERRUPTED
    return 1 if found.problems else 0


@dataclass(frozen=True)
class _Questions:
    """What is asked about a cluster."""

    pod: PodInfo | None
    """How many more of it fit; None: that is not asked."""
    losses: Sequence[tuple[str, str]]
    """Labels of nodes that are lost, with their values."""
    shapes: Sequence[Shape]
    """Of new nodes."""
    pending: bool
    removable: bool
    at_least: int | None
    most: int
    preempts: bool
    """Whether pods of lower priority are evicted where nodes are lost."""
    local_storage: bool
    """Whether pods with local storage stay."""

    def answer(self, seats: Seats, *, stop: Callable[[], bool], show: Callable[[str], None]) -> Capacity:
        """Return the answers; `stop` ends them early, `show` tells how far they have come."""
        from kube_policy_scheduler.cli.exact import solver
        from kube_policy_scheduler.tooling.capacity import questions
        from kube_policy_scheduler.tooling.capacity.report import Capacity, cluster_price

        solve = solver(stop, seconds=_SOLVER_SECONDS)
        most, shapes, at_least = self.most, self.shapes, self.at_least
        enough = most if at_least is None else min(most, max(at_least, 1))
        waiting = seats.there.pending()
        more, need, free = None, None, None
        if self.pod is not None:
            more = questions.more_copies(seats, self.pod, most=enough, stop=stop, progress=show)
        if self.pending:
            need = questions.pending_pods(seats, waiting, shapes, most=most, solve=solve, stop=stop, progress=show)
        if self.removable:
            free = questions.removable_nodes(
                seats, local_storage=self.local_storage, solve=solve, stop=stop, progress=show
            )
        lost = [
            questions.lose(
                seats, *each, shapes=shapes, most=most, preempts=self.preempts, solve=solve, stop=stop, progress=show
            )
            for each in self.losses
        ]
        price = cluster_price(seats.cluster, cluster_sources.price_sources())
        return Capacity(more, need, free, tuple(lost), at_least, price)


def _pod(path: Path, seats: Seats, *, scheduler: str) -> PodInfo:
    from kube_policy_scheduler.cluster.objects import Pod
    from kube_policy_scheduler.policy.decision_inputs import unbound
    from kube_policy_scheduler.tooling.cluster_state import pod_in, priority_classes, stored_object

    found = pod_in(files.source(path))
    pod: Pod = stored_object(found, priority_classes([found]), scheduler=scheduler).convert(Pod)
    pod.metadata.namespace = pod.metadata.namespace or "default"
    pod.metadata.uid = pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"
    seats.there.create(pod)
    return seats.cluster.templates.pod(unbound(pod, keep_status=bool(pod.status.resource_claim_statuses)))


def _shapes(seats: Seats, likes: Sequence[str]) -> list[Shape]:
    from kube_policy_scheduler.diagnostics import closest
    from kube_policy_scheduler.tooling.capacity.shapes import node_shapes, shape_like

    rows = seats.cluster.nodes.rows
    for name in likes:
        if name not in rows:
            meant = closest(name, rows)
            advice = f"did you mean `{meant}`?" if meant else f"the cluster has {plural(len(rows), 'node')}"
            raise click.ClickException(f"--like: there is no node `{name}`: {advice}")
    return [shape_like(seats.cluster, name) for name in likes] or node_shapes(seats.cluster, most=_SHAPES)


def _losses(seats: Seats, wanted: Sequence[str], *, optional: bool) -> list[tuple[str, str]]:
    from kube_policy_scheduler.tooling.capacity.questions import values_of

    found: list[tuple[str, str]] = []
    for text in wanted:
        label, equals, value = text.partition("=")
        known = values_of(seats, label)
        if not known and not optional:
            raise click.ClickException(f"--lose: no node has the label `{label}`")
        if equals and value not in known:
            raise click.ClickException(f"--lose: no node has {label}={value}; the values are: {', '.join(known[:20])}")
        found += [(label, one) for one in ([value] if equals else known)]
    return found
