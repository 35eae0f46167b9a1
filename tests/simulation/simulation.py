"""Runs in which one replica does all the work: alone, or elected among several that die, are stopped and come back."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.decide.gang_domains import Domain, GangTopology
from kube_policy_scheduler.framework.frame import Frame
from tests.simulation.chaos import BASE, QUEUED, WIDE, Action, Chaos, compiled, policies_of, rack_of
from tests.simulation.replica import ALONE, ELECTED, LEASE, Replica

QUEUES = """\
queue jobs for pods where pod.label.job min cpu 4 max cpu 12 remember 10min
queue shared min cpu 6
queue one of shared for pods where pod.namespace == "one" min cpu 2 lend cpu 1
queue rest of shared by pod.namespace weight 2
"""
POLICIES = (
    BASE,
    BASE + "score node.free.cpu\npreempt never\n",
    BASE + 'spread by pod.label.app\nfilter node.label.disk != "hdd" if pod.label.app == "web"\n',
    BASE
    + 'order by pod.priority desc, pod.label.app\npreempt if pod.priority > 5 evict where victim.label.app == "db"\n',
    BASE + 'hold if pod.label.app == "held" and pod.waiting < 20s\n',
    QUEUED + QUEUES + "reclaim after 5s\n",
    QUEUED
    + QUEUES
    + "order by queue.share, pod.priority desc\nreclaim fair after 2s evict where victim.priority < 10\n",
)
NOTICE_SECONDS = 15.0
"""After which every replica has noticed that the Lease was deleted: its holder has made it again, or is gone."""
BROKEN = "filter node.redy\n"
WIDE_SHARE = 0.2
"""Of the runs that have many nodes, most of them empty."""


class Simulation(Chaos):
    """A run of one replica at a time."""

    texts: tuple[str, ...] = POLICIES
    """The policies that it swaps."""

    def _begin(self) -> None:
        self.loaded = [policies_of(text) for text in self.texts]
        self.policies = self.loaded[0]
        self._election = self.random.choice((ALONE, ELECTED))
        self._lives = 0
        self._starts_at = 0.0
        self._most_nodes = 8
        for number in range(self.random.randint(2, 6)):
            self._node(f"n{number}")
        if self.random.random() < WIDE_SHARE:
            self._most_nodes = self.random.choice((WIDE + 6, 2 * WIDE + 20))
            for number in range(len(self.server.nodes), self._most_nodes):
                self._node(f"n{number}", spare=True)  # no pod comes to high rows before somebody uncordons them
        self._start()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._starts_at:
            loop.call_at(self._starts_at, self._start)
            return
        self._lives += 1
        self.replicas.append(
            Replica(
                self.server,
                self.policies,
                name=f"r{self._lives}",
                seed=self.random.randrange(10**6),
                election=self._election,
                told=self.told,
            )
        )

    def _replace(self) -> None:
        """Begin a new life, once what the last one sent has arrived: a process takes longer than that to start."""
        asyncio.get_running_loop().call_later(self.server.lag_seconds + 0.2, self._start)

    # --- what happens ---------------------------------------------------------------------------------

    def _usual_actions(self) -> list[Action]:
        first, second, *others = super()._usual_actions()
        # where ReplicaSets own the pods, one would let such a pod go, and make another
        return [first, second, *([(6, self._relabel)] * (not self.server.owns)), *others]

    def _own_actions(self) -> list[Action]:
        return [
            (4, self._change_node),
            (2, self._delete_nodes),
            (3, self._add_nodes),
            (1, self._kill),
            (1, self._lose_rack),
            (3, self._reload),
            (2, self._lag),
            (1, self._set_clock),
            *(
                [(1, self._stand_by), (1, self._leave), (3, self._pause), (1, self._cut_off), (1, self._delete_lease)]
                * self._election.enabled
            ),
            *([(1, self._cut_off_for_minutes)] * (not self._election.enabled)),
        ]

    def _change_node(self) -> None:
        if self.server.nodes:
            self._node(self.random.choice(list(self.server.nodes)))

    def _add_nodes(self) -> None:
        """Add a node or several, or change them where they are there."""
        for _ in range(self.random.choice((1, 1, 1, self._most_nodes // 4))):
            if len(self.server.nodes) < self._most_nodes:
                self._node(f"n{self.random.randrange(self._most_nodes)}", spare=self._most_nodes > WIDE)

    def _kill(self) -> None:
        if self.replicas:
            self.replicas.pop(self.random.randrange(len(self.replicas))).kill()
            self._met("killed")
            self._replace()

    def _lose_rack(self) -> None:
        """Lose the leader together with nodes."""
        leaders = [replica for replica in self.replicas if replica.fence.allows()]
        if leaders:
            if len(self.server.nodes) > 1:
                self._met("leader lost together with nodes")
            self.replicas.remove(leaders[0])
            leaders[0].kill()
            self._delete_nodes()
            self._replace()

    def _reload(self) -> None:
        if compiled(BROKEN) is not None:
            raise AssertionError("a broken policy set was accepted")
        self.policies = self.random.choice(self.loaded)
        for replica in self.replicas:
            replica.use_policies(self.policies)
        self._met("policies swapped")

    def _lag(self) -> None:
        self.server.lag_seconds = self.random.choice((0.01, 0.2, 3.0))

    def _set_clock(self) -> None:
        self.server.clock_ahead = self.random.choice((0.0, 0.0, 40.0, -40.0, 3 * 3600.0, -3 * 3600.0))
        self._met("clock set")

    def _cut_off_for_minutes(self) -> None:
        """Cut a replica off right after its bindings went out, for longer than it asks what happened to them."""
        if self.replicas:
            self._create()
            connection, loop = self.random.choice(self.replicas).connection, asyncio.get_running_loop()
            loop.call_later(0.3 + self.server.lag_seconds, self._cut, connection, 400.0)
            self.server.fault_rate = 0.3
            self.pause_seconds = self.random.choice((100.0, 300.0))
            self._met("cut off for minutes")

    # --- what happens where there is an election ------------------------------------------------------

    def _stand_by(self) -> None:
        if len(self.replicas) < 3:
            self._start()
            self._met("standby began")

    def _delete_lease(self) -> None:
        """Delete the Lease; a replica that starts now cannot see the leader, so none starts."""
        all_know = all(each.coordinator.leader == self.server.holders.get(LEASE) for each in self.replicas)
        if all_know and self.server.delete_lease(LEASE):
            self._met("lease deleted")
            self._starts_at = asyncio.get_running_loop().time() + NOTICE_SECONDS + self.server.lag_seconds

    def _leave(self) -> None:
        if len(self.replicas) > 1:
            replica = self.replicas.pop(self.random.randrange(len(self.replicas)))
            if not replica.machine.is_stopped:
                self._leaving = asyncio.create_task(replica.leave())
                self._met("left in order")
            else:
                replica.kill()

    def _pause(self) -> None:
        """Stop a machine, the leader's if there is one."""
        running = [replica for replica in self.replicas if not replica.machine.is_stopped]
        if len(running) < 2:  # somebody has to be there who may take over
            self._stand_by()
            return
        leaders = [replica for replica in running if replica.fence.allows()]
        self._stop(leaders[0] if leaders else self.random.choice(running))
        self._met("leader stopped" if leaders else "standby stopped")
        self.pause_seconds = self.random.choice((0.0, 18.0))  # others take over in 15 s, unless something hinders them

    def _go_on(self, replica: Replica) -> None:
        """Let it run again; what it was about to send, it sends now, if it still may."""
        others = [other for other in self.replicas if other is not replica]
        if replica.machine.is_stopped and replica.scheduler.leading and any(other.fence.allows() for other in others):
            self._met("former leader goes on while another leads")
        super()._go_on(replica)

    # --- what must hold -------------------------------------------------------------------------------

    def _check(self) -> None:
        for replica in self.replicas:
            usage = replica.scheduler.cluster.quota_usage
            if usage is not None and any(
                used > least > 0
                for queue in usage.queues()
                for used, least in zip(queue.used, queue.minimum, strict=True)
            ):
                self._met("queue borrows")
        super()._check()

    def _rivals(self) -> list[str]:
        acting = [replica.name for replica in self.replicas if replica.fence.allows()]
        return [f"{' and '.join(acting)} lead"] if len(acting) > 1 else []

    def _lost(self) -> list[str]:
        """Return pending pods for which an independent look at the truth finds a place."""
        cycle, (cluster, pods) = Cycle(), self._truth()
        pending = [pod for pod in pods if not pod.node_name and not pod.terminating]
        lost = []
        jobs: dict[str, list[Any]] = {}
        for pod in pending:
            if "job" in pod.labels:
                jobs.setdefault(pod.labels["job"], []).append(pod)
            elif self._fits(pod, cluster, cycle) is not None:
                lost.append(pod.name)
            elif others := self._gives_way(pod, cluster, cycle):
                lost.append(f"{pod.name} (in the place of {' '.join(others)})")
        for members in jobs.values():
            job, size = members[0].labels["job"], int(members[0].labels["size"])
            count = sum(p.labels.get("job") == job and not p.terminating for p in cluster.pods.values())
            for rack in self._racks_of(job, cluster) if "near" in members[0].labels else (None,):
                placed = []
                for pod in members:
                    host = self._fits(pod, cluster, cycle, rack=rack)
                    if host is not None:
                        cluster.place(pod, host)
                        placed.append(pod)
                if placed and count + len(placed) >= size:
                    lost += [pod.name for pod in placed]
                for pod in placed:
                    cluster.displace(pod.uid)
        return lost

    def _truth(self) -> tuple[Cluster, list[PodInfo]]:
        """Return the nodes with the pods that are bound to them, and all pods."""
        cluster = Cluster()
        for node in self.server.nodes.values():
            cluster.set_node(self.server.decoded("nodes", node))
        pods = [cluster.templates.pod(self.server.decoded("pods", p)) for p in self.server.listing("pods")]
        for pod in pods:
            if pod.node_name:
                cluster.place(pod, pod.node_name)
        return cluster, pods

    def _gives_way(self, pod: Any, cluster: Cluster, cycle: Cycle) -> list[str]:
        """Return the pods that are to be evicted for a pod."""
        profile = self.policies.profile(pod)
        assert profile is not None
        found = cycle.decide(Frame(pod, cluster, self.server.scheduler_clock()), profile).preemption
        return [victim.name for victim in found.victims] if found is not None else []

    def _racks_of(self, job: str, cluster: Cluster) -> list[str]:
        """Return the racks that a gang may be in: where its members run, or any."""
        there = {
            rack_of(node)
            for pod in cluster.pods.values()
            if pod.labels.get("job") == job and not pod.terminating and (node := cluster.node_of(pod.uid))
        }
        return [] if len(there) > 1 else sorted(there or set(map(rack_of, self.server.nodes)))

    def _fits(self, pod: Any, cluster: Cluster, cycle: Cycle, *, rack: str | None = None) -> str | None:
        profile = self.policies.profile(pod)
        assert profile is not None
        if rack is not None:
            profile = msgspec.structs.replace(
                profile, filters=(GangTopology((Domain("rack", rack),)), *profile.filters)
            )
        return cycle.decide(Frame(pod, cluster, self.server.scheduler_clock()), profile).host
