"""A scheduler's inner life for the status page: nodes, pods on them, pods that wait, decisions, reloads."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import msgspec

from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.live_metrics import SignalRow
from kube_policy_scheduler.daemon.observing.observers import PodHeld
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord, ReloadResult
from kube_policy_scheduler.daemon.serving.status_snapshot import (
    PolicyStatus,
    Replica,
    Snapshot,
    SnapshotSources,
    take_snapshot,
)
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.groups.state import GangState
from kube_policy_scheduler.framework.queue.scheduling_queue import Membership, SchedulingQueue
from tests.daemon.deciding_stage import NOW, Stage, policies, reading

POLICY = """# Web pods go where it is calm.
policy web
for pods where pod.label.app == "web"

metric load = promql("avg by (node) (node_load1)")

filter load ?? 1 < 0.9 as not_too_busy else "node is <b>busy</b>"
filter node.label.zone != "z1"
    if pod.label.tier == "front"
    else "not for the front"
score 10 * (1 - load) as calm
score node.free.cpu as room
spread by pod.label.app over node.label.zone weight 2
hold if pod.label.later else "later <script>alert(1)</script>"
"""


@dataclass
class Scene:
    """What the page is about."""

    nodes: int = 12
    pending: int = 0
    decided: int = 8
    reachable: bool = True
    gangs: tuple[GangState, ...] = ()
    stage: Stage = field(init=False)
    policy_status: PolicyStatus = field(default_factory=PolicyStatus)
    queue: SchedulingQueue = field(default_factory=SchedulingQueue)
    counts: ClauseCounts = field(default_factory=ClauseCounts)
    log: DecisionLog = field(init=False)

    def __post_init__(self) -> None:
        chance = random.Random(7)  # the same figures each time
        stage = self.stage = Stage(policies(POLICY), nodes=self.nodes, cpus=32)
        loads = {name: round(chance.betavariate(2, 3), 2) for name in stage.cluster.nodes.names if name != "n1"}
        query = stage.policy_set.queries[0].promql
        stage.signals = Signals.of([reading(query, loads, at=NOW - 7)])
        self._close_nodes()
        self.log = DecisionLog(
            DecisionLogSettings(kept=1000, detail_share=1.0),
            seed=0,
            replica="policy-scheduler-7d9f_4be1",
            stopwatch=time.perf_counter,
            counts=self.counts,
        )
        self.log.use_policies(stage.policy_set, hash="9f3a77c0d1e24b58")
        self.policy_status.use_policies(stage.policy_set, hash="9f3a77c0d1e24b58")
        for number in range(self.nodes * 3):
            pod = stage.pod(f"run-{number}", cpu=f"{chance.choice((500, 1000, 4000, 9000))}m", app="web")
            stage.cluster.place(pod, f"n{min(self.nodes - 1, int(chance.triangular(0, self.nodes, 0)))}")
        for number in range(self.decided):
            stage.now = NOW - 60 + number
            stage.decide(stage.pod(f"web-{number}", app="web"), self.log)
        stage.now = NOW
        self._wait()
        self._reload()

    def _close_nodes(self) -> None:
        nodes = self.stage.cluster.nodes
        for name in nodes.names[3::37]:
            node = nodes.infos[nodes.rows[name]].node
            self.stage.cluster.set_node(
                msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))
            )

    def _wait(self) -> None:
        for number in range(self.pending):
            kind = number % 4
            labels = {"app": "web", "later": "1"} if kind == 2 else {"app": "web"} if kind < 3 else {"app": "none"}
            cpu = "64" if kind == 0 else "500"
            pod = self.stage.pod(f"wait-{number}", cpu=cpu, **labels)
            self.queue.add(pod, NOW - number % 600)
            queued = self.queue.pop(NOW)
            assert queued is not None
            if kind == 2:
                policy = self.stage.policy_set.policies[0]
                why = policy.held_by(policy.holds[0])
                self.queue.gate(queued, Membership(why=why), NOW)
                self.log.on_held(PodHeld(pod=pod, why=why, at=NOW, policy="web", attempts=1, queued=NOW))
            elif kind == 1 and number > 8:
                self.queue.rejected(queued, frozenset({"NodeResourcesFit"}), NOW, wakes=kubernetes_profile().wakes)
            else:
                decision = self.stage.decide(pod, self.log)
                self.queue.rejected(queued, decision.rejectors, NOW, wakes=kubernetes_profile().wakes)

    def _reload(self) -> None:
        problem = "web.policy:7:8: error[P0101]: unknown name `laod`\n  |\n7 | filter laod ?? 1 < 0.9\n  |        ^^^^"
        self.policy_status.on_reloaded(ReloadRecord(ReloadResult.ACCEPTED, "9f3a77c0d1e24b58", 1, NOW - 7200, 0.12))
        self.policy_status.on_reloaded(
            ReloadRecord(ReloadResult.REFUSED, "badbadbadbad", 1, NOW - 90, 0.04, (problem,))
        )

    def sources(self) -> SnapshotSources:
        return SnapshotSources(
            cluster=self.stage.cluster,
            queue=self.queue,
            gangs=lambda queued: self.gangs,
            assumed=lambda: 3,
            log=self.log,
            counts=self.counts,
            policy_status=self.policy_status,
            metrics=lambda: [
                SignalRow("avg by (node) (node_load1)", 7.2, False, self.nodes - 1, None, 0.012),
                SignalRow("never_there", None, True, 0, None, 0.0),
            ],
            replica=lambda: Replica(
                version="0.1.0",
                identity="policy-scheduler-7d9f_4be1",
                started=NOW - 90_000,
                scheduler_names=("policy-scheduler",),
                leading=True,
                leader="policy-scheduler-7d9f_4be1",
                elects=True,
                reachable=self.reachable,
                server="https://10.0.0.1:443",
                kernels="not in use: numba is not installed (extra `fast`)",
            ),
            clock=lambda: NOW,
        )

    def snapshot(self) -> Snapshot:
        return take_snapshot(self.sources())
