"""Which devices of the chosen node a pod gets: whole ones wherever they are free, a share by the policy's rule."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import numpy as np

from kube_policy_scheduler.cluster.devices import Ask, Chosen, DeviceTable, choose, fullest
from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.framework.choice import seeded_hash
from kube_policy_scheduler.framework.fragmentation import fragmentation
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.device_shares import wanted


class DeviceRule(Enum):
    """Which of the devices that a share fits on is taken; the value is what a policy says."""

    FULLEST = "fullest"
    """The one with the least room."""
    EMPTIEST = "emptiest"
    """The one with the most room."""
    FRAGMENTATION = "fragmentation"
    """The one that lowers the node's fragmentation most."""
    RANDOM = "random"
    """By a seeded hash of the pod."""


def choose_devices(frame: Frame, row: int, rule: DeviceRule, *, seed: int) -> Mapping[str, Chosen]:
    """Return the devices by resource that the pod gets on a node; of several equal ones the first."""
    found = {table.resource: _chosen(frame, row, rule, table=table, ask=ask, seed=seed) for table, ask in wanted(frame)}
    return {resource: chosen for resource, chosen in found.items() if chosen is not None}


def _chosen(frame: Frame, row: int, rule: DeviceRule, *, table: DeviceTable, ask: Ask, seed: int) -> Chosen | None:
    free = table.free[row]
    match rule:
        case DeviceRule.FULLEST:
            return fullest(free, ask)
        case DeviceRule.EMPTIEST:
            return choose(free, ask, lambda fitting: int(fitting[free[fitting].argmax()]))
        case DeviceRule.RANDOM:
            draw = seeded_hash(f"{frame.pod.uid}/device", seed=seed)
            return choose(free, ask, lambda fitting: int(fitting[draw % len(fitting)]))
        case DeviceRule.FRAGMENTATION:
            return choose(free, ask, lambda fitting: _least_fragmenting(frame, row, table.resource, fitting))


def _least_fragmenting(frame: Frame, row: int, resource: str, fitting: IntArray) -> int:
    ways = fragmentation(frame, resource).drops(frame.template, np.array([row]))[0]
    return int(fitting[ways[fitting].argmax()])
