"""What policies read of all nodes and pods, made in steps before they decide the first pod."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence

from kube_policy_scheduler.builtins.pods import facts_of, member_anchors, set_of
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import ColumnsAsked
from kube_policy_scheduler.cluster.own_facts import OwnFacts
from kube_policy_scheduler.cluster.pod_sets import Value
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import Grouping, Quota, values_of
from kube_policy_scheduler.lang.compiling.compiled import CompiledQuota
from kube_policy_scheduler.lang.compiling.expressions import own_reads
from kube_policy_scheduler.lang.environment import CLUSTER
from kube_policy_scheduler.lang.types import Depends, Shape
from kube_policy_scheduler.policy.policy import Policy

_READ_AT_ONCE = 128
"""Parts of expressions that one step looks at: about 1 ms."""


def preparing(policies: Iterable[Policy], cluster: Cluster) -> Iterator[None]:
    """Make columns of nodes, what follows from their texts, and counters of pods in steps.

    Between two steps anything may happen to the cluster.
    What follows from the pod that is decided is made by its decision.
    """
    given = list(policies)
    asked, own = yield from _reads_in_steps(given)
    yield from cluster.nodes.columns_in_steps(asked)
    yield from cluster.read_in_steps(own)
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


def _frame(cluster: Cluster) -> Frame:
    """Return a frame of all nodes and a pod that nothing is said of, for what no pod has a part in."""
    return Frame(Cluster().templates.pod(objects.Pod(metadata=objects.ObjectMeta(name=""))), cluster, 0.0)


def _reads_in_steps(policies: Sequence[Policy]) -> Generator[None, None, tuple[ColumnsAsked, OwnFacts]]:
    """Return the columns that the clauses of policies ask for, and what they read of running pods besides templates.

    The columns are fields of nodes, and labels that name domains.
    """
    nothing = Cluster()
    nothing.nodes = asked = ColumnsAsked()
    frame, seen = _frame(nothing), 0
    own: set[tuple[str, str | None]] = set()
    for clause in (each for policy in policies for each in policy.compiled.checked.clauses):
        if isinstance(clause, Grouping):
            _ask_for_domains(clause.topology, asked)
        elif isinstance(clause, Quota):
            for label in clause.labels:
                _ask_for_domains(label, asked)
            own |= own_reads(clause.measure) | own_reads(clause.of_pods)
        for part in (part for root in values_of(clause) for part in typed.below(root)):
            if isinstance(part, typed.Aggregate | typed.NodeAggregate):
                _ask_for_domains(part.topology, asked)
            elif isinstance(part, typed.Read) and part.field.shape is Shape.NODE and part.field.depends & Depends.NODE:
                part.field.read(frame, *(() if part.key is None else (part.key,)))
            if isinstance(part, typed.Aggregate):
                own |= own_reads(part)
            seen += 1
            if seen % _READ_AT_ONCE == 0:
                yield
    return asked, facts_of(own)


def _ask_for_domains(topology: str | None, asked: ColumnsAsked) -> None:
    if topology is not None and topology != CLUSTER:
        asked.label(topology)
