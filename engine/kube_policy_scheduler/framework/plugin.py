"""The protocols of filter and score plugins, for Kubernetes' rules and compiled policy clauses.

Plugins have no state. They cache what they derive from a pod's template in `template.memo`, and return what they derive
from a pod and the cluster from `pre_filter` / `pre_score`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from kube_policy_scheduler.cluster.counter import Counter
from kube_policy_scheduler.cluster.domains import Topology
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.status import Refusal, Status


class Scope(Enum):
    """What the result for one node depends on. The result is cached until that changes."""

    TEMPLATE = "template"
    """The pod's template and static facts of the nodes (`NodeTable.version`, `images_version`) only."""
    ROW = "row"
    """Also on what changes when pods come to or leave that very node (the node table's journal)."""
    SIGNAL = "signal"
    """As TEMPLATE, and on readings of metrics: the plugin has `readings`."""
    ROW_SIGNAL = "row and signal"
    """As ROW, and on readings of metrics."""
    FEASIBLE = "feasible"
    """For scores: as SIGNAL, and on which nodes are feasible. They count as live ones, see `TemplateCache`."""
    CLUSTER = "cluster"
    """Also on other nodes, on the pod beyond its template or on the clock: not cached."""

    @property
    def is_live(self) -> bool:
        """Return whether the plugin runs for each pod."""
        return self is Scope.CLUSTER or self is Scope.FEASIBLE


class Ready(msgspec.Struct, frozen=True):
    """PreFilter succeeded; `state` is passed to the plugin's `filter` and `refusals`."""

    state: Any = None
    nodes: frozenset[str] | None = None
    """Names of the only nodes to consider; None means all."""
    adds: bool = True
    """For a score: False if it is 0 on every node, so that it is not added."""
    key: Hashable = None
    """With all scopes but CLUSTER: the key of the cached results. Templates with equal keys share them. None: results
    are not shared between templates."""


class Skip(Enum):
    """Skip: the plugin does not apply to this pod."""

    SKIP = "skip"


SKIP: Final = Skip.SKIP
PreFilterResult: TypeAlias = Ready | Skip | Status


class Default(NamedTuple):
    """The position of a plugin in kube-scheduler's default profile."""

    position: int
    """Filters and scores run in this order (`getDefaultPlugins`)."""
    weight: int = 0
    """Of its scores."""
    is_ours: bool = False
    """Whether kube-scheduler lacks this plugin."""
    needed_by_kubelet: bool = False
    """Whether the kubelet rejects pods on nodes that this filter rejects, or cannot start them."""


class Readings(NamedTuple):
    """What a plugin reads of metrics."""

    states: Sequence[object]
    """The same objects as before while the metrics have the same values on all nodes that did not change."""
    until: float
    """Unix seconds. Before, they are the same for frames with the same `signals`, unless an identity of a node changes
    (see `NodeTable.identity_version`)."""


class ReadsMetrics(Protocol):
    """A plugin of scope SIGNAL, ROW_SIGNAL or FEASIBLE."""

    def readings(self, frame: Frame) -> Readings:
        """Return what it reads."""
        ...


FilterOne: TypeAlias = Callable[[Frame, Any, int], bool]
"""The optional method `filter_one(frame, state, row)` of a filter: what `filter` returns for this row, the only one of
the frame. Where the attribute is None, there is no such method.

For one node it takes a tenth of the time that arrays take."""
ScoreOne: TypeAlias = Callable[[Frame, Any, int], float]
"""The optional method `score_one(frame, state, row)` of a score: what `score` returns for this row."""


KeyNow: TypeAlias = Callable[[Frame, Any], Hashable | None]
"""The optional methods `filter_key_now(frame, state)` and `score_key_now(frame, state)` of plugins of scope TEMPLATE.

Templates for which it returns the same value have the same answers on every node now, until the next static change or
change of images; with a score, the same normalized ones. None: it takes all nodes to know."""


class EqualsResourceScore(Protocol):
    """A score that equals one of Kubernetes by resources: the state that PreScore returns is that score's."""

    @property
    def resource_score(self) -> ScorePlugin | None:
        """Return that score; None: it equals none, or only for some nodes."""
        ...


WhereItFits: TypeAlias = "tuple[Callable[[Frame], BoolArray], ...] | None"
"""The optional attribute `where_it_fits` of a filter. On nodes that pass NodeResourcesFit, if it ignores no resource,
`filter` returns whether all of these hold, `bool[rows]`; None: nothing simpler is known."""


