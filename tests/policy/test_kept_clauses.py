"""Cached results of clauses: after any change, decisions equal those of a full evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from kube_policy_scheduler.adapters.compute.compiled_kernels import compile_kernels
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.evaluate import ranked_totals
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator
from kube_policy_scheduler.framework.plugin import Scope
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.clauses import FilterClause, ScoreClause
from tests.policy.worlds import node, pod, policy

POLICIES = {
    "metrics": """
filter (promql("cpu_usage") ?? 60) < 70
score 100 - promql("cpu_usage") ?? 10
score 50 - promql("memory_usage") ?? 20 if pod.label.app == "web"
""",
    "predicted": """
metric load = promql("cpu_usage")
filter (predicted(load, 20) ?? 30) < 90
score -(predicted(load, 5) ?? 30)
""",
    "sums": """
filter sum(p.request.cpu for p in node.pods) < 4
filter max(p.request.cpu for p in node.pods where p.label.app == pod.label.app) ?? 0 < 2
score -sum(p.request.cpu for p in node.pods where p.label.app == pod.label.app)
score -(avg(p.request.cpu for p in domain("disk").pods) ?? 0)
score -count(distinct p.label.app for p in domain("disk").pods)
limit sum(request.cpu) by pod.label.app to 3 over node
limit count() by pod.label.app to 60 over disk
limit sum(request.cpu) to 100 over disk of pods where pod.label.app == "web"
""",
    "texts": """
filter (quantity(node.annotation.owner) ?? 1) < 3
score number(node.label.disk) ?? 7
score -(count(p in node.pods) * (number(node.annotation.owner) ?? 0))
score if startswith(node.label.disk, "s") then 5 else 0
filter now() - (time(node.annotation.owner) ?? 0s) > 0s
""",
    "nodes": """
filter "spot" not in node.taints and not label quarantine
score least_allocated(cpu)
score 7 if label disk=ssd
score 3 if node.annotation.owner == "a"
""",
    "spread": """
filter fits(cpu) and not label quarantine
score 20 - (promql("cpu_usage") ?? 50) / 5
spread by pod.label.app
""",
    "pack": """
filter fits(cpu)
score node.free.cpu
pack by pod.label.app weight 2
""",
    "compared": """
filter fits(cpu) and not label quarantine
score normalize(promql("cpu_usage") ?? 20)
score rank(promql("memory_usage") ?? 20) if pod.label.app == "web"
spread by pod.label.app over disk weight 2
score normalize(node.free.cpu)
""",
    "domains": """
filter fits(cpu) and not label quarantine
score normalize(promql("cpu_usage"))
score 20 - (promql("memory_usage") ?? 50) / 5
spread by pod.label.app over disk weight 2
spread by pod.namespace
""",
    "target": """
filter fits(cpu) and (promql("cpu_usage") ?? 50) < 95
spread by pod.label.app over disk target ssd 70%
score 100 - normalize(promql("memory_usage") ?? 0) weight 3
""",
    "packed": """
filter fits(cpu)
score if pod.label.app == "web" then normalize(promql("cpu_usage") ?? 5) else rank(promql("memory_usage") ?? 5)
pack by pod.namespace over disk
score image_locality() weight 2
""",
    "two domains": """
spread by pod.label.app over disk
pack by pod.namespace over zone
score normalize(number(node.annotation.owner) ?? 50) + normalize(promql("cpu_usage") ?? 50)
""",
    "both": """
spread by pod.label.app weight 3
pack by pod.namespace
""",
    "compared around spread": """
filter fits(cpu, mem)
score normalize(promql("cpu_usage") ?? 50) weight 2
spread by pod.label.app
score normalize(number(node.annotation.owner) ?? 50)
score 100 - promql("memory_usage") ?? 10
""",
    "resources": """
filter fits(cpu, mem, pods) and fits()
filter node.used_fraction.cpu < 0.95 or (promql("cpu_usage") ?? 50) > 60
filter node.free.mem > 1Gi if pod.label.app == "web" and node.ready
score least_allocated() + most_allocated(cpu) / 3
score balanced(cpu, mem) if (promql("memory_usage") ?? 20) < 50
score 10 * min(node.free.cpu, node.allocatable.cpu * 0.3)
""",
    "as Kubernetes": """
filter fits(cpu, mem)
filter not label quarantine and fits(mem) and (promql("cpu_usage") ?? 50) < 90
score least_allocated(cpu, mem) weight 2
score balanced(mem, cpu) weight 3
score 100 * (1 - node.used_fraction.cpu)
""",
    "resources alone": """
filter not label quarantine
score least_allocated(cpu, mem)
score balanced(cpu, mem)
score 7 if label disk=ssd
""",
    "by resources": """
filter not label quarantine and fits(cpu, pods)
score most_allocated()
score balanced()
""",
    "facts of the pod": """
filter fits(cpu) if pod.priority < 5
filter count(p in node.pods where p.label.app == pod.label.app) < 90
score if pod.label.app == "web" then node.free.cpu else 1
score -(pod.request.cpu * node.used_fraction.cpu)
score 3 if pod.label.team == node.label.disk
score least_allocated(mem) + (number(pod.label.team) ?? 0) + image_locality()
score 2 if pod.label.team == "7" and node.label.disk == "hdd"
""",
    "all": """
