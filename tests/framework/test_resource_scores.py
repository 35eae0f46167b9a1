"""The scoring strategies beside the default one, extended resources in scores, and ignored resources."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Ready
from kube_policy_scheduler.framework.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.plugins.resource_scores import (
    LeastAllocated,
    MostAllocated,
    ResourceScore,
)

GPU = "example.com/gpu"


def frame(*, offered: dict[str, str], held: dict[str, str], wanted: dict[str, str]) -> Frame:
    cluster = Cluster()
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"pods": "9"} | offered}}
    cluster.set_node(msgspec.convert(node, objects.Node))
    cluster.place(cluster.templates.pod(pod("held", held)), "n")
    return Frame(cluster.templates.pod(pod("p", wanted)), cluster, 0.0)


def pod(name: str, requests: dict[str, str], **spec: Any) -> objects.Pod:
    body = {
        "metadata": {"name": name, "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]} | spec,
    }
    return msgspec.convert(body, objects.Pod)


def score(plugin: ResourceScore | NodeResourcesBalancedAllocation, looking: Frame) -> int:
    prepared = plugin.pre_score(looking)
    assert isinstance(prepared, Ready)
    return int(plugin.score(looking, prepared.state)[0])


PLAIN = {
    "offered": {"cpu": "10", "memory": "1000"},
    "held": {"cpu": "3", "memory": "0"},
    "wanted": {"cpu": "2", "memory": "100"},
}


@pytest.mark.parametrize(
    ("plugin", "wanted"),
    [
        (LeastAllocated(), (50 + 90) // 2),
        (MostAllocated(), (50 + 10) // 2),
        (LeastAllocated((("cpu", 3), ("memory", 1))), (3 * 50 + 90) // 4),
    ],
)
def test_strategies(plugin: ResourceScore, wanted: float) -> None:
    assert score(plugin, frame(**PLAIN)) == wanted


@pytest.mark.parametrize(("plugin", "wanted"), [(LeastAllocated(), 0), (MostAllocated(), 100)])
def test_more_than_there_is_counts_as_full(plugin: ResourceScore, wanted: int) -> None:
    crowded = frame(
        offered={"cpu": "1", "memory": "10"}, held={"cpu": "3", "memory": "9"}, wanted={"cpu": "1", "memory": "9"}
    )

    assert score(plugin, crowded) == wanted


def test_an_extended_resource_is_scored_for_pods_that_request_it() -> None:
    plugin = LeastAllocated((("cpu", 1), (GPU, 1)))
    offered = {"cpu": "10", GPU: "4"}

    assert (
        score(plugin, frame(offered=offered, held={"cpu": "0", GPU: "1"}, wanted={"cpu": "0", GPU: "2"}))
        == (100 + 25) // 2
    )
    assert score(plugin, frame(offered=offered, held={"cpu": "0", GPU: "1"}, wanted={"cpu": "0"})) == 100


def test_balance_over_three_resources_is_their_standard_deviation() -> None:
    plugin = NodeResourcesBalancedAllocation((("cpu", 1), ("memory", 1), (GPU, 1)))
    looking = frame(
        offered={"cpu": "10", "memory": "10", GPU: "10"}, held={}, wanted={"cpu": "9", "memory": "3", GPU: "3"}
    )

    assert score(plugin, looking) == 50 + (50 + 71 - 100) // 2  # shares .9 .3 .3: deviation .283


def test_balance_leaves_out_what_the_node_does_not_offer() -> None:
    plugin = NodeResourcesBalancedAllocation((("cpu", 1), ("memory", 1), (GPU, 1)))
    looking = frame(offered={"cpu": "10", GPU: "10"}, held={}, wanted={"cpu": "8", "memory": "3", GPU: "2"})

    assert score(plugin, looking) == 50 + (50 + 70 - 100) // 2  # |.8 - .2| / 2 = .3


AMOUNTS = st.integers(0, 20)


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_least_and_most_are_opposites_up_to_rounding(cpu: int, memory: int, more_cpu: int, more_memory: int) -> None:
    looking = frame(
        offered={"cpu": "20", "memory": "20"},
        held={"cpu": str(cpu), "memory": str(memory)},
        wanted={"cpu": str(min(more_cpu, 20 - cpu)), "memory": str(min(more_memory, 20 - memory))},
    )

    assert score(LeastAllocated(), looking) + score(MostAllocated(), looking) in (99, 100)


QUANTITIES = st.sampled_from(["0", "1", "7m", "3", "100Mi", "1001", "64Gi", "92233720368547758", "8Ei", "40Ei"])
AMOUNTS_OF_ALL = st.fixed_dictionaries({"cpu": QUANTITIES, "memory": QUANTITIES}, optional={GPU: st.just("2")})
PLUGINS = (
    LeastAllocated(),
    MostAllocated(),
    LeastAllocated((("cpu", 3), ("memory", 1), (GPU, 2))),
    NodeResourcesBalancedAllocation(),
    NodeResourcesBalancedAllocation((("cpu", 1), ("memory", 1), (GPU, 1))),
)


@given(offered=AMOUNTS_OF_ALL, held=AMOUNTS_OF_ALL, wanted=AMOUNTS_OF_ALL, pods=st.sampled_from(["0", "1", "2"]))
def test_the_form_for_one_node_says_what_the_arrays_say(
    offered: dict[str, str], held: dict[str, str], wanted: dict[str, str], pods: str
) -> None:
    looking = frame(offered=offered | {"pods": pods}, held=held, wanted=wanted)
    fit = NodeResourcesFit().pre_filter(looking)
    assert isinstance(fit, Ready)
    assert NodeResourcesFit().filter_one(looking, fit.state, 0) == NodeResourcesFit().filter(looking, fit.state)[0]
    for plugin in PLUGINS:
        prepared = plugin.pre_score(looking)
        if isinstance(prepared, Ready):
            assert plugin.score_one(looking, prepared.state, 0) == plugin.score(looking, prepared.state)[0], plugin


def test_a_share_just_below_a_percent_is_not_rounded_up_however_large_the_node() -> None:
    capacity = 10**16 + 1
    looking = frame(
        offered={"memory": str(capacity)},
        held={"memory": str(capacity - 10**14 - 1)},
        wanted={"memory": "1"},  # what is left is 1 % less 0.01 bytes
    )

    assert score(LeastAllocated((("memory", 1),)), looking) == 0


@pytest.mark.parametrize("cpu", ["4", "0"])
def test_a_node_that_offers_less_than_before_is_scored_by_that(cpu: str) -> None:
    def node(cpu: str) -> objects.Node:
        offered = {"cpu": cpu, "memory": "1000", "pods": "9"}
        status = {"capacity": {"cpu": "16", "memory": "1000"}, "allocatable": offered}
        return msgspec.convert({"metadata": {"name": "n"}, "status": status}, objects.Node)

    cluster = Cluster()
    cluster.set_node(node("16"))
    looking = Frame(cluster.templates.pod(pod("p", {"cpu": "2", "memory": "100"})), cluster, 0.0)
    score(LeastAllocated(), looking)
    assert cluster.set_node(node(cpu)) == {"allocatable"}

    assert score(LeastAllocated(), looking) == ((50 + 90) // 2 if cpu == "4" else 90)
