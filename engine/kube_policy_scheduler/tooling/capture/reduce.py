"""Nodes, pods and other objects that do not matter, taken out of a scene; each step is decided again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.tooling.capture.ddmin import grown, minimised
from kube_policy_scheduler.tooling.capture.scene import Scene
from kube_policy_scheduler.tooling.capture.verdict import Verdict

Progress = Callable[[str], None]
"""Called before each trial with what is tried."""
FEW_NODES = 24
"""More nodes than these are too many for a test that people read: then the margin may become another."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of a scene."""

    scene: Scene
    verdict: Verdict
    same_margin: bool
    """Whether the best node is as far ahead as it was."""


def reduced(scene: Scene, *, progress: Progress = lambda text: None) -> Reduced:
    """Return the smallest scene found with the same decision.

    The same is: the same node, with the same one next to it and as far ahead, or the same main reason; and each
    filter that refused any node still refuses one. Where that takes more than a few nodes, how far ahead may change.
    """
    wanted = scene.verdict()
    same_margin = True

    def same(part: Scene) -> bool:
        progress(f"{len(part.nodes)} nodes, {len(part.placed)} pods: trial {scene.trials[0] + 1}")
        return part.verdict().repeats(wanted, margin=same_margin)

    ordered, first = scene.by_relevance()
    left = _fewer_nodes(scene, ordered, same, first=first)
    if len(left.nodes) > FEW_NODES and wanted.margin:
        same_margin = False
        left = _fewer_nodes(scene, ordered, same, first=first)
    left = _fewer_others(left, same)
    left = _fewer_pods(left, same)
    if len(left.nodes) > 1:  # what only counted for a pod that is gone by now
        left = left.with_nodes(minimised(left.nodes, lambda part: same(left.with_nodes(part))))
    return Reduced(left, left.verdict(), same_margin)


def _fewer_nodes(scene: Scene, ordered: Sequence[objects.Node], same: Callable[[Scene], bool], *, first: int) -> Scene:
    def holds(part: Sequence[objects.Node]) -> bool:
        return same(scene.with_nodes(part))

    return scene.with_nodes(minimised(grown(ordered, holds, first=first), holds))


def _fewer_others(scene: Scene, same: Callable[[Scene], bool]) -> Scene:
    kinds: dict[str, list[Any]] = {}
    for thing in scene.others:
        kinds.setdefault(type(thing).__name__, []).append(thing)
    kept = minimised(
        list(kinds.values()), lambda part: same(scene.with_others([thing for group in part for thing in group]))
    )
    flat = [thing for group in kept for thing in group]
    return scene.with_others(minimised(flat, lambda part: same(scene.with_others(part))))


def _fewer_pods(scene: Scene, same: Callable[[Scene], bool]) -> Scene:
    """Leave out all pods of a node first, then single ones."""
    groups: dict[str, list[objects.Pod]] = {}
    for pod in scene.placed:
        groups.setdefault(pod.spec.node_name or pod.status.nominated_node_name, []).append(pod)
    kept = minimised(
        list(groups.values()), lambda part: same(scene.with_placed([pod for group in part for pod in group]))
    )
    flat = [pod for group in kept for pod in group]
    return scene.with_placed(minimised(flat, lambda part: same(scene.with_placed(part))))
