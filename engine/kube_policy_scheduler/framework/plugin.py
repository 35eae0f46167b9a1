"""The protocols that filters and scores serve; Kubernetes' rules and compiled policy clauses alike.

All plugins are values without state of their own: what they derive from a pod's template they keep in
`template.memo`, what they derive from a pod and the cluster they return from `pre_filter` / `pre_score`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.status import Refusal, Status


class Scope(Enum):
    """What an answer about one node depends on, so that it may be kept until that changes."""

    TEMPLATE = "template"
    """The pod's template and static facts of the nodes (`NodeTable.version`, `images_version`) only."""
    ROW = "row"
    """Also on what changes when pods come to or leave that very node (the node table's journal)."""
    CLUSTER = "cluster"
    """On other nodes too, on the pod itself beyond its template, on signals or on the clock: ask each time."""


@dataclass(frozen=True, slots=True)
class Ready:
    """PreFilter has no objection; `state` is handed to the plugin's `filter` and `refusals`."""

    state: Any = None
    nodes: frozenset[str] | None = None
    """Names of the only nodes that can be meant; None means all."""
    adds: bool = True
    """Of a score: False where it is 0 on every node, so that it need not be added."""
    key: Hashable = None
    """What the answers on all nodes follow from, with scope TEMPLATE and ROW: templates with equal keys share what
    is kept. None: nothing is shared, as the answers follow from the template in some other way."""


class Skip(Enum):
    """The plugin has nothing to say about this pod."""

    SKIP = "skip"


SKIP = Skip.SKIP
PreFilterResult: TypeAlias = Ready | Skip | Status


class Default(NamedTuple):
    """Where a plugin stands in kube-scheduler's default profile."""

    position: int
    """Filters and scores are asked in this order (`getDefaultPlugins`)."""
    weight: int = 0
    """Of its scores."""
    is_ours: bool = False
    """Whether kube-scheduler has no such plugin."""


class FilterPlugin(Protocol):
    """A rule that nodes pass or not."""

    @property
    def name(self) -> str:
        """Return kube-scheduler's plugin name, or the clause's name."""
        ...

    @property
    def scope(self) -> Scope:
        """Return what the answers depend on."""
        ...

    @property
    def events(self) -> frozenset[ClusterEvent] | None:
        """Return the events after which a pod that it refused may fit; None: any may."""
        ...

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Look at the pod once; all rows of the frame are meant, whatever `frame.rows` says.

        A Status refuses the pod as a whole. With scope TEMPLATE or ROW the answer depends on the template alone
        and is asked for once per template and node-table version.
        """
        ...

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass. The hot path: no reasons here."""
        ...

    def refusals(self, frame: Frame, state: Any) -> Sequence[Refusal]:
        """Return why nodes do not pass; a node passes exactly where no refusal applies."""
        ...


class ScorePlugin(Protocol):
    """A preference among nodes."""

    @property
    def name(self) -> str:
        """Return kube-scheduler's plugin name, or the clause's name."""
        ...

    @property
    def scope(self) -> Scope:
        """Return what `score` (and the state from `pre_score`) depends on."""
        ...

    @property
    def normalizes(self) -> bool:
        """Return whether `normalize` does anything; if not, raw scores are final and it is not called."""
        ...

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Look at the pod once; `frame.rows` are the feasible nodes (all nodes with scope TEMPLATE or ROW)."""
        ...

    def score(self, frame: Frame, state: Any) -> IntArray | FloatArray:
        """Return raw scores `[rows]`, higher is better unless `normalize` says otherwise."""
        ...

    def normalize(self, frame: Frame, state: Any, raw: IntArray | FloatArray) -> IntArray | FloatArray:
        """Return final scores `[rows]` from the raw ones of all feasible nodes (Kubernetes': int 0 to 100)."""
        ...


@dataclass(frozen=True, slots=True)
class Weighted:
    """A score plugin and its weight in the total."""

    plugin: ScorePlugin
    weight: float = 1
