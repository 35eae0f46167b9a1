"""ImageLocality: nodes that have the pod's images already, weighted by size and by how many nodes have them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Default, Reads, Ready
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE, Score, same_for_all
from kube_policy_scheduler.kubernetes_rules import Feature

_MIB = 1024 * 1024
LEAST_BYTES = 23 * _MIB
"""Images with a smaller sum do not count."""
MOST_BYTES = 1000 * _MIB
"""Images adding up to more than this per container count as this much."""


class PodImages(NamedTuple):
    """The images that a pod needs and some node has."""

    worth: tuple[tuple[str, int], ...]
    """Each with its contribution where it is present, in bytes."""
    most: int
    """More than this counts as this, in bytes."""


class ImageLocality(Score):
    """Scores nodes by the bytes of the pod's images that are already present."""

    name = "ImageLocality"
    default = Default(16, weight=1)
    reads = Reads.SPEC | Reads.IMAGES

    def pre_score(self, frame: Frame) -> Ready:
        """Compute the contribution of each image.

        As in Go: its size times the share of nodes that have it, cut to whole bytes. More than counts for all of them
        need not be added up.
        """
        nodes, template = frame.cluster.nodes, frame.pod.template
        wanted: tuple[tuple[str, ...], int, int] | None = template.shape.get(self.name)
        if wanted is None:
            wanted = template.shape[self.name] = _wanted(template.spec)
        names, containers, volumes = wanted
        if Feature.IMAGE_VOLUMES_ARE_CONTAINERS in frame.cluster.rules:
            containers += volumes
        most, worth = MOST_BYTES * containers, []
        # without containers the upper bound would be below the lower one
        for name in names if containers else ():
            image = nodes.images.get(name)
            if image is not None:
                spread = int(image.size_bytes * (image.count / nodes.size))
                worth.append((name, min(max(spread, 0), most)))
        images = PodImages(tuple(worth), most)
        return Ready(images, key=images)

    def score(self, frame: Frame, state: PodImages) -> IntArray:
        """Return final scores, `int64[rows]`."""
        nodes = frame.cluster.nodes
        if not state.worth:
            return same_for_all(0, frame.size)
        if isinstance(frame.rows, slice):
            present = np.zeros(nodes.size, np.int64)
            for name, worth in state.worth:
                image = nodes.images.get(name)
                if image is not None:
                    present[image.row_array()] += worth
        else:
            known = [(image, worth) for name, worth in state.worth if (image := nodes.images.get(name)) is not None]
            sums = (sum(worth for image, worth in known if image.has(row)) for row in frame.rows.tolist())
            present = np.fromiter(sums, np.int64, frame.size)
        present = np.clip(present, LEAST_BYTES, state.most)
        result: IntArray = MAX_SCORE * (present - LEAST_BYTES) // (state.most - LEAST_BYTES)
        return result


def _wanted(spec: objects.PodSpec) -> tuple[tuple[str, ...], int, int]:
    """Return the names of the pod's images, its number of containers, and of volumes that are images."""
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    volumes = [v.image.reference for v in spec.volumes or () if v.image is not None]
    names = [c.image for c in containers] + volumes
    return tuple(map(normalized_name, names)), len(containers), len(volumes)


def normalized_name(image: str) -> str:
    """Return the image's name with `:latest` if it has no tag (nor digest)."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
