"""A world of parts that can be left out, and the decision in what is left of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.tooling.capture.verdict import Verdict, verdict
from kube_policy_scheduler.tooling.cluster_state import world
from kube_policy_scheduler.tooling.why.filters import refusals


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that one decision is made from."""

    pod: objects.Pod
    """As it waits."""
    nodes: tuple[objects.Node, ...]
    placed: tuple[objects.Pod, ...]
    """Pods that are on nodes, or nominated to them."""
    others: tuple[Any, ...]
    rules: Rules
    signals: Signals = Signals.EMPTY
    now: float = 0.0
    """Unix seconds."""
    seed: int = 0
    trials: list[int] = field(default_factory=lambda: [0], compare=False)
    """How many decisions were made so far; shared by all parts of one scene."""

    @classmethod
    def of(cls, things: Iterable[Any], pod: objects.Pod, rules: Rules, *, seed: int, now: float) -> Scene:
        """Return the scene that API objects make; pods that are done or have no place are not part of it."""
        nodes: list[objects.Node] = []
        placed: list[objects.Pod] = []
        others: list[Any] = []
        for thing in things:
            match thing:
                case objects.Node():
                    nodes.append(thing)
                case objects.Pod():
                    terminal = thing.status.phase in ("Succeeded", "Failed")
                    if not terminal and (thing.spec.node_name or thing.status.nominated_node_name) and thing is not pod:
                        placed.append(thing)
                case _:
                    others.append(thing)
        nodes.sort(key=lambda node: node.metadata.name)
        placed.sort(key=lambda one: (one.metadata.namespace, one.metadata.name))
        return cls(pod, tuple(nodes), tuple(placed), tuple(others), rules, seed=seed, now=now)

    def with_nodes(self, kept: Sequence[objects.Node]) -> Scene:
        """Return the scene with some of the nodes, and the pods on them."""
        names = {node.metadata.name for node in kept}
        placed = tuple(pod for pod in self.placed if _node_of(pod) in names)
        return replace(self, nodes=tuple(kept), placed=placed)

    def with_placed(self, kept: Sequence[objects.Pod]) -> Scene:
        """Return the scene with some of the pods."""
        return replace(self, placed=tuple(kept))

    def with_others(self, kept: Sequence[Any]) -> Scene:
        """Return the scene with some of the other objects."""
        return replace(self, others=tuple(kept))

    def inputs(self) -> DecisionInputs:
        """Return the decision to be made."""
        made = world((*self.others, *self.nodes, *self.placed)).cluster
        return DecisionInputs.of(self.pod, made, self.rules, signals=self.signals, now=self.now, seed=self.seed)

    def verdict(self) -> Verdict:
        """Decide."""
        self.trials[0] += 1
        return verdict(self.inputs())

    def by_relevance(self) -> tuple[list[objects.Node], int]:
        """Return the nodes with those first that probably matter, and how many these are.

        These are the host and the next node, for each score the nodes that it likes most and least, as these define
        a normalised score, for each filter one node that it refuses, and for the main reason of a pod that fits
        nowhere a node on which nothing else is in the way.
        """
        inputs = self.inputs()
        asked = refusals(inputs)
        made = asked.evaluation
        table = inputs.cluster.nodes
        rows: dict[int, None] = {}
        chosen = self.verdict()
        for name in (chosen.host, chosen.next, chosen.evicted[0] if chosen.evicted else None):
            if name is not None:
                rows[table.rows[name]] = None
        diagnosis = made.diagnosis
        for index in range(len(diagnosis.plugins)):
            refused = np.flatnonzero(diagnosis.first == index)
            if len(refused):
                rows[_first_by_name(refused.tolist(), table.names)] = None
        main = asked.dominant() if chosen.host is None else None
        if main is not None:
            alone = asked.obstacles[main] & (asked.count == 1) if main in asked.obstacles else np.zeros(0, np.bool_)
            found = np.flatnonzero(alone).tolist()
            rows.update(dict.fromkeys([_first_by_name(found, table.names)] if found else asked.nearest(1)))
        if len(made.feasible):
            for scores in made.scores.values():
                rows[int(made.feasible[int(np.argmin(scores))])] = None
                rows[int(made.feasible[int(np.argmax(scores))])] = None
        first = len(rows)
        ranked = made.feasible[np.argsort(-made.totals, kind="stable")].tolist() if len(made.feasible) else []
        rows.update(dict.fromkeys(int(row) for row in ranked))
        rows.update(dict.fromkeys(asked.nearest(table.size)))
        return [table.infos[row].node for row in rows], first


def _first_by_name(rows: Sequence[int], names: Sequence[str]) -> int:
    return min(rows, key=lambda row: names[row])


def _node_of(pod: objects.Pod) -> str:
    return pod.spec.node_name or pod.status.nominated_node_name
