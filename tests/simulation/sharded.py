"""Runs in which several replicas share the work: they come, go, die, are stopped and are cut off."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from kube_policy_scheduler.adapters.kube.shard_leases import KNOWS
from tests.simulation.api_server import Json, cpu_millis
from tests.simulation.chaos import BASE, QUEUED, QUOTA, Action, Chaos, policies_of
from tests.simulation.replica import Replica

TRACE_SECONDS = 16.0
"""For so long after its Lease was deleted a replica may act, or others wait for it."""


class SharedSimulation(Chaos):
    """A run of up to four replicas at a time.

    One of them decides all pods, as all are counted; in each third run only those of two queues. There, some members of
    each gang are of a queue and others of none.
    """

    options = "--sharded "
    _traces_until = 0.0
    """Until then, another Lease tells of a replica whose own was deleted."""

    def _begin(self) -> None:
        self.server.lag_seconds = 0.05
        lends = "queue rest by pod.namespace min cpu 2\nreclaim after 5s\n"
        text = self.random.choice((BASE, QUEUED + lends))
        self.policies = policies_of(text if self.seed % 3 else QUEUED)
        self._lives = 0
        for number in range(self.random.randint(3, 7)):
            self._node(f"n{number}")
        for _ in range(2):
            self._join()

    def _node(self, name: str, *, spare: bool = False) -> None:
        labels = {"zone": self.random.choice("ab")}
        self.server.set_node(name, cpu=self.random.randint(2, 5), labels=labels, unschedulable=spare)

    # --- what happens ---------------------------------------------------------------------------------

    def _own_labels(self, number: int) -> dict[str, str]:
        return {"tenant": "a"} if self.seed % 3 == 0 and number % 2 else {}

    def _own_actions(self) -> list[Action]:
        return [
            (2, self._join),
            (1, self._kill),
            (1, self._leave),
            (1, self._cut_off),
            (1, self._pause),
            (1, self._delete_lease),
            (2, self._refuse),
        ]

    def _refuse(self) -> None:
        """For a while, let the API server refuse for good every write about some pods that were passed on."""
        passed = [name for name in self._pending() if "nominatedNodeName" in self.server.pods[name]["status"]]
        self._deny_writes(passed, answers=(403, 422), seconds=(20.0, 300.0))

    def _join(self) -> None:
        if len(self.replicas) < 4:
            self._lives += 1
            seed = self.random.randrange(10**6)
            name = f"r{self._lives}"
            self.replicas.append(Replica(self.server, self.policies, name=name, seed=seed, shares=True, told=self.told))
            self._met("joined")

    def _replace(self) -> None:
        self._join()

    def _kill(self) -> None:
        if len(self.replicas) > 1:
            self.replicas.pop(self.random.randrange(len(self.replicas))).kill()
            self._met("killed")

    def _delete_lease(self) -> None:
        """Delete a Lease whose holder another Lease names: without a trace, no newcomer could know it."""
        now, leases = asyncio.get_running_loop().time(), self.server.leases
        told = [
            name
            for name, lease in leases.items()
            if any(
                lease["spec"]["holderIdentity"] in other["metadata"]["annotations"][KNOWS].split(",")
                for other in leases.values()
                if other is not lease
            )
        ]
        if told and now > self._traces_until and self.server.delete_lease(self.random.choice(told)):
            self._traces_until = now + TRACE_SECONDS
            self._met("lease deleted")

    def _leave(self) -> None:
        running = [replica for replica in self.replicas if not replica.machine.is_stopped]
        if len(running) > 1:
            replica = self.random.choice(running)
            self.replicas.remove(replica)
            self._leaving = asyncio.create_task(replica.leave())
            self._met("left in order")

    def _pause(self) -> None:
        running = [replica for replica in self.replicas if not replica.machine.is_stopped]
        if running:
            self._stop(self.random.choice(running))
            self._met("stopped")

    # --- what must hold -------------------------------------------------------------------------------

    def _rivals(self) -> list[str]:
        found = []
        acting = [r for r in self.replicas if r.scheduler.leading and r.fence.allows()]
        for node in self.server.nodes:
            owners = [r.name for r in acting if r.scheduler.context.sharding.owns_node(node)]  # type: ignore[union-attr]
            if len(owners) > 1:
                found.append(f"{node} has the owners {owners}")
        for replica in self.replicas:
            shard = replica.coordinator.shard_state()
            assert shard is not None
            self.server.met["most passed on"] = max(self.server.met["most passed on"], shard.passed_on)
            self.server.met["most given back"] = max(self.server.met["most given back"], shard.given_back)
        return found

    def _lost(self) -> list[str]:
        """Return pods, under no limit or constraint, for which there is a free node, and gangs for which one is."""
        server = self.server
        free = {
            name: int(node["status"]["allocatable"]["cpu"]) * 1000
            - sum(cpu_millis(p) for p in server.pods.values() if p["spec"].get("nodeName") == name)
            for name, node in server.nodes.items()
        }
        number = Counter(p["spec"].get("nodeName") for p in server.pods.values())
        alone = [
            name
            for name, pod in server.pods.items()
            if not pod["spec"].get("nodeName")
            and not {"job", "tenant", "solo"} & pod["metadata"]["labels"].keys()
            and "nodeSelector" not in pod["spec"]
            and any(room >= cpu_millis(pod) and number[node] < 8 for node, room in free.items())
        ]
        return [*alone, *self._lost_gangs({node: room for node, room in free.items() if number[node] < 4})]

    async def _settle(self) -> None:
        for _ in range(3):  # of those that wait, few are whole: pods are deleted all the time
            self._gang()
        await super()._settle()

    def _lost_gangs(self, free: dict[str, int]) -> list[str]:
        """Return the members of gangs of which none runs, for all of which one node of their replica has room.

        free: of nodes that may get four more pods.
        """
        gangs: dict[str, list[str]] = {}
        for name, pod in self.server.pods.items():
            labels = pod["metadata"]["labels"]
            if "job" in labels and "near" not in labels:
                gangs.setdefault(labels["job"], []).append(name)
        shares = [replica.scheduler.context.sharding for replica in self.replicas]
        decider = next((each for each in shares if each is not None and each.decides_queues), None)
        found = []
        for names in gangs.values():
            pods = [self.server.pods[name] for name in names]
            size = int(pods[0]["metadata"]["labels"]["size"])
            has_quota = (
                _of_a(pods) + _of_a(each for each in self.server.pods.values() if each["spec"].get("nodeName"))
                <= QUOTA["a"]
            )
            if (
                decider is not None
                and len(pods) >= size
                and has_quota
                and not any(pod["spec"].get("nodeName") for pod in pods)
                and any(room >= sum(map(cpu_millis, pods)) and decider.owns_node(node) for node, room in free.items())
            ):
                found += names
        return found


def _of_a(pods: Iterable[Json]) -> int:
    return sum(pod["metadata"]["labels"].get("tenant") == "a" for pod in pods)
