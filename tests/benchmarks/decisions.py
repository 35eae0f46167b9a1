"""Decisions per second of one workload, without any API: decide, place, next."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.adapters.compute.compiled_kernels import compile_kernels
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.reserve.claim_reservation import ClaimReservation, reserve_on, undo
from kube_policy_scheduler.policy.policy import Policy
from tests.benchmarks.devices import claim
from tests.benchmarks.manifests import pod_info
from tests.benchmarks.policies import signals
from tests.benchmarks.reference import Reference
from tests.benchmarks.workloads import Workload, build

NOW = 1_800_000_000.0
_WARM_UP = 5
"""Decisions made before the clock runs; modules and labels are met for the first time then."""


@dataclass(frozen=True)
class Measurement:
    """What a number of decisions cost."""

    workload: str
    nodes: int
    placed: int
    decisions: int
    cpu_us: float
    """CPU time per decision, its placement included."""
    p50_us: float
    """Wall time of the median decision."""
    p99_us: float
    relative: float
    """CPU time per decision as a multiple of one turn of the reference loop, measured right before and after."""
    goal: int | None = None
    """Decisions per second to reach."""

    @property
    def per_second(self) -> float:
        """Return decisions per second of CPU time."""
        return 1e6 / self.cpu_us


def accelerated_cycle() -> Cycle:
    """Return a cycle with the compiled kernels, where numba is installed."""
    return Cycle(accelerator=Accelerator(compile_kernels().kernels))


@dataclass
class Run:
    """One workload on one cluster, decided round after round."""

    workload: Workload
    cluster: Cluster
    profile: Profile
    cycle: Cycle = field(default_factory=accelerated_cycle)
    signals: Signals = Signals.EMPTY
    serial: int = 0
    """Pods made so far: each gets a number of its own."""
    policy: Policy | None = None
    """The one whose profile it is, if there is one."""
    reserved: list[ClaimReservation] = field(default_factory=list)
    """What the pods decided since the last `release` claim."""
    objects: list[Any] = field(default_factory=list)
    """Other objects of those pods."""

    def pods(self, count: int) -> list[PodInfo]:
        """Return so many new pods to decide."""
        first, self.serial = self.serial, self.serial + count
        found = [pod_info(self.cluster, self.workload.make_pod(number)) for number in range(first, first + count)]
        for pod in found if self.workload.claims else ():
            self.cluster.set_object(msgspec.convert(claim(pod.name, owner=pod.uid), objects.ResourceClaim))
        if self.workload.make_objects is not None:
            for pod in found:
                for thing in self.workload.make_objects(pod):
                    self.cluster.set_object(thing)
                    self.objects.append(thing)
        return found

    def decide(self, pod: PodInfo) -> tuple[Decision, tuple[PodInfo, ...]]:
        """Decide and place a pod, with those gone that it preempts; return its last decision and the victims."""
        decision = self.cycle.decide(Frame(pod, self.cluster, NOW, signals=self.signals), self.profile)
        victims: tuple[PodInfo, ...] = ()
        if decision.preemption is not None and decision.preemption.nominated_node is not None:
            victims = decision.preemption.victims
            for victim in victims:
                self.cluster.displace(victim.uid)
            pod.nominated_node = decision.preemption.nominated_node
            decision = self.cycle.decide(Frame(pod, self.cluster, NOW, signals=self.signals), self.profile)
        if decision.host is not None:
            if self.workload.claims:
                rows = np.array([self.cluster.nodes.rows[decision.host]])
                reservation = reserve_on(Frame(pod, self.cluster, NOW, rows=rows))
                assert isinstance(reservation, ClaimReservation), reservation
                self.reserved.append(reservation)
            self.cluster.place(pod, decision.host)
        return decision, victims

    def release(self) -> None:
        """Give back what pods claim, and delete their claims and other objects."""
        for thing in self.objects:
            self.cluster.remove_object(thing)
        self.objects.clear()
        for reservation in self.reserved:
            undo(reservation, self.cluster)
            for one in reservation.claims:
                self.cluster.remove_object(one.claim)
        self.reserved.clear()


def start(workload: Workload, *, nodes: int, placed: int | None = None) -> Run:
    """Return a run with the first pods in their places; `placed` instead of the workload's number of them."""
    cluster = build(workload, nodes=nodes)
    count = workload.scaled(workload.placed, nodes) if placed is None else placed
    for number in range(count):
        info = pod_info(cluster, workload.make_placed(number))
        info.uid = f"placed-{number}"
        cluster.place(info, f"node-{number % nodes}")
        if workload.make_objects is not None:
            for thing in workload.make_objects(info):
                cluster.set_object(thing)
        if workload.claims:
            device = (f"node-{number % nodes}", number // nodes)
            held = claim(f"placed-{number}", owner=info.uid, allocated=device)
            cluster.set_object(msgspec.convert(held, objects.ResourceClaim))
    measured = signals(nodes, now=NOW) if workload.metrics else Signals.EMPTY
    policy = workload.policy() if workload.policy is not None else None
    profile = policy.profile if policy is not None else workload.profile()
    return Run(workload, cluster, profile, signals=measured, policy=policy)


def measure(run: Run, reference: Reference, *, at_least: int) -> Measurement:
    """Decide at least so many pods, in rounds after each of which the cluster is as it was before."""
    workload, cluster = run.workload, run.cluster
    nodes, placed = cluster.nodes.size, len(cluster.pods)
    size = min(workload.scaled(workload.measured, nodes), at_least)
    with quiet():
        _round(run, min(size, _WARM_UP))
        before = reference.seconds()
        cpu_seconds = 0.0
        walls: list[float] = []
        while len(walls) < at_least:
            spent, times = _round(run, size)
            cpu_seconds += spent
            walls += times
        turn = (before + reference.seconds()) / 2
    cpu_us = cpu_seconds / len(walls) * 1e6
    return Measurement(
        workload=workload.name,
        nodes=nodes,
        placed=placed,
        decisions=len(walls),
        cpu_us=cpu_us,
        p50_us=float(np.percentile(walls, 50)) * 1e6,
        p99_us=float(np.percentile(walls, 99)) * 1e6,
        relative=cpu_us / 1e6 / turn,
        goal=workload.goal if workload.goal is None or nodes <= 5_000 else workload.goal * 5_000 // nodes,
    )


def _round(run: Run, size: int) -> tuple[float, list[float]]:
    """Decide so many new pods, then undo it; return CPU seconds in total and wall seconds each."""
    pods = run.pods(size)
    walls: list[float] = []
    homes: dict[str, str | None] = {}
    moved: list[PodInfo] = []
    lost = 0
    began = time.process_time()
    for pod in pods:
        first = time.perf_counter()
        if run.workload.meanwhile is not None:
            run.workload.meanwhile(run, pod)
        decision, victims = run.decide(pod)
        walls.append(time.perf_counter() - first)
        lost += decision.host is None
        if victims:
            moved += victims
            homes |= dict.fromkeys((victim.uid for victim in victims), decision.host)
    spent = time.process_time() - began
    for pod in pods:
        run.cluster.displace(pod.uid)
    run.release()
    for victim in moved:
        run.cluster.place(victim, homes[victim.uid] or "")
    expected = 0 if run.workload.fits else size
    assert lost == expected, f"{run.workload.name}: {lost} of {size} pods found no node"
    return spent, walls


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what is there out of the garbage collector's way, as the scheduler does after its first list."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
