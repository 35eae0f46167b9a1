"""Which plugins serve a pod, in which order and with which weights."""

from __future__ import annotations

from dataclasses import dataclass

from engine.framework.plugin import FilterPlugin, Weighted


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """The plugins of one policy (or of plain Kubernetes); compared by identity."""

    name: str
    filters: tuple[FilterPlugin, ...] = ()
    """In the order in which they are asked; the first refusal of a node is the one reported."""
    scores: tuple[Weighted, ...] = ()
    preempts: bool = True
    """Whether a pod that fits nowhere may have others evicted (`preempt never` says no)."""
