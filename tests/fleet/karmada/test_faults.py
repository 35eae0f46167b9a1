"""Faults in any order: no workload loses its last healthy copy by our hand, and all come to rest in the end."""

from __future__ import annotations

from random import Random

import pytest

from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, Key, PlacementAlone, Question, Work
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady
from tests.fleet.fleets import policies
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC
from tests.fleet.karmada.control_plane import ControlPlane, Json

NAMES = ("a", "b", "c", "d")
AGGREGATED = {"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}}
STEPS = 300


class World:
    """A control plane with faults, and a decision maker that is killed, and sees things late."""

    def __init__(self, seed: int, policy: str = "") -> None:
        """policy: by which workloads are decided; without one, their Placements decide."""
        self.policies = policies(policy) if policy else None
        self.random = Random(seed)
        self.plane = ControlPlane()
        self.plane.judge = self.judge
        self.now = 0.0
        for name in NAMES:
            self.plane.set_cluster(name, cpu=self.random.randint(5, 30))
        self.keys = [
            self.plane.add(f"w{number}", replicas=self.random.randint(1, 9), placement=placement)
            for number, placement in enumerate((DYNAMIC, AGGREGATED, DUPLICATED, DYNAMIC, AGGREGATED))
        ]
        self.maker = self.new_maker()
        self.flying: list[Work | Question] = []
        self.unseen: list[Key | str] = []

    def new_maker(self) -> DecisionMaker:
        maker = self.unknowing_maker()
        self.plane.show_all(maker, self.now)
        return maker

    def unknowing_maker(self) -> DecisionMaker:
        rules = FleetRules(self.policies, clock=lambda: 1.8e9 + self.now) if self.policies else PlacementAlone()
        return DecisionMaker(["fleet"], rules=rules)

    def judge(self, key: Key, before: Json, after: Json) -> None:
        """See that a placement leaves a healthy copy where there was one; evicted ones are not ours."""
        health = {each["clusterName"]: each["health"] for each in before["status"].get("aggregatedStatus", ())}
        gone = {name for name in NAMES if name not in self.plane.clusters}
        had = {each["name"] for each in before["spec"].get("clusters", ()) if each.get("replicas", 0) > 0}
        healthy = {name for name in had - gone if health.get(name) == "Healthy"}
        left = {each["name"] for each in after["spec"].get("clusters", ()) if each.get("replicas", 0) > 0}
        assert not healthy or healthy & left, (key, before["spec"], after["spec"])
        tasks = {each["fromCluster"] for each in after["spec"].get("gracefulEvictionTasks", ())}
        assert not tasks & (left - had), "nothing new goes where it is being evicted"

    # --- what may happen ---------------------------------------------------------------------------------

    def step(self) -> None:
        self.now += self.random.choice((0.01, 0.3, 2.0))
        happens = self.random.choice(
            (
                self.decides, self.decides, self.decides, self.lands, self.lands, self.lands, self.sees, self.sees,
                self.sees, self.evicts, self.grows, self.flaps, self.taints, self.runs, self.runs, self.is_killed,
                self.loses_an_answer, self.loses_a_cluster, self.edits, self.sees_no_clusters,
            )
        )  # fmt: skip
        happens()

    def decides(self) -> None:
        self.maker.look_for_moves(Steady(self.now))
        work = self.maker.next(Steady(self.now))
        if work is not None:
            self.flying.append(work)

    def lands(self) -> None:
        if self.flying:
            work = self.flying.pop(self.random.randrange(len(self.flying)))
            self.plane.carry_out(self.maker, work, self.now)
            self.unseen.append(work.key)

    def loses_an_answer(self) -> None:
        """A write takes place, and nobody learns of it but by the watch."""
        if not self.flying:
            return
        work = self.flying.pop(self.random.randrange(len(self.flying)))
        if not isinstance(work, Work):
            self.maker.broke(work.key, Steady(self.now))
            return
        if work.patch is not None:
            self.plane.carry_out(self.unknowing_maker(), work, self.now)
            self.unseen.append(work.key)
        self.maker.refused(work, work.binding, Steady(self.now))

    def sees(self) -> None:
        """The watch shows a change, in no order between kinds."""
        if self.unseen:
            self.show(self.unseen.pop(self.random.randrange(len(self.unseen))))

    def show(self, what: Key | str) -> None:
        at = Steady(self.now)
        if isinstance(what, tuple):
            self.maker.set_binding(self.plane.binding(what), at)
        elif what in self.plane.clusters:
            self.maker.set_cluster(self.plane.cluster(what), at)
        else:
            self.maker.delete_cluster(what, at)

    def evicts(self) -> None:
        key = self.random.choice(self.keys)
        targets = self.plane.targets(key)
        if len(targets) > 1:
            self.plane.evict(key, self.random.choice(sorted(targets)))
            self.unseen.append(key)

    def grows(self) -> None:
        key = self.random.choice(self.keys)
        replicas = self.plane.bindings[key]["spec"]["replicas"]
        self.plane.change(key, {"replicas": replicas + 1})
        self.unseen.append(key)

    def edits(self) -> None:
        """Another writer takes a replica away."""
        key = self.random.choice(self.keys)
        clusters = self.plane.bindings[key]["spec"].get("clusters", [])
        if clusters and clusters[0].get("replicas", 0) > 1:
            first = clusters[0] | {"replicas": clusters[0]["replicas"] - 1}
            self.plane.change(key, {"clusters": [first, *clusters[1:]]})
            self.unseen.append(key)

    def flaps(self) -> None:
        name = self.random.choice(sorted(self.plane.clusters) or ["a"])
        self.plane.set_cluster(name, cpu=self.random.choice((0, 3, 30)), taints=self.taints_of(name))
        self.unseen.append(name)

    def taints(self) -> None:
        name = self.random.choice(NAMES)
        taint = [{"key": "cluster.karmada.io/not-ready", "effect": self.random.choice(("NoSchedule", "NoExecute"))}]
        self.plane.set_cluster(name, cpu=20, taints=taint if self.random.random() < 0.5 else [])
        self.unseen.append(name)

    def taints_of(self, name: str) -> list[Json]:
        found: list[Json] = self.plane.clusters.get(name, {}).get("spec", {}).get("taints", [])
        return found

    def runs(self) -> None:
        """The controller manager reports what runs, and ends evictions."""
        key = self.random.choice(self.keys)
        targets = self.plane.targets(key)
        self.plane.set_health(key, {name: self.random.random() < 0.8 for name in targets})
        self.plane.end_evictions(key)
        self.unseen.append(key)

    def is_killed(self) -> None:
        """Another decision maker takes over; of what flies, some lands all the same, perhaps in half."""
        for work in self.flying:
            if isinstance(work, Work) and work.patch is not None and self.random.random() < 0.5:
                self.plane.carry_out(self.unknowing_maker(), work, self.now)
        self.flying, self.unseen = [], []
        self.maker = self.new_maker()

    def loses_a_cluster(self) -> None:
        if self.random.random() < 0.3 and len(self.plane.clusters) > 2:
            name = self.random.choice(sorted(self.plane.clusters))
            del self.plane.clusters[name]
            self.unseen.append(name)

    def sees_no_clusters(self) -> None:
        """The aggregated API server answers with an empty list."""
        if self.random.random() < 0.3:
            self.maker.replace_clusters([], Steady(self.now))
            self.unseen += list(self.plane.clusters)

    # --- the end -----------------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """No more faults: everything is seen, all clusters are there, and what was woken is decided."""
        for name in NAMES:
            self.plane.set_cluster(name, cpu=1000, taints=[])
        for _ in range(40):  # one replica moves in each, where the policy says so
            self.flying, self.now = [], self.now + 400
            for key in self.keys:
                self.plane.set_health(key, dict.fromkeys(self.plane.targets(key), True))
                self.plane.end_evictions(key)
            self.maker = self.new_maker()
            self.plane.settle(self.maker, self.now)


POLICIES = {
    "placement": "",
    "best first": "score cluster.room\ndivide best first\nrebalance at most 1 rest 1s",
    "evenly": 'filter cluster.name != "a"\ndivide evenly at most 4 each partly',
    "shares": "divide over region target eu 70%, us 30% then by cluster.room",
    "by placement": 'score 10 if cluster.name == "b"\ndivide as placement',
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_no_workload_loses_its_last_healthy_copy_by_our_hand(seed: int, policy: str) -> None:
    world = World(seed, POLICIES[policy])
    for _ in range(STEPS):
        world.step()
    world.come_to_rest()
    for key in world.keys if not POLICIES[policy] else ():
        spec, status = world.plane.bindings[key]["spec"], world.plane.bindings[key]["status"]
        counts = list(world.plane.targets(key).values())
        kind = spec["placement"]["replicaScheduling"]["replicaSchedulingType"]
        assert counts == [spec["replicas"]] * 4 if kind == "Duplicated" else sum(counts) == spec["replicas"]
        assert status["schedulerObservedGeneration"] == world.plane.bindings[key]["metadata"]["generation"]
        assert [each["reason"] for each in status["conditions"]] == ["Success"]
    writes = world.plane.writes
    world.come_to_rest()
    assert world.plane.writes == writes, "at rest nothing is written"


def test_the_judge_sees_a_loss() -> None:
    world = World(1)
    key = world.keys[0]
    world.plane.change(key, {"clusters": [{"name": "a", "replicas": 1}]})
    world.plane.set_health(key, {"a": True})
    version = world.plane.bindings[key]["metadata"]["resourceVersion"]
    with pytest.raises(AssertionError):
        world.plane.patch(key, {"metadata": {"resourceVersion": version}, "spec": {"clusters": []}})
