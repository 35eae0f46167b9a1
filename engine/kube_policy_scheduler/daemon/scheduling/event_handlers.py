"""Event handlers: what each watch event changes in the cluster and the queue, and which waiting pods it may help.

Synchronous and without I/O; the reflectors call it in the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from sys import intern
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import object_key
from kube_policy_scheduler.cluster.devices.resource_claims import gives_as_before
from kube_policy_scheduler.cluster.events import ClusterEvent, node_events
from kube_policy_scheduler.cluster.nodes import NodeInfo
from kube_policy_scheduler.cluster.object_store import is_another, is_same_group, key_of
from kube_policy_scheduler.cluster.pods import PASSED_ON, PodInfo
from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.daemon.scheduling.context import AssumedPod, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.live_algorithm import LiveAlgorithm
from kube_policy_scheduler.daemon.scheduling.passed_on_pods import PassedOnPods
from kube_policy_scheduler.daemon.watching.resources import Handler, report_unusable, take_each, take_one
from kube_policy_scheduler.framework.devices.pod_claims import claim_names
from kube_policy_scheduler.framework.gangs import COMPOSITE_POD_GROUP
from kube_policy_scheduler.framework.groups.waiting_pods import WaitingPods
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod
from kube_policy_scheduler.policy.pod_groups import COSCHEDULING, NATIVE, parents_of

_GROUP_RULES: Mapping[type, str] = {
    objects.PodGroup: NATIVE.rule,
    objects.CompositePodGroup: COMPOSITE_POD_GROUP,
    objects.CoschedulingPodGroup: COSCHEDULING.rule,
}
"""Pods are gated until their group exists."""


class EventHandlers:
    """Keeps the cluster and the queue in step with what the API server reports."""

    def __init__(
        self,
        context: SchedulerContext,
        algorithm: LiveAlgorithm,
        waiting_pods: WaitingPods[AssumedPod],
        *,
        on_assigned: Callable[[Sequence[PodInfo]], None] = lambda pods: None,
        on_left: Callable[[Sequence[str]], None] = lambda uids: None,
        on_gone: Callable[[str], None] = lambda uid: None,
    ) -> None:
        """Make one.

        Args:
            context: of the scheduler.
            algorithm: knows which pods are ours.
            waiting_pods: gets pods that were removed, and nodes that changed.
            on_assigned: called with pods that are on nodes, before the cluster knows and before `on_left`.
            on_left: called with the uids of pods that are gone or on nodes, before the cluster knows.
            on_gone: called with the uid of a pod that is gone, before the cluster knows.
        """
        self._cluster, self._queue, self._clock = context.cluster, context.queue, context.clock
        self._ledger, self._wakeups, self._claims = context.cluster.ledger, context.wakeups, context.claims
        self._algorithm = algorithm
        self._waiting_pods = waiting_pods
        self._on_assigned = on_assigned
        self._on_left = on_left
        self._on_gone = on_gone
        self.passes = PassedOnPods()
        """Assumed pods that another replica will bind."""
        self.pods_seen = 0
        """Resource version of the last pod event."""
        self._marks: dict[str, int] = {}
        """By node: the number of the last change that this scheduler did not cause."""
        self._marks_made = 0
        self._returns: dict[str, int] = {}
        """By uid: how many times a passed-on pod was returned."""
        self.claimants = Claimants()
        """Waiting pods by the claims that they refer to."""
        self._foreign: dict[str, PodInfo] = {}
        """Pending pods of other schedulers and replicas, by uid: later policies or shards may serve them."""

    def mark(self, node_name: str) -> int | None:
        """Return a number that changes only if others change a node; None if the node does not exist."""
        return self._marks.get(node_name)

    def _mark(self, node_name: str) -> None:
        if node_name in self._cluster.nodes.rows:  # a pod may name any
            self._marks_made += 1
            self._marks[node_name] = self._marks_made

    def _mark_all(self, node_names: Iterable[str]) -> None:
        """Mark known nodes that others changed together: the number of each need only be another one than before."""
        self._marks_made += 1
        self._marks.update(dict.fromkeys(node_names, self._marks_made))

    def handler(self, kind: type) -> Handler[Any]:
        """Return the handler for one kind of object."""
        if kind is objects.Node:
            return Handler(self.nodes_replaced, self.node_changed, self.node_deleted, self.nodes_changed)
        if kind is objects.Pod:
            return Handler(self.pods_replaced, self.pod_changed, self.pod_deleted, self.pods_changed)
        changed = self.claim_changed if kind is objects.ResourceClaim else self.object_changed
        return Handler(partial(self.objects_replaced, kind), changed, self.object_deleted)

    # --- pods ----------------------------------------------------------------------------------------

    def pod_changed(self, pod: objects.Pod | objects.ListedPod) -> None:
        """Handle a pod that was added or modified."""
        info = self._cluster.templates.pod(pod)
        self._saw(info.resource_version)
        self._foreign.pop(info.uid, None)
        if info.terminal:
            self._pod_gone(info.uid, has_ended=True)
        elif info.node_name:
            self._pod_assigned(info)
        elif info.uid not in self._cluster.assumed:
            self._pod_pending(info)
        elif info.terminating:
            self._pod_gone(info.uid)  # its binding will be rejected, so forget it at once
        elif info.uid not in self.passes:
            self._queue.show(info)
        elif self.passes.is_since(info):
            self._passed_changed(info)

    def pods_changed(self, pods: Sequence[objects.Pod | objects.ListedPod]) -> None:
        """Handle several pods that were added or modified: of a first list, none is known."""
        if isinstance(pods, objects.ListedPods) and self._take_listed(pods):
            return
        placed: list[PodInfo] = []
        waiting: list[tuple[PodInfo, objects.Pod | objects.ListedPod]] = []
        uids: set[str] = set()
        some_pending = bool(self._foreign or len(self._queue) or self._cluster.nominated)
        counted, make = self._cluster.pods, self._cluster.templates.pod
        for pod in pods:
            uid = (pod if isinstance(pod, objects.ListedPod) else pod.metadata).uid
            if uid in uids or uid in counted or (some_pending and self._is_pending(uid)):
                if placed or waiting:
                    self._assign_many(placed)
                    self._wait_many(waiting)
                    placed, waiting = [], []
                uids.add(uid)  # it may be pending from now on
                take_one(self.pod_changed, pod)
                continue
            try:
                info = make(pod)
            except ValueError as error:
                report_unusable(pod, error)
                continue
            if info.terminal:
                self._saw(info.resource_version)
                self._pod_gone(uid)
                continue
            uids.add(uid)
            if info.node_name:
                if waiting:
                    self._wait_many(waiting)
                    waiting = []
                placed.append(info)
            else:
                if placed:
                    self._assign_many(placed)
                    placed = []
                waiting.append((info, pod))
        self._assign_many(placed)
        self._wait_many(waiting)

    def _take_listed(self, pods: objects.ListedPods) -> bool:
        """Handle pods that are all new, and all on nodes; return whether they are."""
        uids, known = pods.uids, self._cluster.pods.keys()
        if not uids or len(set(uids)) < len(uids) or not all(pods.node_names) or not known.isdisjoint(uids):
            return False
        if (self._foreign or len(self._queue) or self._cluster.nominated) and any(map(self._is_pending, uids)):
            return False
        cluster = self._cluster
        rows: list[Any] = list(map(cluster.nodes.rows.get, pods.node_names))
        # one text for all pods of a node, which this finds sooner than `intern`
        are_known = None not in rows
        names = list(map(cluster.nodes.names.__getitem__, rows) if are_known else map(intern, pods.node_names))
        try:
            alike = cluster.templates.pods(pods, names)
        except ValueError:  # handled one by one, each pod that cannot be used is reported
            return False
        if any(example.terminal for example in alike.examples):
            return False
        place = partial(cluster.place_alike, alike, names, uids, rows)
        known_nodes = names if are_known else self._known_nodes(names)
        self._assign_all(alike.pods, uids, known_nodes, set(pods.resource_versions), place)
        return True

    def _is_pending(self, uid: str) -> bool:
        return uid in self._foreign or self._queue.get(uid) is not None or self._cluster.is_nominated(uid)

    def _wait_many(self, pods: Sequence[tuple[PodInfo, objects.Pod | objects.ListedPod]]) -> None:
        """Handle pods on no node that were not known before, each with what it was made of."""
        if not pods:
            return
        self.pods_seen = max(self.pods_seen, *map(version_number, {info.resource_version for info, _ in pods}))
        serves, nominated, now = self._algorithm.serves, self._cluster.nominated, self._clock()
        for info, pod in pods:
            try:
                if info.terminating or info.nominated_node or nominated or not serves(info):
                    self._pod_pending(info)
                else:
                    self.claimants.add(info)
                    self._queue.add(info, now)
            except ValueError as error:
                report_unusable(pod, error)
        self._wakeups.requested.set()

    def _assign_many(self, infos: Sequence[PodInfo]) -> None:
        """Handle pods on nodes that were not known before."""
        if infos:
            uids, versions = [info.uid for info in infos], {info.resource_version for info in infos}
            known_nodes = self._known_nodes([info.node_name for info in infos])
            self._assign_all(infos, uids, known_nodes, versions, partial(self._cluster.place_many, infos))

    def _known_nodes(self, names: Sequence[str]) -> Sequence[str]:
        rows = self._cluster.nodes.rows
        return [name for name in names if name in rows]  # a pod may name any

    def _assign_all(
        self,
        infos: Sequence[PodInfo],
        uids: Sequence[str],
        known_nodes: Sequence[str],
        versions: Iterable[str],
        place: Callable[[], None],
    ) -> None:
        """Handle such pods with these uids, on nodes of which these are known. place: counts them."""
        self.pods_seen = max(self.pods_seen, *map(version_number, versions))
        self._on_assigned(infos)
        self._on_left(uids)  # nothing waits with a place: it would be known
        place()
        self._mark_all(known_nodes)

    def _saw(self, version: str) -> None:
        if (number := version_number(version)) > self.pods_seen:
            self.pods_seen = number

    def _passed_changed(self, info: PodInfo) -> None:
        """Handle a pod that was passed on: it will be bound there, or is returned."""
        uid, host = info.uid, self._cluster.assumed[info.uid]
        if self._algorithm.passed_to(info) == host:
            self.passes.show(info)
        else:
            self.take_back(uid)
            self._pod_pending(info)
            times = self._returns[uid] = self._returns.get(uid, 0) + 1
            queued = self._queue.get(uid)
            if queued is not None and queued.place is Place.ACTIVE:
                queued.rejections = times
                self._queue.returned(queued, self._clock())

    def take_back(self, uid: str) -> None:
        """Forget a pod on the node that it was passed on to."""
        early = self.passes.drop(uid)
        self._cluster.forget(uid)
        if early is not None:
            self._pod_pending(early)

    def was_passed(self, uid: str, *, version: int) -> None:
        """Record that the API server shows a pod as passed on since this resource version."""
        since = self.passes.answered(uid, version=version)
        if since is not None:
            self._passed_changed(since)

    def _pod_pending(self, info: PodInfo) -> None:
        if info.uid in self._cluster.pods:
            self._cluster.remove(info.uid)  # the state in the API server is authoritative
        if info.terminating or not self._algorithm.serves(info):
            self.claimants.drop(info.uid)
            self._queue.remove(info.uid)
            self._nominate_foreign(info)
            node_name = None if info.terminating else self._algorithm.passed_to(info)
            if node_name is not None:
                self._cluster.assume(info, node_name, now=self._clock())
                self.passes.show(info)
            elif not info.terminating:
                self._foreign[info.uid] = info
        else:
            known = self._queue.get(info.uid)
            if known is not None:
                info = known.update(info)
            self._cluster.nominate(info, info.nominated_node)
            self.claimants.add(info)
            self._queue.add(info, self._clock())
            self._wakeups.requested.set()

    def still_passed_here(self, uid: str) -> PodInfo | None:
        """Return a pod that was to be given back as the API server still shows it; None where that is over."""
        queued = self._queue.get(uid)
        known = queued.pod if queued is not None else self._foreign.get(uid)
        if known is None or known.nominated_node:
            return None
        passed_for = next((c.message for c in known.conditions if c.type == PASSED_ON and c.status == "True"), "")
        pod = msgspec.structs.replace(known, nominated_node=passed_for)
        return pod if self._algorithm.was_passed_here(pod) else None

    def decide_again(self, pod: PodInfo) -> None:
        """Put a pod into the active queue that could not be given back."""
        self._queue.remove(pod.uid)
        self._foreign.pop(pod.uid, None)
        self._pod_pending(pod)

    def pending(self, uid: str) -> PodInfo | None:
        """Return a pod that waits for another scheduler or replica, None where there is no such pod."""
        return self._foreign.get(uid)

    def pod_deleted(self, pod: objects.Pod) -> None:
        """Handle the end of a pod: deleted, or terminal and outside the watch."""
        self._saw(pod.metadata.resource_version)
        self._pod_gone(pod.metadata.uid)

    def _pod_assigned(self, info: PodInfo) -> None:
        self._on_assigned((info,))
        uid = info.uid
        if uid not in self._cluster.pods or uid in self._cluster.assumed or self._queue.get(uid) is not None:
            self._leave(uid)  # else it left when it was first shown on its node
            self.passes.drop(uid)
            self._returns.pop(uid, None)
            self._queue.done(uid)
        if self._cluster.confirm(info, info.node_name):
            self._mark(info.node_name)

    def _leave(self, uid: str) -> None:
        self.claimants.drop(uid)
        self._waiting_pods.forget(uid)
        self._on_left((uid,))

    def _pod_gone(self, uid: str, *, has_ended: bool = False) -> None:
        """has_ended: whether its work is known to be at its end, well or not."""
        ran = self._ran(uid)
        self._on_gone(uid)
        self._leave(uid)
        self.passes.drop(uid)
        self._returns.pop(uid, None)
        self._foreign.pop(uid, None)
        self._queue.remove(uid)
        self._cluster.end_nomination(uid)
        self._cluster.remove(uid)
        if ran is not None:
            self._waiting_pods.short.left(ran, self._clock(), is_loss=ran.terminating and not has_ended)

    def _ran(self, uid: str) -> PodInfo | None:
        """Return a pod as it was shown last on its node; None if it was not."""
        is_ours = uid in self._cluster.assumed or self._queue.get(uid) is not None
        return None if is_ours else self._cluster.pods.get(uid)

    def pods_replaced(self, pods: Sequence[objects.Pod]) -> None:
        """Handle a full list: pods that are not in it are gone."""
        known = {*self._cluster.pods, *(queued.pod.uid for queued in self._queue), *self._foreign}
        with self._ledger.together():
            for uid in sorted(known.difference(pod.metadata.uid for pod in pods)):
                self._pod_gone(uid)
        try:
            self.pods_changed(pods)
        except Exception:  # one of them must not keep the others from being known
            take_each(self.pod_changed, pods)

    # --- nodes ---------------------------------------------------------------------------------------

    def nodes_replaced(self, nodes: Sequence[objects.Node]) -> None:
        """Handle a full list: nodes that are not in it are gone."""
        with self._ledger.together():
            for name in sorted(set(self._cluster.nodes.names).difference(node.metadata.name for node in nodes)):
                self._node_gone(name)
        try:
            self.nodes_changed(nodes)
        except Exception:  # one of them must not keep the others from being known
            take_each(self.node_changed, nodes)

    def node_changed(self, node: objects.Node) -> None:
        """Handle a node that was added or modified."""
        if node_events(self._cluster.set_node(node)):
            self._mark(node.metadata.name)
            self._waiting_pods.node_changed(node.metadata.name)

    def nodes_changed(self, nodes: Sequence[objects.Node]) -> None:
        """Handle several nodes that were added or modified: pods that they may help are moved once."""
        with self._ledger.together():
            self._nodes_changed(nodes)

    def _nodes_changed(self, nodes: Sequence[objects.Node]) -> None:
        new: dict[str, NodeInfo] = {}
        table = self._cluster.nodes
        for node in nodes:
            name = node.metadata.name
            if name in new:
                self._add_nodes(new)
                new = {}
            try:
                if name in table.rows:
                    self.node_changed(node)
                else:
                    new[name] = table.interpret(node)
            except ValueError as error:
                report_unusable(node, error)
        self._add_nodes(new)

    def _add_nodes(self, new: Mapping[str, NodeInfo]) -> None:
        """Handle nodes that were not known before, by name."""
        if not new:
            return
        self._cluster.add_nodes(list(new.values()))
        self._mark_all(new)
        self._waiting_pods.nodes_changed(new)

    def node_deleted(self, node: objects.Node) -> None:
        """Handle the deletion of a node; its pods stay in the cache."""
        self._node_gone(node.metadata.name)

    def _node_gone(self, name: str) -> None:
        self._cluster.remove_node(name)
        self._marks.pop(name, None)
        self._waiting_pods.node_changed(name)

    # --- other objects -------------------------------------------------------------------------------

    def objects_replaced(self, kind: type, things: Sequence[Any]) -> None:
        """Handle a full list of one kind: objects that are not in it are gone."""
        keys = {object_key(thing.metadata) for thing in things}
        present: list[Any] = list(self._cluster.all(kind))
        for old in present:
            if object_key(old.metadata) not in keys:
                self.object_deleted(old)
        take_each(self.object_changed, things)
        if kind is objects.ResourceClaim:  # a list has no order, so each counts beside all others
            take_each(self._claims.delivered, things)

    def kind_unavailable(self, kind: type, why: str) -> None:
        """Record why the objects of a kind cannot be read, "" once they can: without claims, their pods are gated."""
        if kind is objects.ResourceClaim:
            self._cluster.resource_claims.set_unavailable(why)

    def claim_changed(self, claim: objects.ResourceClaim) -> None:
        """Handle one event about a claim."""
        self.object_changed(claim)
        self._claims.delivered(claim)

    def object_changed(self, thing: Any) -> None:
        """Handle an object of another kind that was added or modified.

        One that was deleted and created again, of which no watch has shown the deletion, is another one.
        """
        known: Any = self._cluster.get(type(thing), object_key(thing.metadata))
        if known is not None and is_another(known, thing):
            self.object_deleted(known)
        if isinstance(thing, objects.ResourceClaim):
            self._claim_changed(thing)
            return
        is_in_tree = isinstance(thing, objects.PodGroup | objects.CompositePodGroup)
        if is_in_tree and is_same_group(self._cluster.get(type(thing), object_key(thing.metadata)), thing):
            self._cluster.set_object(thing)
            return
        before = self._parents(thing) if is_in_tree else ()
        self._cluster.set_object(thing)
        if (rule := _GROUP_RULES.get(type(thing))) is not None:
            self._queue.group_changed(rule, object_key(thing.metadata))
            for parent in dict.fromkeys((*before, *self._parents(thing))) if is_in_tree else ():
                self._queue.group_changed(COMPOSITE_POD_GROUP, parent)
            self._wakeups.requested.set()

    def _parents(self, group: objects.PodGroup | objects.CompositePodGroup) -> tuple[str, ...]:
        """Return the keys of the composite groups that a group belongs to, as far as they are known."""
        known = self._cluster.get(type(group), object_key(group.metadata))
        return parents_of(self._cluster, known) if known is not None else ()

    def _claim_changed(self, claim: objects.ResourceClaim) -> None:
        """Handle a claim. If it was deallocated, it helps any pod; in any case it may help pods that refer to it."""
        key, claims = object_key(claim.metadata), self._cluster.resource_claims
        before = claims.get(key)
        self._cluster.set_object(claim)
        after = claims.get(key)
        assert after is not None
        if before is None or not gives_as_before(before, after):
            self._wake_claimants(after)

    def _claim_deleted(self, claim: objects.ResourceClaim) -> None:
        self._cluster.remove_object(claim)
        self._wake_claimants(claim)

    def claims_settled(self, claims: Iterable[objects.ResourceClaim]) -> None:
        """Move the pods that refer to claims that are no longer being allocated."""
        for claim in claims:
            self._wake_claimants(claim)

    def _wake_claimants(self, claim: objects.ResourceClaim) -> None:
        """Move the pods that refer to a claim, or that own it."""
        now = self._clock()
        owners = [owner.uid for owner in claim.metadata.owner_references or () if owner.controller]
        for uid in (*self.claimants.of(object_key(claim.metadata)), *owners):
            if self._queue.wake(uid, ClusterEvent.RESOURCE_CLAIM, now):
                self._wakeups.requested.set()

    def object_deleted(self, thing: Any) -> None:
        """Handle the deletion of an object of another kind."""
        if isinstance(thing, objects.ResourceClaim):
            self._claim_deleted(thing)
            self._claims.delivered(thing, gone=True)
            return
        parents = self._parents(thing) if isinstance(thing, objects.PodGroup | objects.CompositePodGroup) else ()
        self._cluster.remove_object(thing)
        for parent in parents:
            self._queue.group_changed(COMPOSITE_POD_GROUP, parent)

    def policies_changed(self) -> None:
        """Move all pods: new policies, or a new shard, may decide differently and serve other pods."""
        for pod in self.passes.shown():
            if self._algorithm.passed_to(pod) != self._cluster.assumed[pod.uid]:
                self.take_back(pod.uid)
                self._pod_pending(pod)
        for pod in list(self._foreign.values()):
            if self._algorithm.serves(pod) or self._algorithm.passed_to(pod) is not None:
                self._pod_pending(self._foreign.pop(pod.uid))
        for queued in [queued for queued in self._queue if not self._algorithm.serves(queued.pod)]:
            if queued.place is not Place.IN_FLIGHT:
                self.disown(queued)
        for uid in list(self._foreign):
            shown = self.still_passed_here(uid)
            if shown is not None:  # it was ours when we could not end its nomination: now its replica waits for us
                self.decide_again(shown)
        for pod in self._foreign.values():
            self._nominate_foreign(pod)
        self._ledger.note(ClusterEvent.POLICY)

    def _nominate_foreign(self, pod: PodInfo) -> None:
        """Count a pending pod that is not ours as nominated, if today's rules and shards put it on one of our nodes.

        One that is terminating is bound by nobody.
        """
        keeps = not pod.terminating and self._algorithm.is_nominated_to_ours(pod)
        self._cluster.nominate(pod, pod.nominated_node if keeps else "")

    def disown(self, queued: QueuedPod) -> None:
        """Remove a pod from the queue that belongs to another replica or scheduler."""
        self._pod_pending(queued.pod)

    def signals_changed(self) -> None:
        """Move the pods that new signal values may help."""
        self._ledger.note(ClusterEvent.SIGNALS)


class Claimants:
    """Pending pods by the claims that they refer to, which need not exist."""

    def __init__(self) -> None:
        self._by_claim: dict[str, dict[str, None]] = {}
        """Uids by claim, `namespace/name`."""
        self._claims: dict[str, tuple[str, ...]] = {}
        """Claims by uid."""

    def add(self, pod: PodInfo) -> None:
        """Add a pod, or its new state."""
        if not pod.template.spec.resource_claims:
            return
        self.drop(pod.uid)
        keys = tuple(dict.fromkeys(key_of(pod.namespace, name) for name in claim_names(pod)))
        if keys:
            self._claims[pod.uid] = keys
        for key in keys:
            self._by_claim.setdefault(key, {})[pod.uid] = None

    def drop(self, uid: str) -> None:
        """Drop a pod that is gone or has a node."""
        for key in self._claims.pop(uid, ()):
            there = self._by_claim[key]
            there.pop(uid, None)
            if not there:
                del self._by_claim[key]

    def of(self, key: str) -> list[str]:
        """Return the uids of the pods that refer to a claim, `namespace/name`."""
        return list(self._by_claim.get(key, ()))
