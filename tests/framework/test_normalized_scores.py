"""Scores that are normalized by the highest raw score of the feasible nodes, kept from one decision to the next."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.compute.compiled_kernels import compile_kernels
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator, Kernels
from kube_policy_scheduler.framework.plugins.node_affinity import NodeAffinity
from kube_policy_scheduler.framework.plugins.taint_toleration import TaintToleration
from kube_policy_scheduler.framework.profile import Profile

ZONES = ("a", "b", "c")
TIERS = range(8)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    found = compile_kernels().kernels
    assert found is not None
    return found


def set_node(cluster: Cluster, name: str, rng: Random, *, soft: float = 0.4, tries: int = 1) -> None:
    """soft: the share of nodes with one or two taints of PreferNoSchedule. tries: more make high tiers rare."""
    soft_taints = rng.choice((1, 2)) if rng.random() < soft else 0
    taints = [{"key": f"soft-{number}", "effect": "PreferNoSchedule"} for number in range(soft_taints)]
    taints += [{"key": "hard", "effect": "NoSchedule"}] * (rng.random() < 0.1)
    body = {
        "metadata": {
            "name": name,
            "labels": {"zone": rng.choice(ZONES), "tier": str(min(rng.choices(TIERS, k=tries)))},
        },
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": rng.choice("248"), "memory": "16Gi", "pods": "20"}},
    }
    cluster.set_node(msgspec.convert(body, objects.Node))


def pod(cluster: Cluster, name: str, *, cpu: str, kind: str) -> PodInfo:
    """Return a pod: "plain", "tolerant" of soft taints, "picky" by weights of tiers, "spread" over zones."""
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    if kind == "tolerant":
        spec["tolerations"] = [{"key": "soft-0", "operator": "Exists"}]
    if kind in ("picky", "spread"):
        terms = [
            {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}}
            for weight, key, value in (*((tier, "tier", str(tier)) for tier in TIERS if tier), (1, "zone", "a"))
        ]
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    if kind == "spread":
        constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        spec["topologySpreadConstraints"] = [constraint | {"labelSelector": {"matchLabels": {"app": "x"}}}]
    body = {"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "x"}}, "spec": spec}
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


def decided(cycle: Cycle, pod: PodInfo, cluster: Cluster, profile: Profile) -> tuple[Any, ...]:
    found = cycle.decide(Frame(pod, cluster, 0.0), profile)
    return found.host, found.score, found.ties, found.feasible


@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([3, 12, 300]),
    soft=st.sampled_from([0.4, 0.03, 0.0]),
    compiled=st.booleans(),
    own=st.booleans(),
)
def test_they_decide_as_the_plain_path_while_nodes_and_pods_change(
    seed: int, size: int, soft: float, compiled: bool, own: bool, kernels: Kernels
) -> None:
    """`own`: each pod has requests of its own, so that no template is met again. `soft`: see `set_node`, at first."""
    rng, cluster, profile = Random(seed), Cluster(), kubernetes_profile()
    kept = Cycle(accelerator=Accelerator(kernels if compiled else None))
    for number in range(size):
        set_node(cluster, f"n{number}", rng, soft=soft, tries=5)
    for number in range(60):
        match rng.choice(["change", "change", "come", "go", "leave", "nothing", "nothing"]):
            case "change":
                set_node(
                    cluster,
                    rng.choice(cluster.nodes.names),
                    rng,
                    soft=rng.choice((0.4, soft)),
                    tries=rng.choice((1, 5)),
                )
            case "come":
                set_node(cluster, f"new-{number}", rng)
            case "go" if cluster.nodes.size > 2:
                cluster.remove_node(rng.choice(cluster.nodes.names))
            case "leave" if cluster.pods:
                cluster.displace(rng.choice(sorted(cluster.pods)))
        kind = rng.choice(["plain", "plain", "tolerant", "picky", "spread"])
        cpu = f"{100 + number}m" if own else rng.choice(("100m", "3"))
        incoming = pod(cluster, f"{kind}-{number}", cpu=cpu, kind=kind)
        found = decided(kept, incoming, cluster, profile)
        assert found == decided(Cycle(), incoming, cluster, profile), (seed, number, kind)
        if found[0] is not None:
            cluster.place(incoming, found[0])


@pytest.mark.parametrize("own", [False, True], ids=["one template", "requests of its own"])
@pytest.mark.parametrize("kind", ["plain", "picky"])
def test_a_decision_compares_no_nodes_again_while_none_changes(
    kind: str, own: bool, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, cluster, profile = Random(1), Cluster(), kubernetes_profile()
    cycle = Cycle(accelerator=Accelerator(kernels))
    for number in range(300):
        set_node(cluster, f"n{number}", rng, soft=0.0)

    def place(numbers: range) -> None:
        for number in numbers:
            incoming = pod(cluster, f"p{number}", cpu=f"{100 + number if own else 100}m", kind=kind)
            host = cycle.decide(Frame(incoming, cluster, 0.0), profile).host
            assert host is not None
            cluster.place(incoming, host)

    place(range(5))
    set_node(cluster, "n7", rng, soft=1.0)
    place(range(5, 8))
    compared: list[int] = []
    for plugin in (TaintToleration, NodeAffinity):
        monkeypatch.setattr(plugin, "normalize", lambda self, frame, state, raw: compared.append(len(raw)) or raw)
        monkeypatch.setattr(plugin, "scaled", lambda self, raw, *, highest: compared.append(len(raw)) or raw)
    place(range(8, 28))

    assert compared == []


def test_kinds_of_pods_in_turn_with_requests_of_their_own_are_each_compared_once(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, cycle, profile, rng = Cluster(), Cycle(accelerator=Accelerator(kernels)), kubernetes_profile(), Random(0)
    asked = 0
    for number in range(300):
        set_node(cluster, f"n{number}", rng)

    def counted(scaled: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal asked
            asked += 1
            return scaled(*given, **named)

        return call

    for plugin in (TaintToleration, NodeAffinity):
        monkeypatch.setattr(plugin, "scaled", counted(plugin.scaled))
    by_round: list[int] = []
    for number in range(60):
        kind = ("plain", "tolerant", "picky")[number % 3]
        new = pod(cluster, f"p{number}", cpu=f"{100 + number}m", kind=kind)
        cluster.place(new, str(decided(cycle, new, cluster, profile)[0]))
        by_round.append(asked)
    assert by_round[0] > 0
    assert by_round[30] == by_round[-1]
