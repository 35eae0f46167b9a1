"""ImageLocality: nodes that have the pod's images already, weighted by size and by how many nodes have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Default, Ready
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE, Score

_MIB = 1024 * 1024
LEAST_BYTES = 23 * _MIB
"""Images adding up to less count for nothing."""
MOST_BYTES = 1000 * _MIB
"""Images adding up to more than this per container count no further."""


@dataclass(frozen=True, slots=True)
class PodImages:
    """The images that a pod needs."""

    names: tuple[str, ...]
    containers: int


class ImageLocality(Score):
    """Scores nodes by the bytes of the pod's images that need not be pulled."""

    name = "ImageLocality"
    default = Default(16, weight=1)

    def pre_score(self, frame: Frame) -> Ready:
        """Name the images."""
        spec = frame.template.spec
        containers = [*(spec.init_containers or ()), *(spec.containers or ())]
        names = [c.image for c in containers] + [v.image.reference for v in spec.volumes or () if v.image is not None]
        images = PodImages(tuple(map(normalized_name, names)), len(containers))
        return Ready(images, key=images)

    def score(self, frame: Frame, state: PodImages) -> IntArray:
        """Return final scores, `int64[rows]`."""
        nodes = frame.cluster.nodes
        images = [image for name in state.names if (image := nodes.images.get(name)) is not None]
        if not images or not state.containers:  # without containers the upper bound would be below the lower one
            return np.zeros(frame.size, np.int64)
        present = np.zeros(nodes.size, np.int64)
        most = MOST_BYTES * state.containers
        for image in images:
            # As in Go: an image counts as its size times the share of nodes that have it, cut to whole bytes. More than
            # counts for all of them need not be added up.
            present[image.row_array()] += min(max(int(image.size_bytes * (len(image.rows) / nodes.size)), 0), most)
        present = np.clip(present[frame.rows], LEAST_BYTES, most)
        result: IntArray = MAX_SCORE * (present - LEAST_BYTES) // (most - LEAST_BYTES)
        return result


def normalized_name(image: str) -> str:
    """Return the image's name with `:latest` where it has no tag (nor digest)."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
