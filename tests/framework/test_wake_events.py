"""No filter leaves an event out: whatever makes a node pass that did not, the events of the filter name it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.events import ClusterEvent
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Ready, Skip
from kube_policy_scheduler.framework.plugins.inter_pod_affinity import InterPodAffinity
from kube_policy_scheduler.framework.plugins.node_volume_limits import NodeVolumeLimits
from kube_policy_scheduler.framework.plugins.pod_topology_spread import PodTopologySpread
from kube_policy_scheduler.framework.plugins.volume_restrictions import VolumeRestrictions
from kube_policy_scheduler.framework.quota import QueueQuota
from tests.framework import test_volume_plugins as volumes
from tests.framework.clusters import Body
from tests.framework.worlds import NODES, PODS, make_node, make_pod
from tests.policy.worlds import policy

CLAUSES = (
    'filter node.label.disk == "ssd" or node.free.cpu > 3',
    "filter count(p in node.pods) < 2",
    'filter count(p in cluster.pods where p.label.app == "x") < 2',
    "spread by pod.label.app over zone max skew 1",
    "limit count() by pod.label.app to 1 over zone",
    "limit sum(pod.request.cpu) by pod.namespace to 3",
    "filter node.free.cpu >= (max(n.free.cpu for n in cluster.nodes) ?? 0)",
)


def filters() -> tuple[FilterPlugin, ...]:
    """Return those of Kubernetes, and those that clauses are."""
    profiles = [policy(text).profile for text in CLAUSES]
    mine = (plugin for profile in profiles for plugin in profile.filters if plugin.name in profile.clauses)
    return (*kubernetes_profile().filters, *mine)


FILTERS = filters()
CLAIM_NAMES = ("c0", "c1", "c2")
WANTED: tuple[Body, ...] = (
    *(dict(short) for short in PODS),
    {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c0"}}]},
    {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c1"}}], "priority": 1},
    {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c2"}}]},
    {"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "d"}}]},
)


def passing(plugin: FilterPlugin, cluster: Cluster, pod: PodInfo) -> frozenset[str]:
    """Return the names of the nodes that pass one filter."""
    frame = Frame(pod, cluster, 0.0)
    prepared = plugin.pre_filter(frame)
    names = [info.name for info in cluster.nodes.infos]
    if isinstance(prepared, Skip):
        return frozenset(names)
    if not isinstance(prepared, Ready) or not names:
        return frozenset()
    passes = plugin.filter(frame, prepared.state)
    if prepared.nodes is not None:
        passes = passes & np.array([name in prepared.nodes for name in names])
    return frozenset(name for name, does in zip(names, passes.tolist(), strict=True) if does)


class World:
    """A cluster in which things happen that the watch shows."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.set_object(volumes.storage_class())

    def happen(self, what: str, number: int, variant: int) -> None:
        cluster = self.cluster
        name = f"n{number % 3}"
        match what:
            case "node":
                cluster.set_node(make_node(name, NODES[variant % len(NODES)]))
            case "node gone":
                cluster.remove_node(name)
            case "pod":
                cluster.confirm(
                    cluster.templates.pod(make_pod(f"p{number}", WANTED[variant % len(WANTED)])), f"n{variant % 4}"
                )
            case "pod gone":
                cluster.remove(f"p{number}")
                cluster.end_nomination(f"q{number}")
            case "nominated":
                cluster.nominate(
                    cluster.templates.pod(make_pod(f"q{number}", WANTED[variant % len(WANTED)] | {"priority": 9})), name
                )
            case "claim":
                is_single = number % 3 < 2
                cluster.set_object(
                    volumes.claim(
                        CLAIM_NAMES[number % 3],
                        volume=f"v{number % 3}" if variant % 2 else "",
                        accessModes=["ReadWriteOncePod" if is_single and variant % 3 else "ReadWriteOnce"],
                    )
                )
            case "claim gone":
                cluster.remove_object(volumes.claim(CLAIM_NAMES[number % 3]))
            case "volume":
                cluster.set_object(volumes.csi(f"v{number % 3}"))
            case "limit":
                cluster.set_object(volumes.csi_node(name, csi__example__com=variant % 3))
            case "attached":
                cluster.set_object(volumes.attachment("x", volume=f"v{number % 3}"))
            case "detached":
                cluster.remove_object(volumes.attachment("x", volume=f"v{number % 3}"))


HAPPENINGS = (
    *("node", "node", "node gone", "pod", "pod", "pod", "pod gone", "pod gone", "nominated"),
    *("claim", "claim", "claim gone", "volume", "limit", "attached", "detached"),
)


@given(
    st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 5), st.integers(0, 119)), min_size=2, max_size=25),
    st.sampled_from(range(len(WANTED))),
)
def test_what_makes_a_node_pass_is_among_the_events_of_the_filter(
    happenings: Sequence[tuple[str, int, int]], wanted: int
) -> None:
    world = World()
    cluster, heard = world.cluster, list[ClusterEvent]()
    cluster.ledger.follow(heard.append)
    pod = cluster.templates.pod(make_pod("incoming", WANTED[wanted]))
    before = [passing(plugin, cluster, pod) for plugin in FILTERS]
    for what, number, variant in happenings:
        heard.clear()
        world.happen(what, number, variant)
        for position, plugin in enumerate(FILTERS):
            now = passing(plugin, cluster, pod)
            if plugin.events is not None and now - before[position]:
                assert plugin.events & set(heard), (plugin.name, what, sorted(now - before[position]), heard)
            before[position] = now


def _node_gone(cluster: Cluster) -> None:
    cluster.remove_node("n0")


E = ClusterEvent


@pytest.mark.parametrize(
    ("plugin", "event"),
    [
        (NodeVolumeLimits(), E.NODE_ADD),
        (InterPodAffinity(), E.NODE_DELETE),
        (VolumeRestrictions(), E.NODE_DELETE),
        (VolumeRestrictions(), E.POD_DELETE),
        (PodTopologySpread(defaults=()), E.WORKLOAD),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_events_that_kube_scheduler_leaves_out(plugin: FilterPlugin, event: ClusterEvent) -> None:
    assert plugin.events is not None
    assert event in plugin.events


def test_pods_that_use_less_of_their_queue_without_ending_help_those_that_wait_for_it() -> None:
    assert {E.POD_DELETE, E.POD_UPDATE, E.RESOURCE_CLAIM} <= QueueQuota.events


def test_a_pod_that_wants_to_be_near_its_own_kind_goes_anywhere_once_the_node_of_the_others_is_gone() -> None:
    world = World()
    cluster = world.cluster
    for number, zone in enumerate("ab"):
        cluster.set_node(make_node(f"n{number}", {"labels": {"zone": zone}, "cpu": "4"}))
    near = next(short for short in PODS if "podAffinity" in short.get("affinity", ()))
    cluster.confirm(cluster.templates.pod(make_pod("first", near)), "n0")
    pod, plugin = cluster.templates.pod(make_pod("incoming", near)), InterPodAffinity()
    heard: list[ClusterEvent] = []
    cluster.ledger.follow(heard.append)
    assert passing(plugin, cluster, pod) == {"n0"}
    cluster.remove_node("n0")
    assert passing(plugin, cluster, pod) == {"n1"}
    assert plugin.events & set(heard)
