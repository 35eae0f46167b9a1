"""`policyctl queues`: quotas with borrowing: who uses, borrows and waits, and who would give back first."""

from __future__ import annotations

import click

from kube_policy_scheduler.cli import cluster_sources
from kube_policy_scheduler.cli.given import Given, scheduler_of, with_given
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say_json, say_lines, terminal

EPILOG = """
\b
Examples:
  policyctl queues --policies policies/                      # your current kubectl context
  policyctl queues --policies policies/ --cluster cluster.json.gz
  policyctl queues --policies training.policy --format json

\b
A queue is guaranteed its `min`. What it uses above that is borrowed. The share is what it borrows, as a fraction of
what the nodes offer, divided by its weight; the queue with the smallest share is served first. "will" is what the queue
will use when the evictions under way are done. A pod or gang is either guaranteed as a whole, by one resource, or
borrowed as a whole. For a guarantee, only pods that borrow, or that a weaker resource guarantees, are evicted. The
command changes nothing.

\b
Exit codes: 0 the queues are shown; 2 the command could not run, or the policies have no queues.
"""


SECTION = Section.UNDERSTAND


@click.command(epilog=EPILOG)
@cluster_sources.cluster_options
@cluster_sources.policies_option(what="Policies with `queue` statements", required=True)
@click.option("--now", type=cluster_sources.Moment(), default=None, help="The time of the cluster, if recorded.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
@owner_options
@with_given
def command(
    given: Given,
    form: str,
) -> int:
    """Show the queues of a cluster: guaranteed, used, borrowed and maximum amounts, shares, and pending pods.

    Below the tree, the command lists the pods and gangs of each queue, guaranteed or borrowed, and those that would be
    evicted next if other queues needed their guarantee.
    """
    from kube_policy_scheduler.tooling.queues import data, lines, report

    policy_set = given.ruleset().policy_set
    assert policy_set is not None, "--policies is required"
    cluster = given.cluster(scheduler_of(policy_set))
    if policy_set.queues is None:
        raise click.ClickException("the policies have no `queue` statement")
    state = cluster.state()
    served = [pod for pod in state.pending() if policy_set.governing(pod) is not None]
    found = report(state.cluster, policy_set.queues, served, now=cluster.now)
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal()))
    return 0
