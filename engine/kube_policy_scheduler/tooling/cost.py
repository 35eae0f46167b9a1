"""What a cluster costs: prices onto nodes, and sums per hour and month with their source. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.prices import HOURS_OF_A_MONTH, PRICE_KEY, price_of, prices, taken_shares
from kube_policy_scheduler.documents.price_list import PriceList
from kube_policy_scheduler.tooling.cluster_state import is_of_node
from kube_policy_scheduler.wording import listed, plural

OF_NODES = "the nodes themselves"
"""Source of prices: annotations and labels."""


@dataclass(frozen=True, slots=True)
class PriceSources:
    """Where the prices of a cluster's nodes come from."""

    currency: str = ""
    nodes: tuple[tuple[str, int], ...] = ()
    """Sources, and how many nodes have their price of them."""
    unknown: int = 0
    """Nodes without a price."""

    @property
    def known(self) -> int:
        """Return how many nodes have a price."""
        return sum(count for _, count in self.nodes)

    def sentence(self) -> str:
        """Return it in one line."""
        if not self.nodes:
            return "no node has a price"
        parts = listed(f"{name} ({plural(count, 'node')})" for name, count in self.nodes)
        return f"prices from {parts}" + (f"; {plural(self.unknown, 'node')} without a price" if self.unknown else "")


NO_PRICES = PriceSources()


def set_prices(
    things: Iterable[Any], lists: Sequence[PriceList], measured: Sequence[tuple[str, Mapping[str, float]]]
) -> PriceSources:
    """Write the price of each node into its annotation: of a list, else its own, else as measured.

    Args:
        things: API objects; nodes are changed.
        lists: price lists, the most important first.
        measured: names of sources, and prices by the name of the node.
    """
    counts: Counter[str] = Counter()
    unknown = 0
    for node in things:
        if not isinstance(node, objects.Node):
            continue
        labels = node.metadata.labels or {}
        found = next(((one.name, price) for one in lists if (price := one.hourly(labels)) is not None), None)
        if found is None and price_of(node) == price_of(node):
            counts[OF_NODES] += 1
            continue
        if found is None:
            name = node.metadata.name
            found = next(((source, by_node[name]) for source, by_node in measured if by_node.get(name, 0) > 0), None)
        if found is None:
            unknown += 1
            continue
        counts[found[0]] += 1
        text = f"{found[1]:.9f}".rstrip("0").rstrip(".")
        node.metadata.annotations = {**(node.metadata.annotations or {}), PRICE_KEY: text}
    currency = next((one.currency for one in lists if one.currency), "")
    return PriceSources(currency, tuple(sorted(counts.items())), unknown)


@dataclass(frozen=True, slots=True)
class Cost:
    """What some nodes cost."""

    hourly: float
    """Of the nodes whose price is known."""
    nodes: int
    """Those nodes."""
    unknown: int
    """The others."""

    @property
    def monthly(self) -> float:
        """Return it for a month of 730 hours."""
        return self.hourly * HOURS_OF_A_MONTH


def money(hourly: float, currency: str) -> str:
    """Return a price per hour in words, with that per month."""
    unit = f" {currency}" if currency else ""
    hour = f"{hourly:,.4f}" if hourly < 1 else f"{hourly:,.2f}"
    return f"{hour}{unit} per hour, {hourly * HOURS_OF_A_MONTH:,.0f}{unit} per month"


def cost(cluster: Cluster, *, among: BoolArray | None = None) -> Cost:
    """Return what nodes cost; among: `bool[nodes]`, None: all."""
    each = prices(cluster.nodes) if among is None else prices(cluster.nodes)[among]
    known = ~np.isnan(each)
    return Cost(float(each[known].sum()), int(known.sum()), int(len(each) - known.sum()))


def idle_hourly(cluster: Cluster) -> float:
    """Return the price of what is free: of each node with a price, the share that no pod takes of any resource."""
    each = prices(cluster.nodes) * (1.0 - taken_shares(cluster.nodes))
    return float(np.nansum(each))


def in_use(cluster: Cluster) -> BoolArray:
    """Return `bool[nodes]`: those that have a pod which does not belong to the node."""
    result: BoolArray = np.zeros(cluster.nodes.size, np.bool_)
    infos = cluster.nodes.infos
    for row in np.flatnonzero(cluster.nodes.pod_count).tolist():
        result[row] = any(not is_of_node(pod) for pod in cluster.pods_on(infos[row].name).values())
    return result
