"""What is measured while a simulation runs: how much is in use, how evenly, how much of the rest is of use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices import SHARE_SUFFIX, WHOLE
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.cluster.requests import is_extended
from kube_policy_scheduler.framework.fragmentation import fragmentation
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.tooling.simulation.scenario import Resource

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    at: float
    """Seconds from the beginning."""
    arrived: float
    """What was asked for so far of the main resource, as a share of what there is."""
    used: Mapping[str, float]
    """What is in use of each resource, as a share of what there is."""
    spread: float
    """The standard deviation over the nodes of the share of the main resource that is in use."""
    fragmentation: float | None
    """The share of the free room on devices that a pod of the workload could not use; None without devices."""
    pending: int
    running: int


class Measures:
    """Takes samples of one cluster."""

    def __init__(self, cluster: Cluster, resources: Sequence[Resource]) -> None:
        self._cluster = cluster
        self.resources = tuple(resources)
        self.capacity = {resource.name: float(self._offered(resource).sum()) for resource in resources}
        self.main = resources[0]

    def used(self, resource: Resource) -> float:
        """Return the share of a resource that is in use."""
        capacity = self.capacity[resource.name]
        return float(self._used(resource).sum()) / capacity if capacity else 0.0

    def sample(self, frame: Frame | None, *, at: float, arrived: float, pending: int) -> Sample:
        """Return the moment; `frame` of any pod, where the devices are to be looked at."""
        offered, used = self._offered(self.main), self._used(self.main)
        having = offered > 0
        shares = used[having] / offered[having]
        return Sample(
            at=at,
            arrived=arrived,
            used={resource.name: self.used(resource) for resource in self.resources},
            spread=float(shares.std()) if len(shares) else 0.0,
            fragmentation=self._fragmentation(frame),
            pending=pending,
            running=len(self._cluster.pods),
        )

    def _fragmentation(self, frame: Frame | None) -> float | None:
        if not self.main.devices or frame is None:
            return None
        free = float(self._cluster.devices.table(self.main.name).free.sum())
        lost = float(fragmentation(frame, self.main.name).before(slice(None)).sum())
        return lost / free if free else 0.0

    def _offered(self, resource: Resource) -> FloatArray:
        if resource.devices:
            return self._cluster.devices.table(resource.name).count.astype(np.float64)
        return self._cluster.nodes.allocatable(resource.name).astype(np.float64)

    def _used(self, resource: Resource) -> FloatArray:
        if resource.devices:
            table = self._cluster.devices.table(resource.name)
            result: FloatArray = table.count - table.free.sum(axis=1) / WHOLE
            return result
        return self._cluster.nodes.requested(resource.name).astype(np.float64)


def resources_of(cluster: Cluster) -> tuple[Resource, ...]:
    """Return what the nodes offer that results are told about, the main resource first: GPUs where there are any."""
    offered = [name for name in cluster.nodes.resources() if cluster.nodes.allocatable(name).any()]
    extended = [name for name in offered if is_extended(name) and not name.endswith(SHARE_SUFFIX)]
    found = [Resource(name, devices=name + SHARE_SUFFIX in offered) for name in extended]
    found.sort(key=lambda resource: (resource.name != GPU, not resource.devices, resource.name))
    return (*found, Resource("cpu"), Resource("memory"))
