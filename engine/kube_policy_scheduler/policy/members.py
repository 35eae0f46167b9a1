"""The nodes and pods of a member of a fleet, as policies of workloads read them."""

from __future__ import annotations

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.frame import Frame


class ReadMember:
    """A member cluster that was read itself."""

    def __init__(self, cluster: Cluster) -> None:
        """Take what was read of it."""
        self.cluster = cluster
        self._nobody = cluster.templates.pod(objects.Pod(metadata=objects.ObjectMeta(name="")))
        """Stands for the pod that is decided: here, none is."""

    def frame(self, now: float) -> Frame:
        """Return what expressions over its nodes and pods read. now: Unix seconds."""
        return Frame(self._nobody, self.cluster, now)
