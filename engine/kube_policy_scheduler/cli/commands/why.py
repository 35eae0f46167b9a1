"""`policyctl why`: why a pod fits nowhere and what would help, or why it goes to this node and not the next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.given import Given, scheduler_of, with_given
from kube_policy_scheduler.cli.owners import owner_options, owners
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say, say_json, say_lines, terminal

if TYPE_CHECKING:
    from kube_policy_scheduler.cli.past_decisions import PastDecisions
    from kube_policy_scheduler.cluster import objects
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
    from kube_policy_scheduler.policy.policy_set import PolicySet
    from kube_policy_scheduler.tooling.cluster_state import ClusterState
    from kube_policy_scheduler.tooling.rebalancing.room import RoomPlan
    from kube_policy_scheduler.tooling.rulesets import Ruleset
    from kube_policy_scheduler.tooling.why.past_decision import Recorded

EPILOG = """
\b
Examples:
  kubectl get nodes,pods -A -o yaml > cluster.yaml
  policyctl why web-7f9 --cluster cluster.yaml                    # with Kubernetes' own rules
  policyctl why shop/web-7f9 --cluster cluster.yaml --policies policies/
  policyctl why pod.yaml --cluster cluster.yaml --policies a.policy   # a pod that does not exist yet
  policyctl why web-7f9 -n shop --policies policies/              # your current kubectl context

\b
To explain a workload of a Karmada fleet:
  kubectl get clusters,resourcebindings,deployments -A -o yaml > fleet.yaml    # of the Karmada API server
  policyctl why shop/web --fleet fleet.yaml --policies policies/fleet/
  policyctl why shop/web --karmada --kubeconfig karmada-apiserver.config --policies policies/fleet/

\b
To explain an earlier decision, use the decision log or the memory of a running scheduler:
  policyctl why web-7f9 --record decisions.jsonl
  policyctl why shop/web-7f9 --daemon http://127.0.0.1:10351
  policyctl why shop/web --daemon http://127.0.0.1:10259          # a workload, of policy-scheduler fleet
  policyctl why web-7f9 --record decisions.jsonl --cluster then.json.gz --policies policies/   # decided again

