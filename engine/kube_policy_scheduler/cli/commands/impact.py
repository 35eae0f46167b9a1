"""`policyctl impact`: what a change of policies would do to the pods of a cluster, before it is made."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.given import Given, ruleset_of, scheduler_of, with_given
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say_json, say_lines, status_line, terminal
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.tooling.cluster_state import ClusterState
    from kube_policy_scheduler.tooling.decision_record import DecisionRecord
    from kube_policy_scheduler.tooling.impact.fleet_report import FleetImpact
    from kube_policy_scheduler.tooling.impact.replay import Step
    from kube_policy_scheduler.tooling.impact.report import Limits
    from kube_policy_scheduler.tooling.rulesets import Ruleset

KUBERNETES, KARMADA = "kubernetes", "karmada"
EPILOG = """
\b
Examples:
  policyctl impact policies/ new-policies/ --cluster cluster.json.gz
  policyctl impact kubernetes first.policy          # your current kubectl context, with and without a policy
  policyctl impact old.policy new.policy --cluster c.yaml --max-moved 5% --html impact.html
  policyctl impact old.yaml new.yaml --cluster c.yaml     # ConfigMaps
  policyctl impact old/ new/ --record decisions.jsonl --cluster c.json.gz   # the pods of a decision log

\b
For the workloads of a Karmada fleet:
  kubectl get clusters,resourcebindings,deployments -A -o yaml > fleet.yaml    # of the Karmada API server
  policyctl impact karmada first.policy --fleet fleet.yaml                # with and without a policy
  policyctl impact old/ new/ --fleet fleet.yaml --afresh --max-moved 5% --html impact.html

\b
OLD and NEW: a .policy file, a folder of them, a ConfigMap (.yaml), or `kubernetes` for Kubernetes' own rules.
The command removes the pods that either set governs and places them again one after another: first the pods that
have a node, oldest first, then the pending pods. It evicts no pods. It decides the members of a gang together: if the
gang is not complete, they get no node.

\b
With --fleet, `karmada` stands for the Placements of the workloads alone. A workload is decided only if something
requires a decision, and `rebalance` then moves it until nothing is left to move: moved replicas count as healthy at
once, and pauses as over. With --afresh, each workload is decided without regard to where it runs, as for a
WorkloadRebalancer. The price is that of the requested cores, by `cluster.price`.

