"""`use kubernetes scores`: which of Kubernetes' scores count, and how much."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.framework.default_profile import kubernetes_scores
from tests.lang.clusters import cluster, decide, node, pod, policy
from tests.lang.texts import codes

DEFAULT = {score.plugin.name: score.weight for score in kubernetes_scores()}


def weights(text: str) -> dict[str, float]:
    return {score.plugin.name: score.weight for score in policy(text).profile.scores}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("use kubernetes", {}),
        ("use kubernetes scores", {}),
        ("use kubernetes scores weight 3", {name: 3 * weight for name, weight in DEFAULT.items()}),
        ("use kubernetes scores without ImageLocality", {"ImageLocality": None}),
        (
            "use kubernetes scores without ImageLocality, PodTopologySpread",
            {"ImageLocality": None, "PodTopologySpread": None},
        ),
        ("use kubernetes scores with NodeAffinity weight 5", {"NodeAffinity": 5}),
        (
            "use kubernetes scores with NodeAffinity weight 5, TaintToleration weight 0.5",
            {"NodeAffinity": 5, "TaintToleration": 0.5},
        ),
        (
            "use kubernetes scores with NodeAffinity weight 5 without ImageLocality weight 2",
            {name: 2 * weight for name, weight in DEFAULT.items()} | {"NodeAffinity": 10, "ImageLocality": None},
        ),
    ],
)
def test_scores_are_left_out_and_weighed_by_name(text: str, changes: dict[str, float | None]) -> None:
    expected = {name: weight for name, weight in (DEFAULT | changes).items() if weight is not None}

    assert weights(text) == expected


def test_a_score_that_is_left_out_does_not_count() -> None:
    nodes = cluster(node("a"), node("b"))
    result = decide(policy("use kubernetes scores without NodeResourcesFit"), pod(nodes, "p"), nodes)

    assert "NodeResourcesFit" not in result.scores
    assert "NodeResourcesBalancedAllocation" in result.scores


def test_a_clause_that_is_named_as_a_score_of_kubernetes_counts_beside_it() -> None:
    nodes = cluster(node("a"), node("b"))
    alone = decide(policy("use kubernetes scores"), pod(nodes, "p"), nodes)
    both = decide(policy("use kubernetes scores\nscore 7 as NodeResourcesFit"), pod(nodes, "p"), nodes)

    assert (both.scores["NodeResourcesFit"] - alone.scores["NodeResourcesFit"]).tolist() == [7, 7]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("use kubernetes without ImageLocality", ["P0206"]),
        ("use kubernetes scores without NodePorts", ["P0206"]),
        ("use kubernetes scores with NodePorts weight 2", ["P0206"]),
        ("use kubernetes scores with ImageLocality weight -1", ["P0207"]),
        ("use kubernetes scores with ImageLocality weight pod.priority", ["P0109"]),
        ("use kubernetes scores without ImageLocality with ImageLocality weight 1", ["P0201"]),
        ("use kubernetes scores weight 2 weight 3", ["P0009"]),
        ("use kubernetes scores\nuse kubernetes scores without ImageLocality", ["P0201"]),
        ("use kubernetes without NodeAffinity\nuse kubernetes scores without NodeAffinity", []),
    ],
)
def test_names_and_weights_are_checked(text: str, expected: list[str]) -> None:
    assert codes(text) == expected
