"""What policies read of all nodes and pods, made in steps before they decide the first pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_policy_scheduler.builtins.pods import facts_of, member_anchors, set_of
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import ColumnsAsked
from kube_policy_scheduler.cluster.pod_sets import Value
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import Grouping, Quota, values_of
from kube_policy_scheduler.lang.compiling.compiled import CompiledQuota
from kube_policy_scheduler.lang.compiling.expressions import own_reads
from kube_policy_scheduler.lang.environment import CLUSTER
from kube_policy_scheduler.lang.types import Depends, Shape
from kube_policy_scheduler.policy.policy import Policy


def preparing(policies: Iterable[Policy], cluster: Cluster) -> Iterator[None]:
    """Make columns of nodes, what follows from their texts, and counters of pods in steps.

    Between two steps anything may happen to the cluster.
    What follows from the pod that is decided is made by its decision.
    """
    given = list(policies)
    yield from cluster.nodes.columns_in_steps(_columns_asked(given))
    yield from cluster.read_in_steps(facts_of(_own_facts(given)))
    frame = _frame(cluster)
    for of_text in (each for policy in given for each in policy.compiled.of_texts):
        yield from of_text.in_steps(frame)
    quotas = [each for policy in given for each in policy.compiled.clauses if isinstance(each, CompiledQuota)]
    found = (anchor for each in quotas for anchor in member_anchors(each.members(frame)))
    for family in dict.fromkeys(anchor.family for anchor in found if isinstance(anchor, Value)):
        for counters in (cluster.counters, cluster.counters_on_unknown_nodes):
            yield from counters.family_in_steps(family)
    for read in dict.fromkeys(read for policy in given for read in policy.compiled.pods_read):
        pods = set_of(read)
        if pods is not None:
            counters = cluster.counters_reading(
                facts_of(read.members.own | (read.value.own if read.value else frozenset()))
            )
            yield from counters.counter_in_steps(pods, terminating=False)


def _own_facts(policies: Iterable[Policy]) -> Iterator[tuple[str, str | None]]:
    """Yield what policies read of the pods that they count besides their templates, as `Members.own`."""
    for clause in (each for policy in policies for each in policy.compiled.clauses):
        if isinstance(clause, CompiledQuota):
            yield from clause.own
        for part in (part for root in values_of(clause.checked) for part in typed.below(root)):
            if isinstance(part, typed.Aggregate):
                yield from own_reads(part)


def _frame(cluster: Cluster) -> Frame:
    """Return a frame of all nodes and a pod that nothing is said of, for what no pod has a part in."""
    return Frame(Cluster().templates.pod(objects.Pod(metadata=objects.ObjectMeta(name=""))), cluster, 0.0)


def _columns_asked(policies: Iterable[Policy]) -> ColumnsAsked:
    """Return the columns that the clauses of policies ask for: fields of nodes, and labels that name domains."""
    nothing = Cluster()
    nothing.nodes = asked = ColumnsAsked()
    frame = _frame(nothing)
    for clause in (clause for policy in policies for clause in policy.compiled.checked.clauses):
        topologies: list[str | None] = [clause.topology] if isinstance(clause, Grouping) else []
        topologies += clause.labels if isinstance(clause, Quota) else ()
        for part in (part for root in values_of(clause) for part in typed.below(root)):
            if isinstance(part, typed.Aggregate | typed.NodeAggregate):
                topologies.append(part.topology)
            elif isinstance(part, typed.Read) and part.field.shape is Shape.NODE and part.field.depends & Depends.NODE:
                part.field.read(frame, *(() if part.key is None else (part.key,)))
        for topology in topologies:
            if topology is not None and topology != CLUSTER:
                asked.label(topology)
    return asked
