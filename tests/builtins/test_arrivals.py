"""The pods that came after a moment, for `predicted`: after any events the same as counted from scratch."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kube_policy_scheduler.builtins.metrics import arrivals
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.lang.environment import QueryKey
from tests.policy.worlds import node, pod

NAMES = ["a", "b", "c", "d"]
APPS = ["web", "db"]
BY_APP = QueryKey("app", lambda item: item.template.labels.get("app"))
moments = st.sampled_from([100.0, 200.0, 300.0])
events = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(NAMES), st.sampled_from(["x", "y"])),
        st.tuples(st.just("remove"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("place"), st.integers(0, 9), st.sampled_from(NAMES)),
        st.tuples(st.just("start"), st.integers(0, 9), st.sampled_from([50.0, 150.0, 200.5, 250.0, 350.0])),
        st.tuples(st.just("displace"), st.integers(0, 9), st.none()),
        st.tuples(st.just("ask"), moments, st.none()),
    ),
    max_size=40,
)


@given(events=events)
def test_arrivals_are_what_a_recount_gives(events: list[tuple[str, Any, Any]]) -> None:
    cluster, asked = Cluster(), set[float]()
    for event in events:
        match event:
            case ("node", name, value):
                cluster.set_node(node(name, cpu="64", disk=value))
            case ("remove", name, _):
                cluster.remove_node(name)
            case ("place", number, name):
                cluster.place(pod(cluster, f"p{number}", labels={"app": APPS[number % 2]}), name)
            case ("start", number, when) if (name := cluster.node_of(f"p{number}")) is not None:
                cluster.confirm(replace(cluster.pods[f"p{number}"], started=when), name)
            case ("displace", number, _):
                cluster.displace(f"p{number}")
            case ("ask", moment, _):
                asked.add(moment)
        for moment in asked:
            found, nodes = arrivals(cluster, since=moment), cluster.nodes
            newer = [
                [pod for pod in cluster.pods_on(name).values() if pod.started is None or pod.started > moment - 1.0]
                for name in nodes.names
            ]
            assert found.counts.tolist() == [len(there) for there in newer]
            assert found.total == sum(map(len, newer))
            apps = Counter(pod.labels["app"] for there in newer for pod in there)
            assert [found.with_text(cluster, BY_APP, app) for app in APPS] == [apps[app] for app in APPS]