BY_SHAPE = "by_shape"
"""The optional attribute of plugins of other scopes than CLUSTER that do not look at requests.

While a template requests native resources alone, what PreFilter and PreScore return follows from its `shape`, until the
next static change or change of images."""

READS_IMAGES = "reads_images"
"""The optional attribute of plugins of other scopes than CLUSTER: True where the key that PreFilter or PreScore returns
follows from which nodes have which images, and not from the pod's template alone."""

MayApply: TypeAlias = Callable[[PodTemplate], bool]
"""The optional methods `may_filter(template)` and `may_score(template)` of plugins that run for each pod.

`may_filter` returns False if PreFilter skips every pod of the template that has no volumes, whatever the cluster is
like; `may_score`, if no pod of the template gets a score other than 0. The cycle does not ask the plugin about them.
Of a template that requests native resources alone, they read nothing but its `shape` and its spec without requests.
Nor does it ask about pods with volumes, unless the plugin has the attribute `is_about_volumes`."""


LeavingKey: TypeAlias = Callable[[PodInfo], Hashable]
"""The optional method `leaving_key(pod)` of filters that refuse a pod as a whole or not at all.

All nodes pass their `filter`. Their PreFilter looks at which pods are placed, and never at where. Pods for which it
returns the same value count the same: without some of them PreFilter returns what it returns without as many others.
The attribute is None where that is not so. Preemption asks such a filter once for all nodes with alike victims."""


class FilterPlugin(Protocol):
    """A filter plugin."""

    @property
    def name(self) -> str:
        """Return kube-scheduler's plugin name, or the clause's name."""
        ...

    @property
    def scope(self) -> Scope:
        """Return what the results depend on."""
        ...

    @property
    def events(self) -> frozenset[ClusterEvent] | None:
        """Return the events that may help a pod that this plugin rejected; None: any event."""
        ...

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """PreFilter: evaluate the pod once, for all rows of the frame, no matter what `frame.rows` contains.

        A Status rejects the pod. With a scope other than CLUSTER, the result depends only on the template, on which
        resources the nodes offer and on how many have each image. The answer for a node then depends on the key of
        the result and on that node only.
        """
        ...

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass. The hot path: no reasons here."""
        ...

    def refusals(self, frame: Frame, state: Any) -> Sequence[Refusal]:
        """Return why nodes do not pass; a node passes if and only if no refusal applies."""
        ...


class ScorePlugin(Protocol):
    """A score plugin."""

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
        """PreScore: evaluate the pod once; `frame.rows` are feasible (all nodes with a scope other than CLUSTER)."""
        ...

    def score(self, frame: Frame, state: Any) -> IntArray | FloatArray:
        """Return raw scores `[rows]`, higher is better unless `normalize` says otherwise."""
        ...

    def normalize(self, frame: Frame, state: Any, raw: IntArray | FloatArray) -> IntArray | FloatArray:
        """Return final scores `[rows]` from the raw ones of all feasible nodes (Kubernetes': int 0 to 100)."""
        ...


class ScoresByHighest:
    """Base of normalizing plugins whose raw scores are whole numbers of at least 0, and compared with the highest."""

    def scaled(self, raw: IntArray, *, highest: int) -> IntArray:
        """Return `int64[n]`: the final scores; `highest` is the highest raw score of the feasible nodes."""
        raise NotImplementedError


class ScoresByCount:
    """Base of score plugins of scope CLUSTER that follow from the counted pods of each node."""

    def counter(self, frame: Frame) -> Counter:
        """Return what counts the pods."""
        raise NotImplementedError

    def of_counts(self, counts: FloatArray, *, most: float, fewest: float) -> FloatArray:
        """Return `float64[n]`: the scores of nodes by their pods; feasible nodes have `fewest` to `most`."""
        raise NotImplementedError


class ScoresByDomain:
    """Base of score plugins of scope CLUSTER that are the same for all nodes of a domain."""

    def counter(self, frame: Frame) -> Counter:
        """Return what counts the pods."""
        raise NotImplementedError

    def domains(self, frame: Frame) -> tuple[Topology, FloatArray]:
        """Return the domains, and `float64[slots]`, the pods that count in each."""
        raise NotImplementedError

    def of_domains(self, frame: Frame, domains: Topology, counts: FloatArray, feasible: BoolArray) -> FloatArray:
        """Return `float64[slots]`: the scores by domain; `feasible`, `bool[slots]`, says which has a feasible node."""
        raise NotImplementedError


class Weighted(msgspec.Struct, frozen=True):
    """A score plugin and its weight in the total."""

    plugin: ScorePlugin
    weight: float = 1
