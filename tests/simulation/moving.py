"""The same chaos with policies that move pods: evictions fail, budgets are spent, leaders die amid moves."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.simulation.chaos import BASE, Action
from tests.simulation.simulation import Simulation

POLICIES = (
    BASE + "score 100 * (1 - node.used_fraction.cpu)\nrebalance margin 5 rest 20s\n",
    BASE
    + 'score 100 * (1 - node.used_fraction.cpu)\nrebalance margin 10 at most 2 rest 0s if pod.label.app == "web"\n',
    BASE + 'filter node.label.disk != "hdd" if pod.label.app == "web"\nspread by pod.label.app\nrebalance rest 10s\n',
    BASE + "score node.free.cpu\npreempt never\n",
)


class MovingSimulation(Simulation):
    """A run of one replica at a time that moves pods of ReplicaSets."""

    options, texts = "--moving ", POLICIES

    def _begin(self) -> None:
        self.server.owns, self.most_pods = True, 12
        super()._begin()

    def _own_actions(self) -> list[Action]:
        return [*super()._own_actions(), (6, self._protect), (20, self._rest)]

    def _protect(self) -> None:
        """Spend the budgets of some pods, or let several budgets match them."""
        self.server.spent_budgets = {
            name: self.random.choice((429, 429, 500)) for name in self.server.pods if self.random.random() < 0.3
        }
        self.server.replaces_after = self.random.choice((0.0, 0.0, 5.0, 100.0))

    def _rest(self) -> None:
        """Let enough time pass for a pass."""
        self.pause_seconds = 45.0

    def _check(self) -> None:
        for pod in self.server.evicted:
            if "ownerReferences" not in pod["metadata"]:
                self._fail([f"{pod['metadata']['name']} was evicted, and nothing replaces it"])
        super()._check()

    async def _settle(self) -> None:
        self.server.spent_budgets.clear()
        self.server.replaces_after = 0.0
        await super()._settle()
        await asyncio.sleep(900.0)  # whatever there is to move, it moves within budgets, and then there is peace
        before = len(self.server.evicted)
        await asyncio.sleep(600.0)
        if len(self.server.evicted) > before:
            self._fail([f"pods still move after 15 minutes: {Counter(self._moves()).most_common(5)}"])
        await super()._settle()

    def _moves(self) -> list[str]:
        return [moved.move.workload for replica in self.replicas for moved in replica.told.moves]
