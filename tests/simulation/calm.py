"""The same world without chaos, for tests that say themselves what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from tests.simulation.api_server import ApiServer, Json
from tests.simulation.chaos import containers, policies_of
from tests.simulation.replica import Replica, Reports
from tests.simulation.virtual_time import run


class Calm:
    """An API server and one scheduler under a policy."""

    def __init__(self, policy: str, *, cpus: tuple[int, ...], kubernetes: KubernetesRules = DEFAULT_RULES) -> None:
        self.server = ApiServer(Random(1))
        for number, cpu in enumerate(cpus):
            self.server.set_node(f"n{number}", cpu=cpu, labels={})
        self.policies = policies_of(policy)
        self.kubernetes = kubernetes
        self.process = Replica(self.server, self.policies, name="r1", seed=1, kubernetes=kubernetes)

    policies_of = staticmethod(policies_of)

    @property
    def told(self) -> Reports:
        """What the scheduler has reported."""
        return self.process.told

    def restart(self) -> None:
        """Kill the scheduler and start another one."""
        before = self.told
        self.process.kill()
        self.process = Replica(
            self.server, self.policies, name="r2", seed=2, told=before.told, kubernetes=self.kubernetes
        )

    def pod(self, name: str, *, millis: int = 1000, priority: int = 0, owner: str = "", **labels: str) -> None:
        """Create a pod; owner: the ReplicaSet that replaces it if it is evicted."""
        spec: Json = {"priority": priority} | containers(millis)
        self.server.create_pod(name, spec, labels, owner=owner)

    def on_nodes(self) -> list[str]:
        """Return the names of the pods that have a node."""
        return sorted(name for name, pod in self.server.pods.items() if pod["spec"].get("nodeName"))

    def node_of(self, name: str) -> str | None:
        """Return the node that a pod counts on for the scheduler; None: there is none."""
        return self.process.view().get(self.server.pods[name]["metadata"]["uid"])

    def waiting(self) -> list[str]:
        """Return the names of the pods that hold a place and wait for others."""
        uids = set(self.process.scheduler.waiting_pods.waiting)
        return sorted(queued.pod.name for queued in self.process.scheduler.queue if queued.pod.uid in uids)

    def relist(self) -> None:
        """Have the scheduler list everything again."""
        for stream in self.process.connection.streams:
            stream.spoil("410 in the stream")

    async def after(self, seconds: float) -> None:
        """Let time pass, and see that all is well."""
        await asyncio.sleep(seconds)
        found = [*self.process.violations(), *self.server.violations]
        assert found == [], found


def story(
    policy: str,
    tell: Callable[[Calm], Awaitable[None]],
    *,
    cpus: tuple[int, ...],
    kubernetes: KubernetesRules = DEFAULT_RULES,
) -> None:
    """Run a test's story in virtual time."""

    async def main() -> None:
        await tell(Calm(policy, cpus=cpus, kubernetes=kubernetes))

    run(main())
