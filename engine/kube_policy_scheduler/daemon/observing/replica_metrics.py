"""A replica among others, in numbers for those who ask: metrics, the status page, the state. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kube_policy_scheduler.wording import amount


@dataclass(frozen=True, slots=True)
class Part:
    """What a replica has of the work that several share."""

    identity: str
    members: tuple[str, ...]
    """Who shares it as far as this replica knows, itself included; empty before it has looked."""
    takes_part: bool
    """Whether it may decide; False while it waits for a hand-over."""
    waits_for: tuple[str, ...]
    """Whose hand-over it waits for."""
    nodes: int
    """Nodes that are its own."""
    pods: int
    """Pending pods that are its own."""
    passed_on: int
    """Pods passed on to the owners of other nodes, so far."""
    given_back: int
    """Pods given back to those who passed them on: by then the node did not take them."""
    failed: int
    """Pods that could not be passed on: they changed meanwhile, or the API server refused."""


def described(part: Part, *, nodes: int) -> list[tuple[str, str]]:
    """Return a part in words, by what they are about; nodes: how many there are in all."""
    others = [member for member in part.members if member != part.identity]
    found = [("shares the work with", ", ".join(others) or "nobody" if part.members else "not known yet")]
    if part.takes_part:
        found.append(("its own nodes", f"{amount(part.nodes)} of {amount(nodes)}"))
    else:
        found.append(("waits for a hand-over by", ", ".join(part.waits_for) or "others not known yet"))
    handed = f"{amount(part.passed_on)} passed on, {amount(part.given_back)} given back, {amount(part.failed)} failed"
    return [*found, ("pods that changed hands", handed)]


@dataclass(frozen=True, slots=True)
class Elected:
    """What a replica knows of the lease that one of several holds."""

    name: str
    """Of the lease."""
    leads: bool
    """Whether this replica holds it, and may act."""
    holder: str = ""
    """Identity in the lease, as seen last; empty where nobody holds it, or it was not seen yet."""
    trouble: str = ""
    """Why the lease cannot be read or written; empty where it can."""


@dataclass(slots=True)
class ReplicaState:
    """What is asked for at a scrape; the daemon sets these once their owners exist."""

    elected: Callable[[], Elected | None] = lambda: None
    """None without leader election."""
    part: Callable[[], Part | None] = lambda: None
    """None where one replica does it all."""


class ReplicaMetrics(Collector):
    """Exports whether a replica leads, and its part."""

    def __init__(self, state: ReplicaState) -> None:
        self._state = state

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry then does not call `collect` when it registers us."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the state of now; families without a sample where they do not apply."""
        leader = GaugeMetricFamily(
            "leader_election_master_status", "1 if this replica is the leader, otherwise 0.", labels=["name"]
        )
        holder = GaugeMetricFamily(
            "policy_scheduler_lease_holder",
            "1 for the holder of the lease, as this replica sees it.",
            labels=["name", "holder"],
        )
        usable = GaugeMetricFamily(
            "policy_scheduler_lease_usable",
            "1 if this replica can read and write the lease, or has only just failed to; otherwise 0.",
            labels=["name"],
        )
        if (elected := self._state.elected()) is not None:
            leader.add_metric([elected.name], float(elected.leads))
            usable.add_metric([elected.name], float(not elected.trouble))
            if elected.holder:
                holder.add_metric([elected.name, elected.holder], 1.0)
        yield from (leader, holder, usable)
        part = self._state.part()
        members = GaugeMetricFamily(
            "policy_scheduler_shard_members",
            "Number of replicas that share the work, as this replica sees them.",
            labels=[],
        )
        ready = GaugeMetricFamily(
            "policy_scheduler_shard_ready",
            "1 while this replica takes part in the sharing; 0 while it waits for a hand-over.",
            labels=[],
        )
        nodes = GaugeMetricFamily(
            "policy_scheduler_shard_nodes", "Number of nodes that belong to this replica.", labels=[]
        )
        handed = CounterMetricFamily(
            "policy_scheduler_shard_pods",
            "Number of pods that were handed to another replica, by result: passed_on, given_back, failed.",
            labels=["result"],
        )
        if part is not None:
            members.add_metric([], len(part.members))
            ready.add_metric([], float(part.takes_part))
            nodes.add_metric([], part.nodes)
            for result, number in (
                ("passed_on", part.passed_on),
                ("given_back", part.given_back),
                ("failed", part.failed),
            ):
                handed.add_metric([result], number)
        yield from (members, ready, nodes, handed)