filter fits(cpu) and (promql("cpu_usage") ?? 50) < 80
score 2 * (100 - promql("cpu_usage") ?? 50)
score node.free.cpu
score 5 if "i:1" in node.images
spread by pod.label.app
""",
}
QUERIES = ("cpu_usage", "memory_usage")


@pytest.fixture(autouse=True, scope="module")
def _ranks_by_domain() -> Iterator[None]:
    """Keep totals by domain for few nodes, too: the laws are to hold for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranked_totals, "FEWEST_BY_DOMAIN", 100)
        yield


SIZES = [(6, False), (600, True), *(pytest.param(*more, marks=pytest.mark.dear) for more in ((60, True), (600, False)))]
EVERYTHING = ["label", "come", "go", "place", "place", "leave", "start", "reading", "reading", "old", "wait"]


@pytest.mark.parametrize(("size", "compiled"), SIZES)
@pytest.mark.parametrize("name", POLICIES)
def test_after_any_change_a_policy_decides_as_the_plain_path_does(name: str, size: int, compiled: bool) -> None:
    rng, cluster, profile = Random(f"{name} {size}"), Cluster(), policy(POLICIES[name]).profile
    cycle = Cycle(accelerator=Accelerator(compile_kernels().kernels if compiled else None))
    signals, now, decided = Signals.EMPTY, 1_800_000_000.0, 0

    def set_node(which: str) -> None:
        labels = {"zone": rng.choice("abc")} | ({"quarantine": "x"} if rng.random() < 0.1 else {})
        labels |= {"disk": rng.choice(("ssd", "hdd"))} if rng.random() < 0.9 else {}
        made = node(which, cpu=rng.choice("248"), **labels)
        owners = ("a", "b", "1", str(rng.randrange(100)), "2026-01-01T00:00:00Z")
        made.metadata.annotations = {"owner": rng.choice(owners)}
        made.status.images = [
            objects.ContainerImage(names=[f"app:{tag}"], size_bytes=rng.choice((300, 900)) * 2**20)
            for tag in rng.sample("abcd", rng.randrange(4))
        ]
        cluster.set_node(made)

    def reading(query: str, oldest: float) -> Reading:
        some = rng.sample(cluster.nodes.names, len(cluster.nodes.names) * 9 // 10)
        rows = [Series({"node": n}, rng.randrange(100), now - rng.choice((0, 0, 0, oldest))) for n in some]
        return Reading(query, tuple(rows), now, now)

    for number in range(size):
        set_node(f"n{number}")
    for serial in range(150):
        match rng.choice(EVERYTHING):
            case "label":
                set_node(rng.choice(cluster.nodes.names))
            case "come":
                set_node(f"new{serial}")
            case "go" if cluster.nodes.size > 2:
                cluster.remove_node(rng.choice(cluster.nodes.names))
            case "place":
                labels = {"app": rng.choice(("web", "db", "other"))}
                placed = pod(cluster, f"other{serial}", cpu=rng.choice(("100m", "2")), labels=labels)
                cluster.place(placed, rng.choice(cluster.nodes.names))
            case "leave" if cluster.pods:
                cluster.displace(rng.choice(sorted(cluster.pods)))
            case "start" if cluster.pods:
                started = cluster.pods[rng.choice(sorted(cluster.pods))]
                host = cluster.node_of(started.uid)
                assert host is not None
                cluster.confirm(replace(started, started=now - rng.choice((0, 5, 500))), host)
            case "reading" | "old" as what:
                fresh = dict(signals.readings)
                query = rng.choice(QUERIES)
                fresh[query] = reading(query, 100.0 if what == "old" else 0.0)
                signals = Signals.of(fresh.values())
            case "wait":
                now += rng.choice((1.0, 40.0, 200.0))
        requests = {"requests": {"cpu": rng.choice(("100m", "1"))}}
        incoming = pod(
            cluster,
            f"p{serial}",
            labels={"app": rng.choice(("web", "db"))} | rng.choice(({}, {"team": "ssd"}, {"team": "7"})),
            priority=rng.choice((0, 10)),
            containers=[{"name": "c", "image": f"app:{rng.choice('ab')}", "resources": requests}],
        )
        frame = Frame(incoming, cluster, now, signals=signals)
        same_alone(frame.at(np.array([rng.randrange(cluster.nodes.size)])), profile)
        wanted, decision = evaluate(frame, profile), cycle.decide(frame, profile)
        totals = dict(zip((cluster.nodes.names[row] for row in wanted.feasible), wanted.totals.tolist(), strict=True))
        assert (decision.host is None) is (not totals)
        if decision.host is None:
            continue
        decided += 1
        assert decision.feasible == len(totals)
        assert np.isclose(totals[decision.host], max(totals.values()))
        if len(totals) > 1:
            assert decision.score is not None
            assert np.isclose(decision.score, max(totals.values()))
        cluster.place(incoming, decision.host)
    assert decided > 20


def same_alone(frame: Frame, profile: Profile) -> None:
    """Fail where what a clause says of one node differs in one bit from what it says of a column."""
    row = frame.only_row
    for plugin in profile.filters:
        if isinstance(plugin, FilterClause) and plugin.filter_one is not None:
            assert plugin.filter_one(frame, None, row) is bool(plugin.filter(frame, None)[0]), plugin.name
    for plugin in (weighted.plugin for weighted in profile.scores):
        if isinstance(plugin, ScoreClause) and plugin.score_one is not None and plugin.scope is not Scope.FEASIBLE:
            assert repr(plugin.score_one(frame, None, row)) == repr(float(plugin.score(frame, None)[0])), plugin.name
