"""What must hold for any text given as a policy: every stage answers with a value, and in time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.formatting.format import Formatted, Unfaithful, format_source
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import Loaded, load
from tests.lang.clusters import NOW, cluster, node, place, pod, signals

SECONDS = 2.0
"""Of this process's time, for a text of some pages; a policy takes milliseconds."""


class Wrong(Exception):
    """A law that does not hold."""


def examine(text: str) -> None:
    """Take a text through parser, checker, linter, formatter, compiler and evaluator.

    Raises:
        Wrong: a law does not hold.
        Exception: anything at all is a finding: what is wrong with a text must come as a diagnostic.
    """
    with warnings.catch_warnings():
        # what NumPy warns of ends in a number that is none
        warnings.simplefilter("error")
        loaded = _loaded(text)
        _formatted(text, loaded)
        if loaded.policy_set is not None:
            for policy in loaded.policy_set.policies:
                _decides(policy)


def timed(check: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a check that is itself wrong where it takes too long."""

    def checked(data: bytes) -> None:
        began = time.process_time()
        check(data)
        taken = time.process_time() - began
        if taken > SECONDS + len(data) / 20_000:
            raise Wrong(f"took {taken:.1f} s")

    return checked


def _loaded(text: str) -> Loaded:
    loaded = load([Source("fuzz.policy", text)])
    for diagnostic in loaded.diagnostics:
        span = diagnostic.span
        if not 0 <= span.start <= span.end <= len(span.source.text):
            raise Wrong(f"{diagnostic.code} points outside the text: {span.start} to {span.end}")
        shown = render(diagnostic, colour=True)
        if not shown.split("\x1b")[0].startswith("fuzz.policy:"):
            raise Wrong(f"{diagnostic.code} is shown as {shown}")
    return loaded


def _formatted(text: str, loaded: Loaded) -> None:
    match format_source(Source("fuzz.policy", text)):
        case Unfaithful(reason=reason):
            raise Wrong(f"formatting: {reason}")
        case Formatted(text=after):
            again = _loaded(after)
            if (again.policy_set is None) != (loaded.policy_set is None):
                raise Wrong(f"formatting changes what is thought of it:\n{after}")


@cache
def _world() -> tuple[Cluster, Signals, tuple[PodInfo, ...]]:
    rack = {"rack": "r1", "disk": "ssd", "rank": "3"}
    nodes = cluster(
        node("a", zone="z1", labels=rack),
        node("b", zone="z1", labels={"rack": "r2", "rank": "x"}, ready=False),
        node("c", zone="z2", labels={"tenant": "red"}, spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}),
        node("d", allocatable={"cpu": "0", "nvidia.com/gpu": "2"}),
    )
    place(nodes, [("a", {"tenant": "red"}), ("a", {"tenant": "blue"}), ("c", {"tenant": "red", "job": "j"}), ("d", {})])
    pods = (
        pod(nodes, "web-1", labels={"tenant": "red", "job": "j", "rank": "2"}),
        pod(nodes, "bare", cpu="0", priority=-5, namespace="other"),
        pod(nodes, "large", cpu="3", labels={"tenant": ""}, annotations={"note": "x"}, priority=2_000_000_000),
    )
    return nodes, signals("load", {"a": 10.0, "b": float("inf"), "c": -1e300}), pods


def _decides(policy: Policy) -> None:
    nodes, readings, pods = _world()
    for each in pods:
        frame = Frame(each, nodes, NOW, signals=readings)
        result = evaluate(frame, policy.profile)
        for name, column in result.scores.items():
            if not np.isfinite(column).all():
                raise Wrong(f"the score {name} is {column}")
        policy.governs(frame)
        policy.hold_reason(frame)
        policy.gang_requirements(frame)
        for order in policy.orders:
            order.evaluate(frame)
            if order.over_time is not None:
                order.over_time(frame)
        rule = policy.profile.preemption
        if rule is not None:
            rule.allows(frame)
            for victim in pods if rule.spares is not None else ():
                rule.spares(frame, victim)
