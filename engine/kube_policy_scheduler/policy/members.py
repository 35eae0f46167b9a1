"""The nodes and pods of a member of a fleet, as policies of workloads read them."""

from __future__ import annotations

from collections.abc import Iterable

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.fleet.model import ToldMember
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.member_values import MemberValue


class ReadMember:
    """A member cluster that was read itself, and that nobody else changes meanwhile."""

    problem = ""

    def __init__(self, cluster: Cluster, at: float | None = None) -> None:
        """Take what was read of it. at: when, Unix seconds; None: that does not matter."""
        self.cluster, self.at = cluster, at
        self._nobody = cluster.templates.pod(objects.Pod(metadata=objects.ObjectMeta(name="")))
        """Stands for the pod that is decided: here, none is."""

    def value(self, asked: MemberValue, now: float) -> float:
        """Return a value of it, `asked.missing` if it has none. now: Unix seconds."""
        return asked.of(Frame(self._nobody, self.cluster, now))

    def told(self, asked: Iterable[MemberValue], now: float) -> ToldMember:
        """Return some of its values, which nobody can change. now: Unix seconds."""
        return ToldMember({each: self.value(each, now) for each in asked}, at=now)
