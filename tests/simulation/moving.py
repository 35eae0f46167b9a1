"""The same chaos with policies that move pods: evictions fail, budgets are spent, leaders die amid moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from kube_policy_scheduler.daemon.observing.observers import PodMoved
from kube_policy_scheduler.tooling.rebalancing.ledger import MoveOutcome
from tests.simulation.chaos import BASE, Action
from tests.simulation.simulation import Simulation

POLICIES = (
    BASE + "score 100 * (1 - node.used_fraction.cpu)\nrebalance margin 5 rest 20s\n",
    BASE
    + 'score 100 * (1 - node.used_fraction.cpu)\nrebalance margin 10 at most 2 rest 0s if pod.label.app == "web"\n',
    BASE + 'filter node.label.disk != "hdd" if pod.label.app == "web"\nspread by pod.label.app\nrebalance rest 10s\n',
    BASE + "score node.free.cpu\npreempt never\n",
)

PEACE_SECONDS = 900.0
"""After which nothing moves any more, if nothing else changes."""
MOST_TRIES = 4
"""Of a pod that fits nowhere, in ten minutes in which nothing happens: all are tried once in 300 s."""


class MovingSimulation(Simulation):
    """A run of one replica at a time that moves pods of ReplicaSets."""

    options, texts = "--moving ", POLICIES
    late_seconds: tuple[float, ...] = (0.0, 0.0, 5.0, 100.0)
    """After which ReplicaSets replace a pod that was evicted; 0: at once."""

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
        self.server.replaces_after = self.random.choice(self.late_seconds)

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
        await asyncio.sleep(max(self.late_seconds))  # the last replacements come, which may take the room of others
        await super()._settle()
        before, loop = len(self._moves()), asyncio.get_running_loop()
        # a workload whose replacement went elsewhere amid the chaos moves once more when it has rested
        rested = max((replica.rebalancer.rests_until() for replica in self.replicas), default=0.0)
        await asyncio.sleep(max(0.0, rested - loop.time()) + PEACE_SECONDS)
        evicted, tries = len(self.server.evicted), self._tries()
        await asyncio.sleep(600.0)
        if often := {pod: more for pod, more in (self._tries() - tries).items() if more > MOST_TRIES}:
            self._fail([f"nothing happens, and pods that wait are tried again and again: {often}"])
        calm = self._moves()[before:]
        if len(self.server.evicted) > evicted:
            self._fail([f"{PEACE_SECONDS:.0f} s after all have rested, pods still move: {_said(calm)}"])
        here = {moved.move.uid for moved in calm if moved.outcome is MoveOutcome.EVICTED}
        astray = [
            moved
            for moved in calm
            if moved.outcome not in (MoveOutcome.EVICTED, MoveOutcome.LANDED)
            and (moved.move.uid in here or moved.outcome is not MoveOutcome.PENDING)
        ]
        if astray:
            self._fail([f"nothing disturbs moves, and they do not land where they were planned: {_said(astray)}"])
        self.server.met["move in the calm"] += len(here)
        await super()._settle()

    def _tries(self) -> Counter[str]:
        """Return how often pods outside gangs were tried and got no node."""
        tries = sum((replica.told.tries for replica in self.replicas), Counter[str]())
        alone = [name for name, pod in self.server.pods.items() if "job" not in pod["metadata"]["labels"]]
        return Counter({name: tries[name] for name in alone})

    def _moves(self) -> list[PodMoved]:
        return [moved for replica in self.replicas for moved in replica.told.moves]


def _said(moves: Iterable[PodMoved]) -> str:
    """Return what became of which moves."""
    return "; ".join(
        f"{each.move.pod} from {each.move.source} to {each.move.target}: {each.outcome.value} {each.note}".rstrip()
        for each in moves
    )
