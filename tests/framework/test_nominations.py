"""Nominated pods: arithmetic says the same of the nodes that they keep as a dry run that places them."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.evaluate import nominations
from kube_policy_scheduler.framework.evaluate.evaluation import pre_filter
from kube_policy_scheduler.framework.evaluate.nominations import blocked_by_nominated, taken_by_nominated
from kube_policy_scheduler.framework.frame import Frame
from tests.policy.worlds import node, pod, policy

PROFILE = policy("").profile
CORES = st.integers(0, 3)


@given(
    nodes=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    running=st.lists(st.tuples(CORES, st.integers(0, 4)), max_size=4),
    nominated=st.lists(st.tuples(CORES, st.integers(1, 2), st.integers(0, 4)), min_size=2, max_size=8),
    wanted=CORES,
    selects=st.booleans(),
)
def test_arithmetic_says_the_same_as_a_dry_run(
    nodes: list[int],
    running: list[tuple[int, int]],
    nominated: list[tuple[int, int, int]],
    wanted: int,
    selects: bool,
) -> None:
    cluster = Cluster()
    for number, cores in enumerate(nodes):
        cluster.set_node(node(f"n{number}", cpu=str(cores), disk="ssd" if number % 2 else "hdd"))
    for number, (cores, on) in enumerate(running):
        cluster.place(pod(cluster, f"r{number}", cpu=str(cores)), f"n{on % len(nodes)}")
    for number, (cores, priority, on) in enumerate(nominated):
        cluster.nominate(pod(cluster, f"w{number}", cpu=str(cores), priority=priority), f"n{on % len(nodes)}")
    more = {"nodeSelector": {"disk": "ssd"}} if selects else {}
    frame = Frame(pod(cluster, "p", cpu=str(wanted), priority=1, **more), cluster, 1e9)
    active = pre_filter(frame, PROFILE.filters).active
    passing = np.logical_and.reduce([np.ones(frame.size, np.bool_), *(p.filter(frame, state) for p, state in active)])
    found, taken = blocked_by_nominated(frame, active), taken_by_nominated(frame, active, passing)
    with patch.object(nominations, "_only_resources", lambda _: None):
        assert found == blocked_by_nominated(frame, active)
        assert sorted(taken) == sorted(taken_by_nominated(frame, active, passing))
