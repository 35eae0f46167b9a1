"""What waits in the queue as kube-scheduler counts it since 1.37: a PodGroup, or a composite group, is one entity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import key_of, parent_group
from kube_policy_scheduler.cluster.objects import CompositePodGroup, PodGroup
from kube_policy_scheduler.framework.queue.queued_pod import Place, QueuedPod

_NEAREST_FIRST = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
_RANK: Mapping[Place, int] = {place: rank for rank, place in enumerate(_NEAREST_FIRST)}
POD, POD_GROUP, COMPOSITE_POD_GROUP = "pod", "podgroup", "compositepodgroup"
"""The types of entities, as kube-scheduler labels them."""


class QueuedEntities:
    """Counts pods that are in no PodGroup, and groups: each once, where the pod of it waits that is tried first."""

    def __init__(self, cluster: Cluster) -> None:
        """cluster: knows which groups are in composite groups."""
        self._cluster = cluster
        self._pods: Counter[Place] = Counter()
        self._groups: dict[str, int] = {}
        """By `namespace/name` of PodGroups: the lowest rank of their pods."""

    def add(self, queued: QueuedPod) -> None:
        """Count a pod; one that is being decided, or has a node, is in no queue."""
        rank = _RANK.get(queued.place)
        if rank is None:
            return
        group = queued.pod.template.spec.scheduling_group
        if group is None:
            self._pods[queued.place] += 1
        else:
            key = key_of(queued.pod.namespace, group.pod_group_name)
            self._groups[key] = min(rank, self._groups.get(key, rank))

    def total(self) -> dict[tuple[str, str], int]:
        """Return how many entities wait, by queue and type; those that are 0 for pods and PodGroups, too."""
        entities: dict[tuple[str, str], int] = {}
        for key, rank in self._groups.items():
            entity = self._entity(key)
            entities[entity] = min(rank, entities.get(entity, rank))
        found = {(place.value, kind): 0 for place in _NEAREST_FIRST for kind in (POD, POD_GROUP)}
        found |= {(place.value, POD): number for place, number in self._pods.items()}
        for (kind, _), rank in entities.items():
            where = _NEAREST_FIRST[rank].value, kind
            found[where] = found.get(where, 0) + 1
        return found

    def _entity(self, key: str) -> tuple[str, str]:
        """Return the outermost group that a PodGroup is in, as far as groups are known: its type and its key."""
        found, seen = (POD_GROUP, key), set[str]()
        above: PodGroup | CompositePodGroup | None = self._cluster.get(PodGroup, key)
        while above is not None and (parent := parent_group(above)) and parent not in seen:
            seen.add(parent)
            found, above = (COMPOSITE_POD_GROUP, parent), self._cluster.get(CompositePodGroup, parent)
        return found