\b
Exit codes: 0 within the limits; 1 a limit is exceeded; 2 the command could not run.
"""


class MovedLimit(click.ParamType):  # type: ignore[type-arg]
    """`N` or `N%`."""

    name = "N|N%"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, float | None]:
        """Return the number of pods, or their share."""
        found = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)\s*%", str(value))
        if found is None:
            self.fail(f"expected a number of pods or a percentage such as 5%, not `{value}`", param, ctx)
        return (int(found[1]), None) if found[1] is not None else (None, float(found[2]) / 100)


SECTION = Section.CHANGE


@click.command(epilog=EPILOG)
@click.argument("old", shell_complete=files.complete_path)
@click.argument("new", shell_complete=files.complete_path)
@cluster_sources.cluster_options
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE",
    help="Decide the pods of a decision log, in its order and at its times.",
)  # fmt: skip
@click.option(
    "--by", default="", metavar="LABEL", help="Compare groups of pods by this label.  [default: the namespace]"
)
@click.option(
    "--max-moved", type=MovedLimit(), help="Exit with 1 if more pods, or replicas, move (a number or a percentage)."
)
@click.option(
    "--max-unschedulable", type=click.IntRange(0), default=0, show_default=True, metavar="N",
    help="Exit with 1 if more pods lose their node, or more workloads their room.",
)  # fmt: skip
@click.option(
    "--max-evicted", type=click.IntRange(0), metavar="N",
    help="Exit with 1 if NEW evicts more pods, for pending pods, that OLD does not evict.",
)  # fmt: skip
@click.option(
    "--fleet", "fleets", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Compare workloads of a Karmada fleet instead of pods: a file with its Clusters and ResourceBindings, and the"
        " Deployments or others that these name; may be repeated.",
)  # fmt: skip
@click.option("--afresh", is_flag=True, help="With --fleet: decide workloads without regard to where they run.")
@cluster_sources.decision_options
@click.option("--all", "whole", is_flag=True, help="List all pods or workloads, not only the first 20.")
@click.option("--summary", is_flag=True, help="Also append Markdown to the file in $GITHUB_STEP_SUMMARY.")
@cluster_sources.output_options
@owner_options
@with_given
def command(
    given: Given,
    old: str,
    new: str,
    record: Path | None,
    by: str,
    max_moved: tuple[int | None, float | None] | None,
    max_unschedulable: int,
    max_evicted: int | None,
    fleets: tuple[Path, ...],
    afresh: bool,
    whole: bool,
    summary: bool,
    form: str,
    html: Path | None,
) -> int:
    """Show what a policy change would do to the pods of a cluster, or to the workloads of a fleet.

    The command decides the same pods with OLD and with NEW, one after another: each placement changes the cluster for
    the following pods. The report shows the pods that move and the clause that moves them, the pods that lose or get a
    node, and the effect on load, zones and groups. It also shows which pods only one of the two would evict for pending
    pods (here, the other pods stay where they are), and what changed queues mean for running pods.
    """
    from kube_policy_scheduler.tooling.impact.evictions import evictions
    from kube_policy_scheduler.tooling.impact.queue_changes import queue_changes
    from kube_policy_scheduler.tooling.impact.replay import replay
    from kube_policy_scheduler.tooling.impact.report import Impact, Limits, data, figures, lines, markdown

    moved, share = max_moved if max_moved is not None else (None, None)
    limits = Limits(moved, share, max_unschedulable, max_evicted)
    if fleets:
        if given.clusters or record is not None or max_evicted is not None or by:
            raise click.UsageError(
                "--cluster, --record, --by and --max-evicted are about pods: do not use --fleet with them"
            )
        report = _fleet_impact(given, old, new, fleets, afresh=afresh, limits=limits)
        return _report_fleet(report, whole=whole, summary=summary, form=form, html=html)
    if afresh:
        raise click.UsageError("--afresh requires --fleet")
    sides = (_ruleset(old), _ruleset(new))
    sets = [side.policy_set for side in sides]
    records = _records(record)
    cluster = given.by_rules_of(records).cluster(scheduler_of(*sets))
    moment, kubernetes = cluster.now, cluster.kubernetes
    signals, seed = given.signals(sets, now=moment), given.seed
    there = cluster.state()
    steps = _steps(record, records, there, sides, now=moment)
    with status_line() as show:
        done = replay(
            cluster.objects, *sides, steps=steps, signals=signals, seed=seed, kubernetes=kubernetes,
            progress=lambda at, of: show(f"{at:,} of {of:,} pods decided twice"),
        )  # fmt: skip
    uids = [step.pod.metadata.uid for step in steps]
    before, after = (figures(side.cluster, uids, by=by) for side in (done.old, done.new))
    trees = [side.policy_set.queues if side.policy_set is not None else None for side in sides]
    found = Impact(
        old,
        new,
        done,
        before,
        after,
        limits,
        cluster_sources.price_sources(),
        # a decision log has no pods that wait now
        evictions(
            cluster.objects,
            *sides,
            steps=steps,
            signals=signals,
            now=moment,
            seed=seed,
            kubernetes=kubernetes,
        )
        if record is None
        else None,
        tuple(queue_changes(there.cluster, *(each.tree if each is not None else None for each in trees), now=moment)),
    )
    if summary:
        _add_summary("\n".join(markdown(found)))
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal(), most=1_000_000 if whole else 20))
    if html is not None:
        from kube_policy_scheduler.pages.reports import impact_page

        texts = {source.name: source.text for side in sides for source in side.sources}
        cluster_sources.write_page(html, impact_page(data(found), sources=texts), plots=True)
    return 1 if found.broken else 0


def _fleet_impact(
    given: Given, old: str, new: str, fleets: Sequence[Path], *, afresh: bool, limits: Limits
) -> FleetImpact:
    """Return what a change does to the workloads of a fleet."""
    from kube_policy_scheduler.cli.fleets import fleet_in
    from kube_policy_scheduler.cluster.signals import Signals
    from kube_policy_scheduler.policy.fleet_policies import NO_FLEET_POLICIES
    from kube_policy_scheduler.tooling.impact.fleet_replay import replay_fleet
    from kube_policy_scheduler.tooling.impact.fleet_report import FleetImpact

    sets = [_ruleset(path, own=KARMADA).policy_set for path in (old, new)]
    sides = [each.fleet if each is not None else NO_FLEET_POLICIES for each in sets]
    fleet = fleet_in(fleets, now=given.now)
    queries = tuple(dict.fromkeys(query for side in sides for query in side.queries))
    signals = given.signals_for(queries, now=fleet.now) if queries else Signals.EMPTY
    with status_line() as show:
        done = replay_fleet(
            fleet.state, *sides, now=fleet.now, signals=signals, afresh=afresh,
            progress=lambda at, of: show(f"{at:,} of {of:,} workloads decided twice"),
        )  # fmt: skip
    if not done.decided:
        counted = plural(len(fleet.state.bound), "workload")
        if not any(each.is_decided for each in fleet.state.bound):
            raise click.ClickException(
                f"the fleet's {counted}: no scheduler decides any of them, so there is nothing to compare; their"
                " bindings are suspended, deleted or without `spec.placement`"
            )
        raise click.ClickException(
            f"the fleet's {counted}: neither policy set governs any of them, so there is nothing to compare;"
            " a policy of workloads begins with `for workloads where …`"
        )
    return FleetImpact(old, new, done, afresh, limits)


def _report_fleet(found: FleetImpact, *, whole: bool, summary: bool, form: str, html: Path | None) -> int:
    """Print the report, and return the exit code."""
    from kube_policy_scheduler.tooling.impact.fleet_report import data, lines, markdown

    if summary:
        _add_summary("\n".join(markdown(found)))
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal(), most=len(found.replay.changes) if whole else 20))
    if html is not None:
        from kube_policy_scheduler.pages.reports import fleet_impact_page

        cluster_sources.write_page(html, fleet_impact_page(data(found)), plots=True)
    return 1 if found.broken else 0


def _ruleset(path: str, *, own: str = KUBERNETES) -> Ruleset:
    is_own = path == own and not Path(path).exists()
    return ruleset_of([] if is_own else [Path(path)], name=path)


def _records(record: Path | None) -> Sequence[DecisionRecord]:
    from kube_policy_scheduler.cli.cluster_sources import records_in

    return records_in(record) if record is not None else ()


def _steps(
    record: Path | None,
    records: Sequence[DecisionRecord],
    there: ClusterState,
    sides: Sequence[Ruleset],
    *,
    now: float,
) -> list[Step]:
    from kube_policy_scheduler.tooling.impact.replay import steps_of

    if record is None:
        steps = steps_of(there, sides, now=now)
        where = f"the cluster's {plural(len(there.pods), 'pod')}"
    else:
        from kube_policy_scheduler.tooling.impact.replay import recorded_steps

        steps = recorded_steps(records, sides)
        where = f"{record}"
    if not steps:
        text = f"{where}: neither policy set governs any of them, so there is nothing to compare"
        served = sorted(name for side in sides if side.policy_set is not None for name in side.policy_set.schedulers)
        advice = f"; the policies serve the scheduler {', '.join(dict.fromkeys(served))}" if served else ""
        raise click.ClickException(text + advice)
    return steps


def _add_summary(text: str) -> None:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        raise click.ClickException("--summary: GITHUB_STEP_SUMMARY is not set; it is set in GitHub Actions")
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error
