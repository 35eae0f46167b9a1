"""The inputs of one evaluation: a pod, the cluster, and rows of its node table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, IntArray, Rows
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.quotas.guarantees import Parts
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.extremes import Extremes
from kube_policy_scheduler.times import Steady


class DeviceOrder(Protocol):
    """A policy's `devices by`; compared by identity."""

    @property
    def text(self) -> str:
        """Return it as written."""

    @property
    def rule(self) -> str | None:
        """Return the word of a `DeviceRule`; None for values of the devices."""

    @property
    def keys(self) -> Callable[[Any], Sequence[tuple[Any, ...]]] | None:
        """Return what takes a `DeviceFrame` and returns what each device sorts by; None for a rule."""

    @property
    def values(self) -> tuple[tuple[str, Callable[[Any], Sequence[Any]]], ...]:
        """Return the values by their text; NaN or None is missing."""


class Frame(msgspec.Struct, frozen=True):
    """The inputs of a decision.

    Everything per node is read as `column[frame.rows]`, so the same code looks at all nodes, at the nodes that
    changed since the last decision, or at a single one.
    """

    pod: PodInfo
    cluster: Cluster
    now: float
    """Unix seconds by the wall clock."""
    rows: Rows = ALL_ROWS
    signals: Signals = Signals.EMPTY
    queued: float = 0.0
    """Unix seconds at which the pod first entered the queue."""
    attempts: int = 0
    """Attempts to schedule the pod before this one."""
    entitled: float | None = None
    """Unix seconds since which it could be guaranteed by its queue, and was rejected; None: since it was queued."""
    device_order: DeviceOrder | None = None
    """What selects among the devices of a node for claims; None: kube-scheduler's order."""
    groups: tuple[Hashable, ...] = ()
    """The gangs of the pod, whose members may use each other's claims before these are written."""
    extremes: Extremes | None = None
    """The extremes of all feasible nodes, to find or to use; None: the rows are all feasible nodes."""
    ahead: float = 0.0
    """By how many seconds the wall clock is ahead of the steady one, because it was set."""
    together: Parts = ()
    """What the pods count for, by queue, that need room at once, itself among them: of a gang, those without a place
    that it needs. Empty: it is alone, or nobody asks."""

    @property
    def steady(self) -> Steady:
        """Return the moment for whatever is to last some seconds; `now` may go back."""
        return Steady(self.now - self.ahead)

    @property
    def template(self) -> PodTemplate:
        """Return the pod's template."""
        return self.pod.template

    @property
    def size(self) -> int:
        """Return the number of rows of this frame."""
        return self.cluster.nodes.size if isinstance(self.rows, slice) else len(self.rows)

    @property
    def only_row(self) -> int:
        """Return the row of a frame that has one."""
        assert not isinstance(self.rows, slice)
        return int(self.rows.item())

    def at(self, rows: Rows) -> Frame:
        """Return the same inputs with other rows."""
        return Frame(
            self.pod,
            self.cluster,
            self.now,
            rows,
            self.signals,
            self.queued,
            self.attempts,
            self.entitled,
            self.device_order,
            self.groups,
            self.extremes,
            self.ahead,
            self.together,
        )

    def within(self, extremes: Extremes) -> Frame:
        """Return the same inputs, for scores that compare nodes with all feasible ones."""
        return msgspec.structs.replace(self, extremes=extremes)

    def ordered(self, order: DeviceOrder | None) -> Frame:
        """Return the same inputs with another order of devices."""
        return msgspec.structs.replace(self, device_order=order)

    def index(self) -> IntArray:
        """Return the row numbers of this frame, `int64[rows]`."""
        if isinstance(self.rows, slice):
            return np.arange(self.cluster.nodes.size, dtype=np.int64)
        return self.rows
