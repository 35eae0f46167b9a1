"""Queues that show what `order by` says: pairs of pods that differ in what one key reads. Runs no case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import checked
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.tooling.first_test.genes import Genes
from kube_policy_scheduler.tooling.first_test.scene import case_form
from kube_policy_scheduler.tooling.first_test.values import Place, World
from kube_policy_scheduler.tooling.tester.short_forms import Json

_MORE: Mapping[Place, Any] = {("pod", "queued"): 600, ("pod", "priority"): 1000}
"""What is tried beside the values of genes, which come from the policy's constants."""
_FIRST, _SECOND = "first", "second"


@dataclass(frozen=True, slots=True)
class Queue:
    """Two pods, the one whose turn comes first in front."""

    name: str
    frames: tuple[Frame, Frame]
    pods: tuple[Json, Json]
    queued_seconds: tuple[int, int]

    def case(self) -> Json:
        """Return the case, the pods in the order in which they do not get their turns."""
        waiting = [
            {"pod": {"name": name, **pod}, **({"queued": f"{seconds}s"} if seconds else {})}
            for name, pod, seconds in zip((_FIRST, _SECOND), self.pods, self.queued_seconds, strict=True)
        ]
        return {"name": self.name, "queue": waiting[::-1], "expect": {"turns": [_FIRST, _SECOND]}}


def queues(policy: Policy, genes: Genes, *, start: World, frame_of: Callable[[World], Frame | None]) -> Iterator[Queue]:
    """Yield a queue for each key of `order by` that tells two pods apart.

    Args:
        policy: whose pods they are.
        genes: what can be varied.
        start: a world whose pod the policy governs and does not hold.
        frame_of: from a world to the inputs of its decision; None where it is no world.
    """
    order = policy.order
    ordering = next((c for c in policy.compiled.checked.clauses if isinstance(c, checked.Ordering)), None)
    if order is None or ordering is None:
        return
    for key, _ in ordering.keys:
        places = [place for place in genes.read_by(key) if place in genes.genes and place[0] == "pod"]
        worlds = [start, *({**start, place: value} for place in places for value in genes.genes[place].values)]
        worlds += [{**start, place: _MORE[place]} for place in places if place in _MORE]
        seen: dict[tuple[object, ...], tuple[World, Frame]] = {}
        for world in worlds:
            frame = frame_of(world)
            if frame is not None and policy.governs(frame) and policy.hold_reason(frame) is None:
                seen.setdefault(order(frame), (world, frame))
        if len(seen) > 1:
            ends = (seen[min(seen)], seen[max(seen)])
            forms = [case_form(world, topologies=genes.topologies) for world, _ in ends]
            yield Queue(
                f"order by: {' '.join(key.span.text.split())}",
                (ends[0][1], ends[1][1]),
                (forms[0].pod, forms[1].pod),
                (forms[0].queued_seconds, forms[1].queued_seconds),
            )
