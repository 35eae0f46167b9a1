"""Pods and groups that wait, as kube-scheduler counts them since 1.37."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.observing.queued_entities import QueuedEntities
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod
from kube_policy_scheduler.times import Steady
from tests.daemon.test_composite_groups import child, composite
from tests.daemon.test_pod_groups import gang
from tests.policy.worlds import pod

TOP = {"alone": ("podgroup", "alone"), "left": ("compositepodgroup", "root"), "right": ("compositepodgroup", "root")}
"""The outermost group of each PodGroup; `lost` is in one that is not known."""
TOP |= {"lost": ("compositepodgroup", "nowhere"), "unknown": ("podgroup", "unknown")}
ORDER = ["active", "backoff", "unschedulable", "gated"]


def groups() -> Cluster:
    cluster = Cluster()
    for each in (composite("root", 2), composite("middle", 1, parent="root"), gang("alone", 2)):
        cluster.set_object(each)
    for each in (child("left", 1, of="root"), child("right", 1, of="middle"), child("lost", 1, of="nowhere")):
        cluster.set_object(each)
    return cluster


def queued(cluster: Cluster, name: str, group: str, place: Place) -> QueuedPod:
    spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
    found = QueuedPod(pod(cluster, name, **spec), queued=Steady(0.0), timestamp=Steady(0.0))
    found.place = place
    return found


@given(st.lists(st.tuples(st.sampled_from(["", *TOP]), st.sampled_from(Place)), max_size=12))
def test_a_group_counts_once_where_its_first_pod_waits(waiting: list[tuple[str, Place]]) -> None:
    cluster = groups()
    entities = QueuedEntities(cluster)
    for number, (group, place) in enumerate(waiting):
        entities.add(queued(cluster, f"p{number}", group, place))

    expected = Counter[tuple[str, str]](
        (place.value, "pod") for group, place in waiting if not group and place.value in ORDER
    )
    for kind, name in set(TOP.values()):
        places = [place.value for group, place in waiting if TOP.get(group) == (kind, name)]
        if there := [place for place in ORDER if place in places]:
            expected[there[0], kind] += 1
    found = entities.total()
    assert {where: number for where, number in found.items() if number} == expected
    assert {(place, kind) for place in ORDER for kind in ("pod", "podgroup")} <= set(found)


def test_groups_that_are_in_each_other_are_counted() -> None:
    cluster = Cluster()
    around = [composite("a", 1, parent="b"), composite("b", 1, parent="a")]
    for each in (*around, child("leaf", 1, of="a")):
        cluster.set_object(each)
    entities = QueuedEntities(cluster)
    entities.add(queued(cluster, "p", "leaf", Place.ACTIVE))

    assert entities.total()["active", "compositepodgroup"] == 1
