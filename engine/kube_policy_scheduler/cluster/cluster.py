"""The cluster as the scheduler sees it: nodes, pods on them, and the objects that rules read.

One mutable value, changed only by the methods here, each of which leaves every column, counter and index
consistent. As in kube-scheduler's cache, a pod counts on its node from `assume` (we decided it) or `confirm` (the
watch shows it there) to `forget` (it is not bound after all) or `remove` (it is gone). `place` and `displace` are
what these share with dry runs. A pod on an unknown node is stored separately and counts as soon as the node appears.
Each of them notes in the `ledger` what it changed, so that nobody else has to say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import count, takewhile
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.node_devices import Chosen, Devices
from kube_policy_scheduler.cluster.devices.numa import NumaZones
from kube_policy_scheduler.cluster.devices.resource_claims import ResourceClaims, gives_as_before, is_freed
from kube_policy_scheduler.cluster.devices.resource_slices import ResourceSlices
from kube_policy_scheduler.cluster.events import ClusterEvent, node_events, object_event
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.ledger import Ledger
from kube_policy_scheduler.cluster.nodes import ADDED, ALL_ROWS, IntArray, NodeInfo, NodeTable, Rows
from kube_policy_scheduler.cluster.object_store import ObjectStore, is_another, is_same_group, key_of, object_key
from kube_policy_scheduler.cluster.own_facts import NO_FACTS, OwnFacts
from kube_policy_scheduler.cluster.pod_counters import PodCounters
from kube_policy_scheduler.cluster.pod_states import PodStates, differs
from kube_policy_scheduler.cluster.pods import AlikePods, PodInfo, Templates
from kube_policy_scheduler.cluster.ports import PortTable, host_ports
from kube_policy_scheduler.cluster.previous_nodes import PreviousNodes
from kube_policy_scheduler.cluster.priorities import PriorityTable
from kube_policy_scheduler.cluster.quotas.past_usage import PastUsage
from kube_policy_scheduler.cluster.quotas.quota_usage import MOST_RECALLED, QuotaTree, QuotaUsage, UsageToCome
from kube_policy_scheduler.cluster.quotas.returning_evictors import ReturningEvictors
from kube_policy_scheduler.cluster.requests import PodRequests
from kube_policy_scheduler.cluster.templates_in_use import TemplatesInUse
from kube_policy_scheduler.cluster.volumes.attached_volumes import AttachedVolumes
from kube_policy_scheduler.cluster.volumes.disks import DiskKey, DiskUse, disk_uses
from kube_policy_scheduler.cluster.workload import Workload
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.quantities.quantity import MAX_INT64
from kube_policy_scheduler.times import Steady

__all__ = ["Cluster", "DryRunChange", "object_key"]

ObjectT = TypeVar("ObjectT")
UNSEEN_SECONDS = 30.0
"""A pod that is evicted counts as terminating for this long, even if the watch does not show it yet."""


class DryRunChange(NamedTuple):
    """A change of pods within a dry run."""

    pod: PodInfo
    node_name: str
    step: int
    """1 for a pod that was placed, -1 for one that was displaced."""


FEWEST_TOGETHER = 16
"""Fewer pods are counted one by one, which is faster then."""


class _Change(Enum):
    """What a new state of a pod on its node changes."""

    WORDS = "words"
    """What it says of itself, such as its labels."""
    COUNTS = "counts"
    """What it holds, or where."""


class AssumedPods(dict[str, str]):
    """Assumed pods whose binding the watch has not shown yet: node by uid, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.since: dict[str, float] = {}
        """By uid: when it was assumed, on the steady clock."""

    def oldest_seconds(self, now: Steady) -> float:
        """Return how long the oldest has been assumed; 0.0 if there is none."""
        return max(0.0, now - self.since[next(iter(self))]) if self else 0.0


