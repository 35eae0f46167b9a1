"""What a queue is guaranteed and may use, and what it uses in the recorded clusters beside its policy, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import NO_LIMIT, QuotaSpec, QuotaState, QuotaTree, QuotaUsage
from kube_policy_scheduler.diagnostics import Severity, Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.editor.project import Project
from kube_policy_scheduler.framework.quota import quantity
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.policy.policy_set import DEFAULT_SCHEDULERS
from kube_policy_scheduler.policy.queues import quota_tree
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state, stored_objects
from kube_policy_scheduler.wording import amount, part_of, plural

MOST_CLUSTERS = 3
"""Recorded clusters that are shown."""
MOST_BYTES = 8 * 2**20
"""Of the text of one: it is read while somebody waits."""
_MOST_QUEUES = 5
"""Queues by a key that are shown of one cluster, those that use most."""


@dataclass(frozen=True, slots=True)
class RecordedCluster:
    """A cluster that a file beside the policies holds."""

    name: str
    """Of the file."""
    state: ClusterState


def recorded_cluster(source: Source) -> RecordedCluster | None:
    """Return the cluster that a file holds; None if it has no nodes, is too large, or cannot be read."""
    if len(source.text) > MOST_BYTES or "Node" not in source.text:
        return None
    try:
        found = parse_objects(source)
        if not any(each.kind == "Node" for each in found):
            return None
        state = cluster_state(stored_objects(found, scheduler=min(DEFAULT_SCHEDULERS)))
    except (DocumentError, ValueError):
        return None
    return RecordedCluster(source.name.rpartition("/")[2], state)


def amounts_text(project: Project, name: str, clusters: Iterable[RecordedCluster]) -> str:
    """Return the amounts of a queue, "" while the files that declare queues have errors."""
    files = {queue.tree.span.source.name for queue in declared_queues(project.checked.policies)}
    if any(each.severity is Severity.ERROR for file in files for each in project.diagnostics.get(file, ())):
        return ""
    tree = quota_tree(project.checked.policies, project.memo)
    spec = next((each for each in tree.queues if each.name == name), None) if tree is not None else None
    if tree is None or spec is None:
        return ""
    schedulers = {policy.scheduler or default for policy in project.checked.policies for default in DEFAULT_SCHEDULERS}
    shown = [_in_cluster(tree, spec, cluster, schedulers) for cluster in clusters]
    return "\n\n".join(shown) if shown else _declared(tree, spec)


def _declared(tree: QuotaTree, spec: QuotaSpec) -> str:
    rows = [
        (resource, quantity(resource, least) if least else "-", quantity(resource, most) if most < NO_LIMIT else "-")
        for resource, least, most in zip(tree.resources, spec.minimum, spec.maximum, strict=True)
        if least or most < NO_LIMIT
    ]
    return _table(("", "guaranteed", "maximum"), rows) if rows else ""


def _in_cluster(tree: QuotaTree, spec: QuotaSpec, cluster: RecordedCluster, schedulers: Collection[str]) -> str:
    usage = cluster.state.cluster.track_usage(tree)
    waiting = [pod for pod in cluster.state.pending() if pod.scheduler_name in schedulers]
    pending = _pending(usage, waiting)
    is_keyed = spec.key is not None
    states = [s for s in usage.states() if s.name == spec.name or (is_keyed and s.name.startswith(f"{spec.name}/"))]
    if is_keyed:
        states = [state for state in states if state.name != spec.name]
        states.sort(key=lambda state: (-state.share, -state.pods, state.name))
    rows = [row for state in states[:_MOST_QUEUES] for row in _rows(state, pending.get(state.name, {}), is_keyed)]
    counts = usage.count(waiting)
    number = sum(counts.get(state.name, 0) for state in states)
    pods = sum(state.pods for state in states)
    title = f"in `{cluster.name}`: {plural(pods, 'pod')} on nodes, {number} pending"
    if len(states) == 1:
        title += f", share {amount(states[0].share, 3)}"
    if len(states) > _MOST_QUEUES:
        title += f"; {part_of(_MOST_QUEUES, len(states), 'queue')}"
    if not rows:
        return title
    return f"{title}\n\n{_table(('', 'guaranteed', 'maximum', 'used', 'borrowed', 'pending'), rows)}"


def _rows(state: QuotaState, pending: Mapping[str, int], is_keyed: bool) -> Iterator[tuple[str, ...]]:
    for resource, used in state.used.items():
        amounts = (state.guaranteed, state.maximum, state.used, state.borrowed, pending)
        if used or any(resource in each for each in amounts if each is not state.used):
            title = f"{state.name}: {resource}" if is_keyed else resource
            yield title, *(quantity(resource, each[resource]) if each.get(resource) else "-" for each in amounts)


def _pending(usage: QuotaUsage, pods: Iterable[PodInfo]) -> dict[str, Counter[str]]:
    """Return what pods request, by queue; a queue counts those below it."""
    found: dict[str, Counter[str]] = {}
    for pod in pods:
        queue = usage.quota_of(pod.template)
        for each in queue.path() if queue is not None else ():
            counted = found.setdefault(each.name, Counter())
            for place, wanted in usage.amounts(pod):
                counted[usage.tree.resources[place]] += wanted
    return found


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(['---', *['---:'] * (len(head) - 1)])}|"]
    return "\n".join((*lines, *(f"| {' | '.join(_cell(each) for each in row)} |" for row in rows)))


def _cell(text: str) -> str:
    """Return a text that a cell of a table can hold: names of queues by a key are labels of pods."""
    return text.replace("|", "\\|").replace("`", "'")
