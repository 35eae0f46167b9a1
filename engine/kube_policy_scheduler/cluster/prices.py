"""What nodes cost: the price that an annotation or a label of a node states.

No cloud writes the price of a node on it. `policyctl --prices`, an operator or a script does, per hour. What is not a
price above zero is missing: exporters write 0 for what they do not know.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import FloatArray, NodeInfo, NodeTable
from kube_policy_scheduler.cluster.pods import PodTemplate

PRICE_KEY = "policy-scheduler/hourly-price"
"""The annotation, or the label, of a node."""
HOURS_OF_A_MONTH = 730
"""A twelfth of 365 days."""
_NUMBER = r"[0-9]{1,9}(\.[0-9]{1,9})?"


def is_price(text: str) -> bool:
    """Return whether a text is a price above zero: up to nine digits, and up to nine after the point."""
    return re.fullmatch(_NUMBER, text) is not None and float(text) > 0


def price_text(price: float) -> str:
    """Return a price as the annotation has it."""
    return f"{price:.9f}".rstrip("0").rstrip(".")


def price_of(node: objects.Node) -> float:
    """Return what a node costs per hour; NaN where nobody says it. The annotation counts before the label."""
    for texts in (node.metadata.annotations, node.metadata.labels):
        text = (texts or {}).get(PRICE_KEY)
        if text is not None and is_price(text):
            return float(text)
    return math.nan


def _read(info: NodeInfo) -> float:
    return price_of(info.node)


def prices(nodes: NodeTable) -> FloatArray:
    """Return `float64[nodes]`: what each node costs per hour; NaN where nobody says it."""
    return nodes.valued("hourly price", _read, np.float64)


def largest_share(nodes: NodeTable, requests: Mapping[str, int]) -> FloatArray:
    """Return `float64[nodes]`: the largest share of a resource of the node that some requests take, at most 1."""
    result = np.zeros(nodes.size)
    for resource, amount in requests.items():
        offered = nodes.allocatable(resource)
        share = np.divide(amount, offered, out=np.ones(nodes.size), where=offered > 0)
        np.maximum(result, share, out=result)
    return np.minimum(result, 1.0)


def pod_prices(nodes: NodeTable, template: PodTemplate) -> FloatArray:
    """Return `float64[nodes]`: the part of each node's price that a pod takes: its largest share of a resource."""
    result: FloatArray = prices(nodes) * largest_share(nodes, template.requests)
    return result


def taken_shares(nodes: NodeTable) -> FloatArray:
    """Return `float64[nodes]`: the largest share of a resource that the pods on the node take, at most 1."""
    result = np.zeros(nodes.size)
    for resource in {name for info in nodes.infos for name in info.allocatable} - {"pods", "ephemeral-storage"}:
        offered = nodes.allocatable(resource)
        share = np.divide(nodes.requested(resource), offered, out=np.zeros(nodes.size), where=offered > 0)
        np.maximum(result, share, out=result)
    return np.minimum(result, 1.0)