class Cluster:
    """Nodes as columns, pods by node, counters, ports, and other objects by kind."""

    def __init__(self, rules: KubernetesRules = DEFAULT_RULES) -> None:
        """Begin empty. rules: of the Kubernetes whose pods are decided."""
        self.rules = rules
        self.ledger = Ledger()
        """What changed: the methods here note it."""
        self.nodes = NodeTable()
        self.templates = Templates(rules)
        self.templates_in_use = TemplatesInUse()
        """Templates that have pods, on nodes or pending."""
        self.kept = KeptBytes()
        """Bounds what is kept from one decision to the next."""
        self._views: dict[str, KeptView[Any, Any]] = {}
        self.counters = PodCounters(self.templates_in_use, self.kept)
        self.counters_on_unknown_nodes = PodCounters(self.templates_in_use)
        """Counts of the pods in `on_unknown_nodes`, as if they were all on one node."""
        self.ports = PortTable()
        self.priorities = PriorityTable()
        self.pods: dict[str, PodInfo] = {}
        """Every counted pod, by uid, as it was placed."""
        self.assumed = AssumedPods()
        """Those of them whose binding the watch has not shown yet."""
        self.on_node: dict[str, dict[str, PodInfo]] = {}
        """Pods by node name and uid; also for nodes that are not in the table."""
        self.claim_users: dict[str, dict[str, PodInfo]] = {}
        """Pods on known nodes by `namespace/claim` (persistentVolumeClaim volumes only) and uid."""
        self.nominated: dict[str, dict[str, PodInfo]] = {}
        """Nominated pods, by node name and uid."""
        self._nominated_to: dict[str, str] = {}
        self._terminating: dict[str, None] = {}
        """The uids of terminating pods on nodes."""
        self.returning_evictors = ReturningEvictors()
        """Workloads that evict pods after they were evicted themselves."""
        self._evicted: dict[str, float] = {}
        """Since when pods are being evicted, on the steady clock, by uid; the oldest first."""
        self.ahead = 0.0
        """By how many seconds the wall clock is ahead of the steady one: the starts of pods are times of the first."""
        self.on_unknown_nodes: dict[str, PodInfo] = {}
        """Pods on nodes that are not in the table, by uid: they are in no column and no counter."""
        self._elsewhere: dict[str, str] = {}
        """The nodes of placed pods that name another node, or none, by uid: they are assumed, or tried there."""
        self.previous_nodes = PreviousNodes()
        """Where deleted pods ran last."""
        self.devices = Devices(self.nodes, self.on_node)
        """GPUs and similar devices, one by one."""
        self.numa = NumaZones(self.nodes, self.on_node)
        """NUMA nodes, where their exporter runs."""
        self.workload = Workload(self.nodes)
        """The expected pods."""
        self.store = ObjectStore(self.ledger)
        """Objects of all other kinds."""
        self.disk_users: dict[DiskKey, dict[str, DiskUse]] = {}
        """How pods on known nodes use the disks that they mount inline, by uid."""
        self.ignored_resources: frozenset[str] = frozenset()
        """Extended resources that only extenders check (`ignoredByScheduler`); set before the first pod is decided."""
        self.attached = AttachedVolumes(self.store, self.nodes)
        """CSI volumes in use on known nodes."""
        self.resource_slices = ResourceSlices(self.nodes, rules)
        """Devices that drivers publish."""
        self.resource_claims = ResourceClaims(self.ledger, rules)
        """Claims for such devices, and which devices are in use because of them."""
        self.quota_usage: QuotaUsage | None = None
        """What is used of each queue, since a policy with queues was asked; see `track_usage`."""
        self._usage_to_come: UsageToCome | None = None
        self._usages: Sequence[QuotaUsage | UsageToCome] = ()
        """Both, as far as they are there: they follow the cluster."""
        self._pasts: list[PastUsage] = []
        """What the first queues recall."""
        self.dry_run_changes: Sequence[DryRunChange] = ()
        """What was placed and displaced in the dry run under way, oldest first; see `dry_run`."""
        self._dry_run: list[DryRunChange] | None = None

    def view(self, name: str, *, most: int, size_of: Callable[[Any, Any], int] | None = None) -> KeptView[Any, Any]:
        """Return what is kept of one kind, which counts with all that is kept: a view made on first use, see there."""
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = KeptView(self.kept, most=most, size_of=size_of)
        return view

    # --- nodes ---------------------------------------------------------------------------------------

    def set_node(self, node: objects.Node) -> frozenset[str]:
        """Add or update a node; return what changed (see `cluster.nodes.CHANGES`).

        A node that was deleted and created again, of which no watch has shown the deletion, is another one.
        """
        known = self.nodes.rows.get(node.metadata.name)
        if known is not None and is_another(self.nodes.infos[known].node, node):
            made = self.nodes.interpret(node)
            self.remove_node(node.metadata.name)
            self.add_nodes((made,))
            return ADDED
        if known is None:
            self.add_nodes((self.nodes.interpret(node),))
            return ADDED
        changes = self.nodes.set(node)
        if changes:
            self.returning_evictors.changed()
        self._queues_see_nodes((node.metadata.name,))
        self._follow_resources()
        if "allocatable" in changes:
            self.devices.set_node(node.metadata.name, known)
        for event in node_events(changes):
            self.ledger.note(event)
        return changes

    def add_nodes(self, infos: Sequence[NodeInfo]) -> None:
        """Add nodes of different names that are not known, as `NodeTable.interpret` returns them."""
        self.nodes.add(infos)
        self.returning_evictors.changed()
        self._queues_see_nodes([info.name for info in infos])
        self._follow_resources()
        self.counters.resize(self.nodes.size)
        self.numa.rows_changed()
        for info in infos:
            self.devices.add_node(info.row)
            if not (there := self.on_node.get(info.name)):
                continue
            with self.counters.all_of(info.row, step=1):
                for pod in there.values():
                    self._from_unknown_node(pod)
                    self._count(pod, info.row, 1)
        if infos:
            self.ledger.note(ClusterEvent.NODE_ADD)

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods are stored separately until they are deleted or the node returns."""
        row = self.nodes.rows.get(name)
        if row is None:
            return
        with self.counters.all_of(row, step=-1):
            for pod in self.on_node.get(name, {}).values():
                self._count(pod, row, -1)
                self._to_unknown_node(pod)
        last = self.nodes.infos[-1]
        staying = list(self.on_node.get(last.name, {}).values()) if last.name != name else []
        for pod in staying:
            self.ports.update(host_ports(pod.template), last.row, -1)
        source = last.row
        target = self.nodes.remove(name)
        self.returning_evictors.changed()
        self._queues_see_nodes((name,))
        if target is not None:
            self.priorities.move(source, target)
            self.devices.move(source, target)
            self.counters.move(source, target, staying)
        for pod in staying:
            self.ports.update(host_ports(pod.template), last.row, 1)
        self.counters.resize(self.nodes.size)
        self.numa.rows_changed()
        self._follow_resources()
        self.ledger.note(ClusterEvent.NODE_DELETE)

    def _queues_see_nodes(self, names: Sequence[str]) -> None:
        """Have queues take over the state of nodes that came, changed or went."""
        for usage in self._usages:
            usage.nodes_changed(names, lambda name: self.on_node.get(name, {}).values())

    def _follow_resources(self) -> None:
        """Count the counted pods also for the resources that are offered since a node changed."""
        for resource in self.nodes.vanished:
            self.priorities.forget(resource)
            self.devices.forget(resource)
        if not self.nodes.appeared:
            return
        # a pod's own demand differs from its template's in resources that are always counted
        counted = [t for t in self.counters.placed_templates if self.nodes.appeared & t.demand.requests.keys()]
        rows = {row for template in counted for row in self.counters.pods_by_row(template, terminating=True)}
        for row in sorted(rows):
            info = self.nodes.infos[row]
            for pod in self.on_node.get(info.name, {}).values():
                for resource in self.nodes.appeared & pod.demand.requests.keys():
                    amount = pod.demand.requests[resource]
                    self.nodes.hold_more(info.row, resource, amount)
                    self.priorities.add(pod.priority, info.row, resource, amount)

    # --- pods ----------------------------------------------------------------------------------------

    def place(self, pod: PodInfo, node_name: str, *, devices: Mapping[str, Chosen] | None = None) -> None:
        """Count a pod on a node; replaces an older state of the same pod.

        devices: which of the node's it gets, by resource; else those that it had, or that its annotation names.
        """
        before = self._place(pod, node_name, devices=devices)
        self.ledger.note(ClusterEvent.TAKEN if before is None else _moved(before, node_name))

    def _place(self, pod: PodInfo, node_name: str, *, devices: Mapping[str, Chosen] | None = None) -> str | None:
        """Count a pod on a node; return the name of the one where it counted before, None if it did not."""
        before = None
        if pod.uid in self.pods:
            before = self.node_of(pod.uid)
            self._displace(pod.uid)
        if devices:
            self.devices.want(pod.uid, devices)
        self.pods[pod.uid] = pod
        if pod.terminating:
            self._terminating[pod.uid] = None
        if pod.node_name != node_name:
            self._elsewhere[pod.uid] = node_name
        self.on_node.setdefault(node_name, {})[pod.uid] = pod
        for usage in self._usages:
            usage.place(pod, node_name)
        row = self.nodes.rows.get(node_name)
        if row is not None:
            self._count(pod, row, 1)
        else:
            self._to_unknown_node(pod)
        if self._dry_run is not None:
            self._dry_run.append(DryRunChange(pod, node_name, 1))
        if self.workload.learns and not self.dry_run_changes:
            self.workload.saw(pod.template, 1)
        return before

    def place_many(self, pods: Sequence[PodInfo]) -> None:
        """Count pods that are not known yet on the nodes that they name: the same as `place` for each, but faster.

        Other than `place`, it notes that the watch shows them there.
        """
        self._place_many(pods, [pod.node_name for pod in pods])
        if pods:
            self.ledger.note(ClusterEvent.POD_ADD)

    def place_together(self, pods: Sequence[PodInfo], names: Sequence[str]) -> None:
        """Count pods on nodes: the same as `place` for each, but faster for those that are not known yet.

        names: of their nodes.
        """
        if any(pod.uid in self.pods for pod in pods):
            for pod, name in zip(pods, names, strict=True):
                self.place(pod, name)
            return
        self._elsewhere.update((pod.uid, name) for pod, name in zip(pods, names, strict=True) if pod.node_name != name)
        self._place_many(pods, names)
        if pods:
            self.ledger.note(ClusterEvent.TAKEN)

    def displace_together(self, uids: Sequence[str]) -> None:
        """Stop counting pods, all of which count: the same as `displace` for each, but faster."""
        pods = list(map(self.pods.__getitem__, uids))
        names = [self._elsewhere.get(pod.uid, pod.node_name) for pod in pods]
        together, apart = self._sorted_out(pods, names)
        for number in apart:
            self._displace(uids[number])
        if together:
            rows, on_node = self.nodes.rows, self.on_node
            for number in together:
                uid, name = uids[number], names[number]
                del self.pods[uid]
                self._terminating.pop(uid, None)
                self._elsewhere.pop(uid, None)
                for usage in self._usages:
                    usage.displace(pods[number], name)
                there = on_node[name]
                del there[uid]
                if not there:
                    del on_node[name]
            self._count_together(
                [pods[number] for number in together], [rows[names[number]] for number in together], -1
            )
        if pods:
            self.ledger.note(ClusterEvent.POD_DELETE)

    def _place_many(self, pods: Sequence[PodInfo], names: Sequence[str]) -> None:
        uids, rows = [pod.uid for pod in pods], self.nodes.rows
        together, apart = self._sorted_out(pods, names)
        at = 0
        for number in apart:
            self._enter(pods[at:number], names[at:number], uids[at:number])
            self._place(pods[number], names[number])
            at = number + 1
        self._enter(pods[at:], names[at:], uids[at:])
        counted = [pods[number] for number in together] if apart else pods
        if counted:
            self._count_together(counted, [rows[names[number]] for number in together], 1)

    def _sorted_out(self, pods: Sequence[PodInfo], names: Sequence[str]) -> tuple[Sequence[int], Sequence[int]]:
        """Return the places of the pods that `_count_many` counts, and of those that only `_count` does.

        names: of their nodes.
        """
        if self._dry_run is not None or len(pods) < FEWEST_TOGETHER:
            return (), range(len(pods))
        templates, rows = [pod.template for pod in pods], self.nodes.rows
        with_ports = {template for template in set(templates) if host_ports(template)}
        apart = [
            number
            for number, (pod, template, name) in enumerate(zip(pods, templates, names, strict=True))
            if name not in rows or pod.volumes or template in with_ports
        ]
        return sorted(set(range(len(pods))).difference(apart)) if apart else range(len(pods)), apart

    def _count_together(self, pods: Sequence[PodInfo], rows: Sequence[int], step: int) -> None:
        """Count pods on rows as `_count_many`, which needs to be told which of them request the same."""
        asked = [pod.demand for pod in pods]
        ids = list(map(id, asked))
        by_id = dict(zip(ids, asked, strict=True))  # most are of few workloads
        index = dict(zip(by_id, count()))
        priorities = np.array([pod.template.priority for pod in pods])
        kinds = list(map(index.__getitem__, ids))
        self._count_many(pods, rows, kinds, list(by_id.values()), priorities, step=step)

    def place_alike(self, alike: AlikePods, names: Sequence[str], uids: Sequence[str], rows: Sequence[Any]) -> None:
        """Count pods as `place_many` does; what is alike is read once.

        Args:
            alike: the pods.
            names: of their nodes.
            uids: theirs.
            rows: of their nodes, None for one that is not known.
        """
        pods, kinds, examples = alike.pods, alike.kinds, alike.examples
        is_apart = any(example.volumes or host_ports(example.template) for example in examples)
        if is_apart or self._dry_run is not None or None in rows:
            self.place_many(pods)
            return
        self._enter(pods, names, uids)
        priorities = np.array([example.template.priority for example in examples])[kinds]
        self._count_many(pods, rows, kinds, [example.demand for example in examples], priorities)
        self.ledger.note(ClusterEvent.POD_ADD)

    def _enter(self, pods: Sequence[PodInfo], names: Sequence[str], uids: Sequence[str]) -> None:
        """Note on which nodes new pods are, without counting them."""
        on_node = self.on_node
        self.pods.update(zip(uids, pods, strict=True))
        self._terminating.update(dict.fromkeys(pod.uid for pod in pods if pod.terminating))
        for usage in self._usages:
            for pod, name in zip(pods, names, strict=True):
                usage.place(pod, name)
        for name, uid, pod in zip(names, uids, pods, strict=True):
            there = on_node.get(name)
            if there is None:
                on_node[name] = {uid: pod}
            else:
                there[uid] = pod

    def _count_many(
        self,
        pods: Sequence[PodInfo],
        rows: Sequence[int],
        kinds: Sequence[int],
        demands: Sequence[PodRequests],
        of_priority: IntArray,
        *,
        step: int = 1,
    ) -> None:
        """Count pods without volumes and ports on rows: the same as `_count` for each, but faster.

        Args:
            pods: new ones, or (step -1) those that count no longer.
            rows: by pod, that of its node.
            kinds: by pod, where in `demands` its own is.
            demands: of the pods.
            of_priority: `int64[pods]`
            step: 1 or -1.
        """
        on_rows, of_kind = np.array(rows, np.intp), np.array(kinds, np.intp)
        self.nodes.hold_many(on_rows, of_kind, demands, sign=step)
        requests = [self.nodes.counted_requests(demand) for demand in demands]
        for priority in dict.fromkeys(of_priority.tolist()):
            chosen = of_priority == priority
            self.priorities.update_many(priority, on_rows[chosen], of_kind[chosen], requests, step)
        if step > 0:
            self.counters.place_many(pods, rows)
        else:
            self.counters.displace_many(pods, rows)
        if self.devices.tables or self.numa.zones or self.workload.learns:
            for pod, row in zip(pods, rows, strict=True):
                if self.devices.tables:
                    self.devices.count(pod, row, step)
                if self.numa.zones:
                    self.numa.count(pod, self.nodes.infos[row].name, step)
                if self.workload.learns:
                    self.workload.saw(pod.template, step)

    def assume(self, pod: PodInfo, node_name: str, *, now: Steady, devices: Mapping[str, Chosen] | None = None) -> None:
        """Count a pod on the node that was chosen for it, before it is bound; it keeps no room any more.

        Args:
            pod: the pending pod.
            node_name: of its node.
            now: the time.
            devices: see `place`.
        """
        kept = self._end_nomination(pod.uid) if self._nominated_to else None
        before = self._place(pod, node_name, devices=devices)
        self.assumed[pod.uid] = node_name
        self.assumed.since.setdefault(pod.uid, now)
        if before is None and (evictors := self.returning_evictors).knows_any:
            evictors.started(pod)
        if before is None and kept is None:
            self.ledger.note(ClusterEvent.TAKEN)
        else:
            gives_room = (before or node_name) != node_name or (kept is not None and _gives_room(kept, pod, node_name))
            self.ledger.note(ClusterEvent.POD_DELETE if gives_room else ClusterEvent.TAKEN)

    def forget(self, uid: str) -> PodInfo | None:
        """Stop counting an assumed pod that is not bound after all; None if it was not assumed."""
        return self.remove(uid) if uid in self.assumed else None

    def remove(self, uid: str) -> PodInfo | None:
        """Stop counting a pod that is gone from its node, assumed or not; None if it did not count."""
        was_assumed, node_name = self._unassume(uid), self.node_of(uid)
        pod = self._displace(uid)
        self.forget_evictions((uid,))
        if pod is not None and node_name is not None:
            if not was_assumed:
                self.previous_nodes.note(pod, node_name)
                if self.returning_evictors.knows_any:
                    self.returning_evictors.ended(uid)
            self.ledger.note(ClusterEvent.POD_DELETE)
        self.templates_in_use.let_go()
        return pod

    def forget_long_unused(self) -> None:
        """Let go of what is kept for templates that had no pods when this was called last, and have none now.

        Not while a pod is decided or tried on other nodes.
        """
        self.templates_in_use.let_long_idle_go()
        self.templates.forget_long_unused(self.templates_in_use)

    def _unassume(self, uid: str) -> bool:
        if self.assumed.pop(uid, None) is None:
            return False
        self.assumed.since.pop(uid, None)
        return True

    def confirm(self, pod: PodInfo, node_name: str) -> bool:
        """Confirm a pod that the watch shows on a node; return whether it counts differently than before.

        It keeps no room any more.
        """
        uid = pod.uid
        known, kept = self.pods.get(uid), self._end_nomination(uid)
        before = self._elsewhere.get(uid, known.node_name) if known is not None else None
        added = self._unassume(uid) or known is None
        change = self._update(known, pod, node_name, before=before)
        if (before or node_name) != node_name or (kept is not None and _gives_room(kept, pod, node_name)):
            self.ledger.note(ClusterEvent.POD_DELETE)
        if added:
            self.ledger.note(ClusterEvent.POD_ADD)
        # whatever may help others in what a pod says of itself, `POD_ADD` says too, unless it changes its queue
        if known is not None and (change is _Change.COUNTS if added and not self._usages else change is not None):
            self.ledger.note(ClusterEvent.POD_UPDATE)
        if known is not None and self.counters.follows_states and differs(known, pod):
            self.ledger.note(ClusterEvent.POD_STATE)
        return change is not None

    def _update(self, known: PodInfo | None, pod: PodInfo, node_name: str, *, before: str | None) -> _Change | None:
        """Update a placed pod; return what changed of what counts, None if nothing did.

        Args:
            known: the pod as it counts; None: it does not.
            pod: as it is now.
            node_name: of its node.
            before: the node on which it counts.
        """
        if known is None or before != node_name:
            self._place(pod, node_name)
            return _Change.COUNTS
        if (
            known.template is pod.template
            and known.terminating == pod.terminating
            and known.volumes == pod.volumes
            and known.demand == pod.demand
            and self.counters.sees_alike(known, pod)
            and self.counters_on_unknown_nodes.sees_alike(known, pod)
        ):
            self.pods[pod.uid] = self.on_node[node_name][pod.uid] = pod
            if pod.node_name == node_name:
                self._elsewhere.pop(pod.uid, None)
            else:
                self._elsewhere[pod.uid] = node_name
            for usage in self._usages:
                usage.update(pod)
            if pod.uid in self.on_unknown_nodes:
                self.on_unknown_nodes[pod.uid] = pod
            else:
                row, follows = self.nodes.rows[node_name], self.counters.follows_states and differs(known, pod)
                if follows:
                    self.counters.state_changed(known, pod, row)
                if follows or known.started != pod.started:  # those that run longest are the last to be preempted
                    self.nodes.touch(row)
            return None
        if self._holds_the_same(known, pod):
            self._relabel(known, pod, node_name)
            return _Change.WORDS
        self._place(pod, node_name)
        return _Change.COUNTS

    def _holds_the_same(self, known: PodInfo, pod: PodInfo) -> bool:
        """Return whether a new state of a pod on its node differs in nothing but in what it says of itself.

        Most pods have such a state: with its binding, a pod gets the labels of its node's zone and region.
        """
        return (
            known.terminating == pod.terminating
            and not known.volumes
            and not pod.volumes
            and known.demand == pod.demand
            and (known.template.spec is pod.template.spec or known.template.spec == pod.template.spec)
            and (known.annotations == pod.annotations or not self.devices.tables)
            and self._dry_run is None
        )

    def _relabel(self, known: PodInfo, pod: PodInfo, node_name: str) -> None:
        """Count a pod as one of another template; what it holds of its node is the same."""
        self.pods[pod.uid] = self.on_node[node_name][pod.uid] = pod
        if pod.node_name == node_name:
            self._elsewhere.pop(pod.uid, None)
        else:
            self._elsewhere[pod.uid] = node_name
        for usage in self._usages:
            usage.displace(known, node_name)
            usage.place(pod, node_name)
        row = self.nodes.rows.get(node_name)
        if row is None:
            self._from_unknown_node(known)
            self._to_unknown_node(pod)
        else:
            self.counters.displace(known, row)
            self.counters.place(pod, row)
            self.nodes.touch(row)
        if self.workload.learns:
            self.workload.saw(known.template, -1)
            self.workload.saw(pod.template, 1)

    def displace(self, uid: str) -> PodInfo | None:
        """Stop counting a pod; return it, or None if it did not count."""
        pod = self._displace(uid)
        if pod is not None:
            self.ledger.note(ClusterEvent.POD_DELETE)
        return pod

    def _displace(self, uid: str) -> PodInfo | None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return None
        self._terminating.pop(uid, None)
        node_name = self._elsewhere.pop(uid, pod.node_name)
        for usage in self._usages:
            usage.displace(pod, node_name)
        there = self.on_node[node_name]
        del there[uid]
        if not there:
            del self.on_node[node_name]
        row = self.nodes.rows.get(node_name)
        if row is not None:
            self._count(pod, row, -1)
        else:
            self._from_unknown_node(pod)
        if self._dry_run is not None:
            self._dry_run.append(DryRunChange(pod, node_name, -1))
        if self.workload.learns and not self.dry_run_changes:
            self.workload.saw(pod.template, -1)
        return pod

    @contextmanager
    def dry_run(self) -> Iterator[None]:
        """Dry run of other placements: what is placed and displaced within is undone at the end.

        While it lasts, `dry_run_changes` tells the plugins what was changed: kube-scheduler's own dry runs (preemption,
        nominated pods) count some pods differently than PreFilter does, and `dry_run_changes` reproduces that.
        For the same reason a plugin that skipped the pod before the dry run must not run within it.
        """
        outer, log = self._dry_run, self._dry_run if self._dry_run is not None else []
        mark = len(log)
        self.dry_run_changes = self._dry_run = log
        with self.ledger.silent():
            try:
                yield
            finally:
                self._dry_run = None
                for pod, node_name, step in reversed(log[mark:]):
                    if step > 0:
                        self._displace(pod.uid)
                    else:
                        self._place(pod, node_name)
                del log[mark:]
                self._dry_run = outer
                if outer is None:
                    self.dry_run_changes = ()

    def track_usage(self, tree: QuotaTree) -> QuotaUsage:
        """Keep up to date from now on what is used of each queue of a tree, and return it."""
        usage = self.quota_usage
        if usage is None or usage.tree is not tree:
            pasts, before = usage.pasts() if usage is not None else self._pasts, usage
            known = self._usage_to_come
            if known is not None and known.is_ready and known.usage.tree is tree:
                usage = known.usage
            else:
                if known is not None:
                    known.usage.end()
                usage = self.count_queues(tree)
            self.quota_usage, self._usage_to_come, self._usages = usage, None, (usage,)
            self.returning_evictors.changed()
            for past in pasts:
                usage.recall(past)
            if before is not None:
                before.end()
        return usage

    def usage_in_steps(self, tree: QuotaTree) -> Iterator[None]:
        """Prepare `track_usage` in steps, between which anything may happen; called earlier, it counts at once."""
        now = self.quota_usage
        if now is not None and now.tree is tree:
            return
        if self._usage_to_come is not None:
            self._usage_to_come.usage.end()
        to_come = UsageToCome(self.count_queues(tree, ()))
        self._usage_to_come, self._usages = to_come, (*([now] if now is not None else ()), to_come)
        for _ in to_come.steps(self.pods):
            if self._usage_to_come is not to_come:
                return  # others are about to be used, or these are already
            yield

    def count_queues(self, tree: QuotaTree, pods: Iterable[PodInfo] | None = None) -> QuotaUsage:
        """Return what is used of each queue of a tree, counted now; it does not follow the cluster.

        pods: those that count of those on nodes; None: all. Who is nominated and who is being evicted counts, too.
        """
        usage = QuotaUsage(
            tree,
            self.nodes,
            self.pods.values() if pods is None else pods,
            node_of=self.node_of,
            claims=self.resource_claims.get,
            ahead=lambda: self.ahead,
        )
        usage.evicted(self._evicted, self.pods.get)
        for there in self.nominated.values():
            for pod in there.values():
                usage.nominate(pod)
        return usage

    def recall_usage(self, past: PastUsage) -> None:
        """Take over past usage of queues that was remembered elsewhere."""
        if self.quota_usage is not None:
            self.quota_usage.recall(past)
        else:
            self._pasts = [*self._pasts, past][-MOST_RECALLED:]

    def _forget_usage(self) -> None:
        """Count what queues use no longer; what they remember waits for the next ones."""
        if (now := self.quota_usage) is not None:
            self._pasts = now.pasts()[-MOST_RECALLED:]
            now.end()
        if (known := self._usage_to_come) is not None:
            known.usage.end()
        self.quota_usage, self._usage_to_come, self._usages = None, None, ()

    def pod_states(self, facts: OwnFacts = NO_FACTS) -> PodStates:
        """Return the pods on nodes by their state; from now on it is kept up to date.

        facts: what is read of pods besides.
        """
        return self.counters_reading(facts).states(self._placed())

    def counters_reading(self, facts: OwnFacts) -> PodCounters:
        """Return the counts of the pods on nodes for sets that read these facts of pods themselves."""
        return self.counters if facts is NO_FACTS else self.counters.reading(facts, self._placed())

    def counters_on_unknown_nodes_reading(self, facts: OwnFacts) -> PodCounters:
        """Return the same of the pods on nodes that are not in the table."""
        return self.counters_on_unknown_nodes.reading(facts, [(0, list(self.on_unknown_nodes.values()))])

    def read_in_steps(self, facts: OwnFacts) -> Iterator[None]:
        """Make what `counters_reading` returns in steps. Between two steps anything may happen."""
        return self.counters.reading_in_steps(facts, self._placed())

    def _placed(self) -> Iterator[tuple[int, list[PodInfo]]]:
        """Yield each row of the node table with the pods there; pods and nodes may change meanwhile."""
        for name in list(self.on_node):
            row = self.nodes.rows.get(name)
            if row is not None:
                yield row, list(self.on_node.get(name, {}).values())

    def node_of(self, uid: str) -> str | None:
        """Return the name of the node that a pod counts on, or None."""
        node_name = self._elsewhere.get(uid)
        if node_name is None and (pod := self.pods.get(uid)) is not None:
            return pod.node_name
        return node_name

    def pods_on(self, node_name: str) -> Mapping[str, PodInfo]:
        """Return the pods on a node by uid."""
        return self.on_node.get(node_name, {})

    def _to_unknown_node(self, pod: PodInfo) -> None:
        self.on_unknown_nodes[pod.uid] = pod
        self.counters_on_unknown_nodes.place(pod, 0)

    def _from_unknown_node(self, pod: PodInfo) -> None:
        del self.on_unknown_nodes[pod.uid]
        self.counters_on_unknown_nodes.displace(pod, 0)

    def _count(self, pod: PodInfo, row: int, step: int) -> None:
        requests = self.nodes.counted_requests(pod.demand)
        self.nodes.hold(row, pod.demand, requests, sign=step)
        self.priorities.update(pod.template.priority, row, requests, step)
        if step > 0:
            self.counters.place(pod, row)
        else:
            self.counters.displace(pod, row)
        if self.devices.tables:
            self.devices.count(pod, row, step)
        if self.numa.zones:
            self.numa.count(pod, self.nodes.infos[row].name, step)
        ports = host_ports(pod.template)
        if ports:
            self.ports.update(ports, row, step)
        if pod.volumes:
            self._count_volumes(pod, row, step)

    def _count_volumes(self, pod: PodInfo, row: int, step: int) -> None:
        move = self.attached.place if step > 0 else self.attached.displace
        move(pod, self.nodes.infos[row].name)
        for volume in pod.volumes:
            if volume.persistent_volume_claim is not None:
                key = key_of(pod.namespace, volume.persistent_volume_claim.claim_name)
                if step > 0:
                    self.claim_users.setdefault(key, {})[pod.uid] = pod
                elif (users := self.claim_users.get(key)) is not None:
                    users.pop(pod.uid, None)
                    if not users:
                        del self.claim_users[key]
        for disk, use in disk_uses(pod.volumes).items():
            if step > 0:
                self.disk_users.setdefault(disk, {})[pod.uid] = use
            elif (mounting := self.disk_users.get(disk)) is not None:
                mounting.pop(pod.uid, None)
                if not mounting:
                    del self.disk_users[disk]

    def held_from(self, priority: int, resource: str, rows: Rows = ALL_ROWS) -> IntArray:
        """Return `int64[rows]`: the use by pods of this priority and above; for "pods", their number."""
        nodes = self.nodes
        held = nodes.pod_count if resource == "pods" else nodes.requested(resource)
        result: IntArray = held[rows] - self.priorities.below(priority, resource, nodes.size, rows)
        for row in nodes.overflowing(resource):
            there = self.pods_on(nodes.infos[row].name).values()
            total = sum(pod.demand.requests.get(resource, 0) for pod in there if pod.priority >= priority)
            result[row if isinstance(rows, slice) else rows == row] = min(total, MAX_INT64)
        return result

    def recount(self, name: str) -> None:
        """Write the columns of a node in the table again, from the pods there."""
        row, there = self.nodes.rows[name], self.pods_on(name).values()
        self.nodes.recount(row, (pod.demand for pod in there))
        self.priorities.clear(row)
        for pod in there:
            self.priorities.update(pod.priority, row, self.nodes.counted_requests(pod.demand), 1)
        self.ledger.note(ClusterEvent.POD_DELETE)

    def forget_rules(self, *, has_queues: bool) -> None:
        """Note that other rules hold from now on: groups are others, and what nobody counted since the last call goes.

        Counters that rules had prepared before they hold, and those that the last ones used, stay.

        has_queues: whether the rules have queues; if not, what was used of the last ones goes.
        """
        if not has_queues:
            self._forget_usage()
        for counters in (self.counters, self.counters_on_unknown_nodes):
            counters.forget_unused()
            counters.forget_groups()

    # --- nominations ---------------------------------------------------------------------------------

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Nominate a pending pod to a node; "" clears an earlier nomination.

        Room that it kept, and keeps no longer or not as much of, is free for others like that of a pod that ended.
        """
        kept = self._end_nomination(pod.uid)
        if node_name:
            self.nominated.setdefault(node_name, {})[pod.uid] = pod
            self._nominated_to[pod.uid] = node_name
            for usage in self._usages:
                usage.nominate(pod)
        if kept is None:
            if node_name:
                self.ledger.note(ClusterEvent.TAKEN)
        elif _gives_room(kept, pod, node_name):
            self.ledger.note(ClusterEvent.POD_DELETE)

    def end_nomination(self, uid: str) -> None:
        """Keep no room for a pod that is gone."""
        if self._end_nomination(uid) is not None:
            self.ledger.note(ClusterEvent.POD_DELETE)

    def _end_nomination(self, uid: str) -> tuple[PodInfo, str] | None:
        """Return the pod as it was nominated, and to which node; None: it was not."""
        before = self._nominated_to.pop(uid, None) if self._nominated_to else None
        if before is None:
            return None
        for usage in self._usages:
            usage.end_nomination(uid)
        there = self.nominated[before]
        known = there.pop(uid)
        if not there:
            del self.nominated[before]
        return known, before

    def is_nominated(self, uid: str) -> bool:
        """Return whether a pod is nominated to a node."""
        return uid in self._nominated_to

    # --- evictions -----------------------------------------------------------------------------------

    def note_evictions(self, uids: Iterable[str], now: Steady) -> None:
        """Note that pods are being evicted from now on: the watch shows only later that they end."""
        self.forget_old_evictions(now)
        evicted, uids = self._evicted, tuple(uids)
        for uid in uids:
            evicted.pop(uid, None)
            evicted[uid] = now
        for usage in self._usages:
            usage.evicted(uids, self.pods.get)

    def forget_old_evictions(self, now: Steady) -> None:
        """Note that pods stay whose end the watch has not shown for long."""
        evicted = self._evicted
        self.forget_evictions(list(takewhile(lambda uid: not self._is_recent(evicted[uid], now), evicted)))

    def leaving(self) -> list[PodInfo]:
        """Return the pods on nodes that are terminating, or are being evicted, in no order of meaning."""
        return [self.pods[uid] for uid in dict.fromkeys((*self._terminating, *self._evicted)) if uid in self.pods]

    def forget_evictions(self, uids: Iterable[str]) -> None:
        """Note that pods stay after all, or are gone."""
        stay = [uid for uid in uids if self._evicted.pop(uid, None) is not None]
        for usage in self._usages if stay else ():
            usage.not_evicted(stay)

    def is_going(self, pod: PodInfo, now: Steady) -> bool:
        """Return whether a pod is terminating, or is being evicted."""
        at = self._evicted.get(pod.uid)
        return pod.terminating or (at is not None and self._is_recent(at, now))

    @staticmethod
    def _is_recent(evicted_at: float, now: Steady) -> bool:
        return now - evicted_at < UNSEEN_SECONDS

    # --- other objects -------------------------------------------------------------------------------

    def set_object(self, thing: Any) -> None:
        """Add or update an object of another kind, such as a Service or a PersistentVolumeClaim."""
        kind, key = type(thing), object_key(thing.metadata)
        before = self.resource_claims.get(key) if kind is objects.ResourceClaim else self.store.get(kind, key)
        self.store.set(thing)
        if isinstance(thing, objects.Namespace):
            self._set_namespace(thing.metadata.name, thing.metadata.labels or {})
        elif isinstance(thing, objects.DeviceClass):
            self.nodes.static_changes.note_all()  # resources that a class provides may be absent on the node itself
        elif isinstance(thing, objects.ResourceSlice):
            self.resource_slices.set(thing)
        elif isinstance(thing, objects.DeviceTaintRule):
            self.resource_slices.set_taint_rule(thing)
        elif isinstance(thing, objects.ResourceClaim):
            self.resource_claims.set(thing)
            self._claim_changed(thing)
        elif isinstance(thing, objects.NodeResourceTopology):
            self.numa.set(thing)
        event = self._event_of_change(before, thing)
        if event is not None:
            self.ledger.note(event)

    def _event_of_change(self, before: Any, thing: Any) -> ClusterEvent | None:
        """Return the event of an object that is in place now, or None if nothing that counts is new.

        before: as it was before, None if it was not there.
        """
        if isinstance(thing, objects.ResourceClaim):
            after = self.resource_claims.get(object_key(thing.metadata))
            if before is not None and after is not None and gives_as_before(before, after):
                return None
            # one that came or got devices may help only the pods that refer to it
            return ClusterEvent.RESOURCE_CLAIM if is_freed(before, after) else ClusterEvent.TAKEN
        if isinstance(thing, objects.PodGroup | objects.CompositePodGroup) and is_same_group(before, thing):
            return None
        if isinstance(thing, objects.DeviceTaintRule) and before is not None and before.spec == thing.spec:
            return None  # its controller writes a status for each pod that it evicts
        return object_event(type(thing))

    def remove_object(self, thing: Any) -> None:
        """Delete an object of another kind."""
        is_claim = isinstance(thing, objects.ResourceClaim)
        known = self.resource_claims.get(object_key(thing.metadata)) if is_claim else None
        self.store.remove(thing)
        if isinstance(thing, objects.Namespace):
            self._set_namespace(thing.metadata.name, None)
        elif isinstance(thing, objects.DeviceClass):
            self.nodes.static_changes.note_all()
        elif isinstance(thing, objects.ResourceSlice):
            self.resource_slices.remove(thing)
        elif isinstance(thing, objects.DeviceTaintRule):
            self.resource_slices.remove_taint_rule(thing)
        elif isinstance(thing, objects.ResourceClaim):
            self.resource_claims.remove(thing)
            self._claim_changed(thing)
        elif isinstance(thing, objects.NodeResourceTopology):
            self.numa.remove(thing.metadata.name)
        frees = not is_claim or (known is not None and known.status.allocation is not None)
        self.ledger.note(object_event(type(thing)) if frees else ClusterEvent.TAKEN)

    def _claim_changed(self, claim: objects.ResourceClaim) -> None:
        for usage in self._usages:
            usage.claim_changed(object_key(claim.metadata))

    def _set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        for counters in (self.counters, self.counters_on_unknown_nodes):
            counters.set_namespace(name, labels)

    def get(self, kind: type[ObjectT], key: str) -> ObjectT | None:
        """Return an object by `name` or `namespace/name`."""
        return self.store.get(kind, key)

    def all(self, kind: type[ObjectT]) -> Iterable[ObjectT]:
        """Return all objects of a kind, in the order in which they were first seen."""
        return self.store.all(kind)


def _moved(before: str, node_name: str) -> ClusterEvent:
    """Return the event of a pod that counted on one node and counts on this one now."""
    return ClusterEvent.POD_UPDATE if before == node_name else ClusterEvent.POD_DELETE


def _gives_room(kept: tuple[PodInfo, str], pod: PodInfo, node_name: str) -> bool:
    """Return whether room that was kept for a pod may be free, now that the pod has, or keeps, room on this node.

    kept: the pod as it was nominated, and to which node.
    """
    before, there = kept
    return (
        there != node_name
        or before.template is not pod.template
        or before.demand != pod.demand
        or before.volumes != pod.volumes
    )