\b
Exit codes: 0 the pod fits; 1 no node fits; 2 the command could not run.
"""


_ROOM_SECONDS = 5.0
_SOLVER_SECONDS = 1.0
"""Of each program; there are few of them."""


SECTION = Section.UNDERSTAND


@click.command(epilog=EPILOG)
@click.argument("pod", metavar="POD", shell_complete=files.complete_path)
@cluster_sources.cluster_options
@click.option("-n", "--namespace", help="Namespace of the pod, if several namespaces have a pod of that name.")
@click.option(
    "--fleet", "fleets", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Explain a workload of a Karmada fleet instead of a pod: a file with its Clusters and ResourceBindings, and"
        " the Deployments or others that these name; may be repeated.",
)  # fmt: skip
@click.option(
    "--karmada", is_flag=True,
    help="Explain a workload of the Karmada control plane of the kubeconfig instead of a pod. It is only read.",
)  # fmt: skip
@click.option(
    "--policies", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
    help="Policies that decide: a file, or a folder; may be repeated.  [default: Kubernetes' own rules]",
)  # fmt: skip
@click.option("--policy", metavar="NAME", help="Use this policy, no matter which one governs the pod.")
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE",
    help="Explain the last decision about the pod or the workload in a file of the decision log. With --cluster,"
        " decide the pod again at that time.",
)  # fmt: skip
@click.option(
    "--daemon",
    metavar="URL",
    help="Explain the last decision about the pod or the workload in the memory of a running scheduler, at its HTTP"
    " port.",
)
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="Bearer token for --daemon.")
@click.option(
    "--ca-file", type=click.Path(path_type=Path), metavar="FILE", help="CA certificates to trust for --daemon."
)
@cluster_sources.decision_options
@click.option("--top", default=5, show_default=True, type=click.IntRange(1), help="Number of nodes to show.")
@cluster_sources.output_options
@owner_options
@with_given
def command(
    given: Given,
    pod: str,
    namespace: str | None,
    fleets: tuple[Path, ...],
    karmada: bool,
    policy: str | None,
    record: Path | None,
    daemon: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    top: int,
    form: str,
    html: Path | None,
) -> int:
    """Explain the decision about one pod, or about one workload of a fleet.

    POD is the name of a pod in the cluster (or NAMESPACE/NAME), or a file with a pod. If no node fits, the report shows
    the main cause, the nodes that each rule rejects, what the closest nodes lack, and single changes that would help;
    each change is tried with a new decision. It also says whether the pod would fit if a few other pods moved; the
    search for them takes at most 5 seconds. If the pod fits or has a node, the report shows why this node is better
    than the others.
    """
    from dataclasses import replace

    from kube_policy_scheduler.pages.reports import why_page
    from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
    from kube_policy_scheduler.policy.pending import Pending
    from kube_policy_scheduler.tooling.cluster_state import UnknownPod, waiting
    from kube_policy_scheduler.tooling.why.explain import explain
    from kube_policy_scheduler.tooling.why.report import data, lines

    if fleets and karmada:
        raise click.UsageError("use --fleet for files, or --karmada for a live control plane, not both")
    if (fleets or karmada) and (html is not None or record is not None or daemon is not None):
        raise click.UsageError("--fleet and --karmada decide a workload now: leave --html, --record and --daemon out")
    if fleets or karmada:
        return _workload(given, pod, fleets, namespace=namespace, form=form)
    if record is not None and daemon is not None:
        raise click.UsageError("use --record or --daemon, not both")
    past: Recorded | None = None
    if record is not None or daemon is not None:
        decisions = _past(pod, record, daemon, token_file=token_file, ca_file=ca_file)
        if decisions.about_workloads and (html is not None or given.clusters):
            raise click.UsageError("the decision is about a workload: --cluster and --html are only for pods")
        if decisions.about_workloads:
            return _past_workload(decisions, pod, namespace=namespace, form=form)
        past = _recorded(decisions, pod, namespace=namespace)
        if not given.clusters and given.kubeconfig is None and given.context is None:
            return _past_decision(past, form=form, html=html)
        given = given.as_recorded(past.record)
    try:
        ruleset, seed = given.ruleset(), given.seed
        sources, policy_set = ruleset.sources, ruleset.policy_set
        scheduler = scheduler_of(policy_set)
        cluster = given.cluster(scheduler)
        moment = cluster.now
        if past is not None:
            state = cluster.state()
            asked = state.known(past.record.pod)
            seed = seed or past.record.seed
        else:
            state, asked = cluster_sources.pod_of(pod, cluster, namespace=namespace, scheduler=scheduler)
        if (owned := owners()) is not None:
            for name in owned.absent(asked.metadata.namespace, sources):
                text = f"the policies of owner {name} may govern this pod, but are not on this machine and are left out"
                say(f"policyctl: {text}", err=True)
        rules = _rules(asked, state, sources, policy_set, policy)
        signals = given.signals((policy_set,), now=moment)
        with waiting(asked, state.cluster) as (free, bound):
            queued = past.record.queued or None if past is not None else None
            inputs = DecisionInputs.of(
                free, state.cluster, rules, signals=signals, now=moment, seed=seed, queued=queued,
                pending=Pending(state.pending()),
            )  # fmt: skip
            found = explain(inputs, bound=bound, top=top)
            if found.lacks_room and policy is None:
                found = replace(found, room=_room(state, inputs, ruleset))
    except UnknownPod as error:
        raise click.ClickException(str(error)) from error
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal()))
    if html is not None:
        cluster_sources.write_page(
            html, why_page(data(found), sources={source.name: source.text for source in sources})
        )
    return 0 if found.cause is None and found.fits and not found.short and not found.is_blocked else 1


def _workload(given: Given, name: str, paths: Sequence[Path], *, namespace: str | None, form: str) -> int:
    """Explain the decision about a workload of a fleet."""
    from kube_policy_scheduler.cli.fleets import fleet_in, live_fleet
    from kube_policy_scheduler.cluster.signals import Signals
    from kube_policy_scheduler.fleet.judging import Given as GivenToFleet
    from kube_policy_scheduler.policy.fleet_policies import NO_FLEET_POLICIES
    from kube_policy_scheduler.tooling.fleet_state import UnknownWorkloadError
    from kube_policy_scheduler.tooling.why.workloads import data, explain_workload, lines

    if given.clusters:
        raise click.UsageError("use --cluster for a pod, or --fleet or --karmada for a workload, not both")
    policy_set = given.ruleset().policy_set
    policies = policy_set.fleet if policy_set is not None else NO_FLEET_POLICIES
    if policy_set is not None and not policies.policies:
        text = "none of the policies is of workloads, so the Placement alone decides"
        say(f"policyctl: {text}; begin one with `for workloads where …`", err=True)
    if paths:
        fleet = fleet_in(paths, now=given.now)
    else:
        reads = bool(policies.member_values)
        fleet, unread = live_fleet(kubeconfig=given.kubeconfig, context=given.context, reads_members=reads)
        for each in unread:
            say(f"policyctl: {each}", err=True)
    state, now = fleet.state, fleet.now
    signals = given.signals_for(policies.queries, now=now) if policies.queries else Signals.EMPTY
    try:
        asked = state.named(name, namespace=namespace)
    except UnknownWorkloadError as error:
        raise click.ClickException(str(error)) from error
    found = explain_workload(asked, state.fleet, policies, GivenToFleet(now, signals))
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal()))
    return 0 if found.outcome.placed else 1


def _room(state: ClusterState, inputs: DecisionInputs, ruleset: Ruleset) -> RoomPlan | None:
    """Return the moves of other pods that make room for one, within the budgets of `policyctl rebalance`."""
    from time import monotonic

    from kube_policy_scheduler.cli.exact import solver
    from kube_policy_scheduler.tooling.rebalancing.plan import RebalanceOptions
    from kube_policy_scheduler.tooling.rebalancing.room import room_for

    end = monotonic() + _ROOM_SECONDS

    def stop() -> bool:
        return monotonic() > end

    options = RebalanceOptions(ruleset, None, inputs.now, inputs.signals, inputs.seed)
    return room_for(state, options, inputs.pod, solve=solver(stop, seconds=_SOLVER_SECONDS), stop=stop)


def _past(
    asked: str, record: Path | None, daemon: str | None, *, token_file: Path | None, ca_file: Path | None
) -> PastDecisions:
    from kube_policy_scheduler.cli.past_decisions import decisions_in, decisions_of

    if record is not None:
        return decisions_in(record)
    assert daemon is not None, "one of the two is given"
    return decisions_of(daemon, asked=asked, token_file=token_file, ca_file=ca_file)


def _recorded(decisions: PastDecisions, pod: str, *, namespace: str | None) -> Recorded:
    from kube_policy_scheduler.tooling.cluster_state import UnknownPod
    from kube_policy_scheduler.tooling.why.past_decision import recorded_of

    try:
        return recorded_of(decisions.of_pods(), pod, namespace=namespace)
    except UnknownPod as error:
        raise click.ClickException(str(error)) from error


def _past_workload(decisions: PastDecisions, name: str, *, namespace: str | None, form: str) -> int:
    from kube_policy_scheduler.tooling.fleet_state import UnknownWorkloadError
    from kube_policy_scheduler.tooling.why.past_workload import data, lines, past_workload

    try:
        found = past_workload(decisions.of_workloads(), name, namespace=namespace)
    except UnknownWorkloadError as error:
        raise click.ClickException(str(error)) from error
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal()))
    return 0 if found.good else 1


def _past_decision(past: Recorded, *, form: str, html: Path | None) -> int:
    from kube_policy_scheduler.tooling.why.past_decision import data, lines

    if form == "json":
        say_json(data(past))
    else:
        say_lines(lines(past, to=terminal()))
    if html is not None:
        from kube_policy_scheduler.pages.reports import recorded_page

        cluster_sources.write_page(html, recorded_page(data(past)))
    return 0 if past.good else 1


def _rules(
    pod: objects.Pod, state: ClusterState, sources: tuple[Source, ...], policy_set: PolicySet | None, name: str | None
) -> Rules:
    from kube_policy_scheduler.cli.policies import compiled
    from kube_policy_scheduler.documents.yaml_document import DocumentError
    from kube_policy_scheduler.policy.decision_inputs import KUBERNETES, Rules

    if policy_set is None:
        if name is not None:
            raise click.UsageError("--policy requires --policies")
        return KUBERNETES

    def recompile(changed: Sequence[Source]) -> PolicySet | None:
        try:
            return compiled(changed)
        except DocumentError:
            return None

    governing = cluster_sources.governing_policy(policy_set, state.cluster.templates.pod(pod), name=name)
    return Rules(governing.profile, governing, sources, recompile, policy_set)
