"""A cluster on which things are tried: each change can be undone, the last first. Pure.

Every command that tries something out does it here: where pods would go, what a case of a test says, what would be if
a node were gone. Undoing gives back claims, devices, nominations and where pods ran before, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.node_devices import Chosen
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.taints import UNSCHEDULABLE_KEY
from kube_policy_scheduler.framework.frame import DeviceOrder
from kube_policy_scheduler.framework.reserve.claims_in_memory import give_claims_back, take_claims


class UndoableCluster:
    """Changes a cluster, and takes the changes back."""

    def __init__(self, cluster: Cluster, *, now: float = 0.0) -> None:
        """now: Unix seconds, at which claims are allocated."""
        self.cluster, self.now = cluster, now
        self._log: list[Callable[[], object]] = []

    def mark(self) -> int:
        """Return where the changes are now, for `undo_to`."""
        return len(self._log)

    def undo_to(self, mark: int) -> None:
        """Undo the changes since a mark, the last first."""
        while len(self._log) > mark:
            self._log.pop()()

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Undo at the end what is changed within."""
        mark = self.mark()
        try:
            yield
        finally:
            self.undo_to(mark)

    def undo_by(self, undo: Callable[[], object]) -> None:
        """Note what takes back a change that was made elsewhere."""
        self._log.append(undo)

    # --- pods ----------------------------------------------------------------------------------------

    def place(
        self,
        pod: PodInfo,
        host: str,
        *,
        order: DeviceOrder | None = None,
        devices: Mapping[str, Chosen] | None = None,
    ) -> None:
        """Count a pod on the node that was chosen for it; it keeps no room any more.

        Args:
            pod: one without a node.
            host: its node.
            order: in which the devices of the node are tried for its claims; None: kube-scheduler's.
            devices: those that it shares, by resource; None: the default.
        """
        cluster = self.cluster
        self._log.append(take_claims(cluster, pod, host, now=self.now, order=order))
        self._count(pod, host, devices or None)

    def put(self, pod: PodInfo, host: str) -> None:
        """Count a pod on a node without a decision, as one that belongs to the node; it keeps no room any more."""
        self._count(pod, host, None)

    def _count(self, pod: PodInfo, host: str, devices: Mapping[str, Chosen] | None) -> None:
        cluster = self.cluster
        cluster.place(pod, host, devices=devices)
        self._log.append(lambda: cluster.displace(pod.uid))
        if cluster.is_nominated(pod.uid):
            self.nominate(pod, "")

    def take_off(self, pod: PodInfo, *, ends: bool = False) -> PodInfo:
        """Take a pod off its node; return it as it would wait.

        ends: whether it is gone for good, with its own claims, and one that follows it knows where it ran.
        """
        cluster, uid = self.cluster, pod.uid
        host = cluster.node_of(uid)
        assert host is not None, "it counts on a node"
        devices = self._devices(uid)
        removed = cluster.displace(uid)
        assert removed is not None
        self._log.append(lambda: cluster.place(removed, host, devices=devices))
        self._log.append(give_claims_back(cluster, removed, ends=ends))
        if ends:
            self.ran_before(removed, host)
        return msgspec.structs.replace(removed, node_name="", nominated_node="")

    def terminate(self, pod: PodInfo) -> None:
        """Delete a pod as the API server does: it still counts on its node, as one that terminates."""
        cluster, uid = self.cluster, pod.uid
        host, before = cluster.node_of(uid), cluster.pods.get(uid)
        assert host is not None, "it counts on a node"
        assert before is not None
        devices = self._devices(uid)
        cluster.place(msgspec.structs.replace(before, terminating=True), host, devices=devices)
        self._log.append(lambda: cluster.place(before, host, devices=devices))

    def _devices(self, uid: str) -> Mapping[str, Chosen] | None:
        return self.cluster.devices.held(uid) if self.cluster.devices.tables else None

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Nominate a pod to a node; "": to none any more."""
        cluster, uid = self.cluster, pod.uid
        before, known = next(
            ((name, there[uid]) for name, there in cluster.nominated.items() if uid in there), ("", pod)
        )  # fmt: skip
        cluster.nominate(pod, node_name)
        self._log.append(lambda: cluster.nominate(known, before))

    def ran_before(self, pod: PodInfo, node_name: str) -> None:
        """Remember where a pod ran that another one follows."""
        known = self.cluster.previous_nodes
        before = known.of(pod)
        known.note(pod, node_name)
        self._log.append(lambda: known.note(pod, before) if before is not None else known.forget(pod))

    # --- nodes and other objects ---------------------------------------------------------------------

    def set_node(self, node: objects.Node) -> None:
        """Add a node, or change it."""
        cluster, name = self.cluster, node.metadata.name
        row = cluster.nodes.rows.get(name)
        before = cluster.nodes.infos[row].node if row is not None else None
        cluster.set_node(node)
        if before is None:
            self._log.append(lambda: cluster.remove_node(name))
        else:
            self._log.append(lambda: cluster.set_node(before))

    def remove_node(self, name: str) -> list[PodInfo]:
        """Remove a node, and all pods on it; return these as they would wait."""
        cluster = self.cluster
        pods = [self.take_off(pod) for pod in list(cluster.pods_on(name).values())]
        before = cluster.nodes.infos[cluster.nodes.rows[name]].node
        cluster.remove_node(name)
        self._log.append(lambda: cluster.set_node(before))
        return pods

    def cordon(self, name: str) -> None:
        """Keep new pods off a node, as `kubectl cordon` does."""
        node = self.cluster.nodes.infos[self.cluster.nodes.rows[name]].node
        if node.spec.unschedulable:
            return
        taint = objects.Taint(key=UNSCHEDULABLE_KEY, effect="NoSchedule")
        spec = msgspec.structs.replace(node.spec, unschedulable=True, taints=[*(node.spec.taints or ()), taint])
        self.set_node(msgspec.structs.replace(node, spec=spec))

    def set_object(self, made: Any) -> None:
        """Add or change an object other than a node or a pod."""
        cluster, kind = self.cluster, type(made)
        before = cluster.get(kind, object_key(made.metadata))
        cluster.set_object(made)
        if before is not None:
            self._log.append(lambda: cluster.set_object(before))
        else:
            self._log.append(lambda: cluster.remove_object(made))
