"""`spread … target`: the shares of the pods approach the targets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.policy.clauses import events_of
from kube_policy_scheduler.policy.groupings import GroupingScore
from tests.policy.worlds import node, pod, policy

DOMAINS = ("spot", "on-demand", "reserved")


def scores(text: str, counts: dict[str, int], *, unlabelled: bool = False) -> dict[str, float]:
    """Return the score of each domain where so many pods of the key are in each."""
    made = Cluster()
    for value in DOMAINS:
        made.set_node(node(value, cpu="1000", lifecycle=value))
    if unlabelled:
        made.set_node(node("none", cpu="1000"))
    for value, number in counts.items():
        for at in range(number):
            made.place(pod(made, f"{value}{at}", labels={"app": "web"}), value)
    (plugin,) = [each.plugin for each in policy(text).profile.scores if isinstance(each.plugin, GroupingScore)]
    frame = Frame(pod(made, "me", labels={"app": "web"}), made, 0.0)
    return dict(zip(made.nodes.names, plugin.score(frame, None).tolist(), strict=True))


SPREAD = "require pod label app\nspread by pod.label.app over lifecycle target "
CASES: list[tuple[str, dict[str, int], dict[str, Any]]] = [
    ("spot 50%", {}, {"spot": 50, "on-demand": 0, "reserved": 0}),
    ("spot 100%", {"spot": 9}, {"spot": 52.5, "on-demand": 0, "reserved": 0}),
    (
        "spot 70%, on-demand 30%",
        {"spot": 7, "on-demand": 2},
        {"spot": 46.428571, "on-demand": 58.333333, "reserved": 0},
    ),
    ("spot 50%", {"spot": 9}, {"spot": 5, "on-demand": 90, "reserved": 90}),
    ("spot 20%", {"spot": 9}, {"spot": 0, "on-demand": 93.75, "reserved": 93.75}),
    ("elsewhere 40%", {}, {"spot": 0, "on-demand": 0, "reserved": 0}),
]


@pytest.mark.parametrize(("targets", "counts", "expected"), CASES)
def test_a_domain_below_its_share_is_preferred(targets: str, counts: dict[str, int], expected: dict[str, Any]) -> None:
    if targets.startswith("elsewhere"):
        expected = dict.fromkeys(DOMAINS, 0.0)  # each is to have a fifth: one pod is more than twice that
    assert scores(SPREAD + targets, counts) == pytest.approx(expected)


def test_a_node_without_the_label_gets_nothing() -> None:
    assert scores(f"{SPREAD}spot 50%", {"spot": 3}, unlabelled=True)["none"] == 0


COUNTS = st.fixed_dictionaries({value: st.integers(0, 12) for value in DOMAINS})
TARGETS = st.tuples(st.integers(0, 60), st.integers(0, 40))


@given(COUNTS, TARGETS, st.sampled_from(DOMAINS))
def test_scores_lie_between_0_and_100_and_fall_with_each_pod_of_the_domain(
    counts: dict[str, int], shares: tuple[int, int], more: str
) -> None:
    text = f"{SPREAD}spot {shares[0]}%, on-demand {shares[1]}%"
    found = scores(text, counts)
    assert all(0 <= score <= 100 for score in found.values())
    grown = scores(text, counts | {more: counts[more] + 1})
    assert grown[more] <= found[more]
    # in a domain that stays as it is, one pod elsewhere leaves more room
    assert all(grown[other] >= found[other] for other in DOMAINS if other != more)


@settings(max_examples=30, deadline=None)
@given(COUNTS, st.integers(0, 90))
def test_a_larger_share_never_lowers_the_score_of_its_domain(counts: dict[str, int], share: int) -> None:
    less, greater = (scores(f"{SPREAD}spot {each}%", counts)["spot"] for each in (share, share + 10))
    assert less <= greater


@pytest.mark.parametrize("shares", [(70, 20, 10), (34, 33, 33), (90, 10, 0), (50, 25, 25)])
def test_the_shares_of_pods_approach_the_targets(shares: tuple[int, int, int]) -> None:
    counts = dict.fromkeys(DOMAINS, 0)
    text = f"{SPREAD}spot {shares[0]}%, on-demand {shares[1]}%"
    for _ in range(40):
        found = scores(text, counts)
        best = max(DOMAINS, key=lambda value: found[value])
        counts[best] += 1
    for value, share in zip(DOMAINS, shares, strict=True):
        assert abs(counts[value] - 40 * share / 100) <= 1, counts


def test_a_spread_to_a_target_follows_the_nodes_and_the_pods() -> None:
    clause = policy(f"{SPREAD}spot 70%").clauses[-1]

    assert {ClusterEvent.POD_DELETE, ClusterEvent.NODE_LABEL} <= events_of(clause)
    assert not clause.depends & Depends.SIGNAL


def in_proportion(over: str, sizes: dict[str, int], pods: int) -> dict[str, int]:
    """Return how many pods are on each node, after each went to the first of the best."""
    made = Cluster()
    for name, cpu in sizes.items():
        made.set_node(node(name, cpu=str(cpu), rack=name[0]))
    text = f"spread by pod.label.app{over} target by node.allocatable.cpu if pod label app"
    (plugin,) = [each.plugin for each in policy(text).profile.scores if isinstance(each.plugin, GroupingScore)]
    placed = dict.fromkeys(sizes, 0)
    for at in range(pods):
        me = pod(made, f"p{at}", labels={"app": "web"}, cpu="1m")
        scores = plugin.score(Frame(me, made, 0.0), None)
        best = made.nodes.names[int(scores.argmax())]
        made.place(me, best)
        placed[best] += 1
    return placed


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), pods=st.integers(1, 25))
def test_pods_follow_the_sizes_of_nodes_as_seats_follow_votes(sizes: list[int], pods: int) -> None:
    """By the method of Webster and Sainte-Lague no move of a pod makes (count + 1/2) / size more even."""
    by_name = {f"n{at}": size for at, size in enumerate(sizes)}

    placed = in_proportion("", by_name, pods)

    assert sum(placed.values()) == pods
    least = min((placed[name] + 0.5) / by_name[name] for name in by_name)
    for name, count in placed.items():
        assert count == 0 or (count - 0.5) / by_name[name] <= least + 1e-9


def test_domains_have_the_sizes_of_their_nodes() -> None:
    placed = in_proportion(" over rack", {"a1": 2, "a2": 1, "b1": 1}, 8)

    assert placed["a1"] + placed["a2"] == 6
    assert placed["b1"] == 2


def test_a_node_without_a_size_gets_nothing() -> None:
    made = Cluster()
    for name, gpus in (("a", "2"), ("b", "0")):
        made.set_node(node(name))
        made.set_node(node(name, cpu="4", gpus=gpus))
    text = "spread by pod.label.app target by number(node.label.gpus)"
    (plugin,) = [each.plugin for each in policy(text).profile.scores if isinstance(each.plugin, GroupingScore)]

    assert plugin.score(Frame(pod(made, "me"), made, 0.0), None).tolist() == [100, 0]
