"""The base classes of filter and score plugins, for Kubernetes' rules and compiled policy clauses.

Plugins have no state. They cache what they derive from a pod's template in `template.memo`, and return what they derive
from a pod and the cluster from `pre_filter` / `pre_score`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import Enum, Flag, auto
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kube_policy_scheduler.cluster.counter_kinds import Counter
from kube_policy_scheduler.cluster.domains import Topology
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.quotas.quota_usage import AwaitedPods
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.status import Rejection, Status


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


class Reads(Flag):
    """What the results of a plugin follow from, besides static facts of each node, which all plugins may read.

    From it follows how long results are kept, what invalidates them, and which templates share them (`declare`).
    """

    NOTHING = 0
    SPEC = auto()
    """The spec of the pod's template, without what its containers and the pod request."""
    REQUESTS = auto()
    """What the template requests."""
    LABELS = auto()
    """The template's labels, namespace and owner."""
    IMAGES = auto()
    """How many nodes have each image of the template."""
    PODS = auto()
    """What changes when pods come to or leave that very node, and what the node offers to them."""
    METRICS = auto()
    """Readings of metrics, one for each node."""
    FEASIBLE = auto()
    """Which nodes are feasible."""
    POD = auto()
    """The pod beyond its template: its name, its claims, how long it has been queued."""
    VOLUMES = auto()
    """The pod's volumes: the plugin is asked about every pod that has some."""
    CLOCK = auto()
    ELSEWHERE = auto()
    """Other nodes, pods there, and objects that are not nodes."""


_OF_TEMPLATES = Reads.SPEC | Reads.REQUESTS | Reads.LABELS
_ALWAYS_NEW = Reads.POD | Reads.VOLUMES | Reads.CLOCK | Reads.ELSEWHERE


def scope_of(reads: Reads) -> Scope:
    """Return how long results may be kept that follow from this."""
    if reads & _ALWAYS_NEW:
        return Scope.CLUSTER
    by_row, metrics = bool(reads & Reads.PODS), bool(reads & Reads.METRICS)
    if reads & Reads.FEASIBLE:
        return Scope.CLUSTER if by_row else Scope.FEASIBLE
    if metrics:
        return Scope.ROW_SIGNAL if by_row else Scope.SIGNAL
    return Scope.ROW if by_row else Scope.TEMPLATE


class Ready(msgspec.Struct, frozen=True):
    """PreFilter succeeded; `state` is passed to the plugin's `filter` and `rejections`."""

    state: Any = None
    nodes: frozenset[str] | None = None
    """Names of the only nodes to consider; None means all."""
    adds: bool = True
    """For a score: False if it is 0 on every node, so that it is not added."""
    key: Hashable = None
    """With all scopes but CLUSTER: the key of the cached results. Templates with equal keys share them. None: it
    follows from what the plugin reads: all share the results if it reads nothing of templates, else none do."""


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


WhereItFits: TypeAlias = "tuple[Callable[[Frame], BoolArray], ...] | None"
FilterOne: TypeAlias = Callable[[Frame, Any, int], bool]
ScoreOne: TypeAlias = Callable[[Frame, Any, int], float]


class Plugin:
    """What every plugin declares. The defaults promise nothing, so that the plugin is asked whenever it may matter."""

    name: str
    """kube-scheduler's name of the plugin, or the name of the clause."""
    reads: Reads = Reads.ELSEWHERE
    """What the results follow from; the next four follow from it, see `declare`."""
    scope: Scope = Scope.CLUSTER
    """How long the results are kept."""
    default: Default | None = None
    """The place in kube-scheduler's default profile; None: it has none."""
    by_shape = False
    """With other scopes than CLUSTER: whether it reads neither requests nor labels. While a template requests native
    resources alone, what PreFilter and PreScore return follows from its `shape`, until the next static change or change
    of images."""
    is_about_volumes = False
    """Whether it is asked about every pod with volumes, whatever `may_filter` and `may_score` say."""
    reads_images = False
    """With other scopes than CLUSTER: whether the key that PreFilter or PreScore returns follows from which nodes have
    which images, and not from the pod's template alone."""
    is_shared = False
    """With other scopes than CLUSTER: whether all templates share the results if no key is given."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "reads" in vars(cls):
            declare(cls, cls.reads)

    def key_of(self, ready: Ready) -> Hashable | None:
        """Return the key by which templates share results; None: they do not."""
        return () if ready.key is None and self.is_shared else ready.key

    def readings(self, frame: Frame) -> Readings:
        """Return what it reads of metrics, with scope SIGNAL, ROW_SIGNAL or FEASIBLE."""
        raise NotImplementedError


def declare(plugin: Plugin | type[Plugin], reads: Reads) -> None:
    """Set what a plugin reads, and what follows from it: of a class of plugins, or of one of a class of several."""
    plugin.reads = reads
    plugin.scope = scope_of(reads)
    plugin.by_shape = not reads & (Reads.REQUESTS | Reads.LABELS | _ALWAYS_NEW)
    plugin.is_about_volumes = bool(reads & Reads.VOLUMES)
    plugin.reads_images = bool(reads & Reads.IMAGES)
    plugin.is_shared = not reads & (_OF_TEMPLATES | Reads.IMAGES | _ALWAYS_NEW)


class FilterPlugin(Plugin):
    """A filter plugin."""

    where_it_fits: WhereItFits = None
    """On nodes that pass NodeResourcesFit, if it ignores no resource, `filter` returns whether all of these hold,
    `bool[rows]`; None: nothing simpler is known."""
    filter_one: FilterOne | None = None
    """`filter_one(frame, state, row)` returns what `filter` does for this row, the only one of the frame; None: there
    is no such form. It takes a tenth of the time that arrays take."""
    counts_nominated: bool = False
    """Whether `filter` counts the nominated pods that come before the pod itself, those on other nodes among them."""

    @property
    def events(self) -> frozenset[ClusterEvent] | None:
        """Return the events that may help a pod that it rejected; None: any event."""
        return None

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """PreFilter: evaluate the pod once, for all rows of the frame, no matter what `frame.rows` contains.

        A Status rejects the pod. With a scope other than CLUSTER, the result depends only on the template, on which
        resources the nodes offer and on how many have each image. The answer for a node then depends on the key of
        the result and on that node only.
        """
        return Ready()

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass. The hot path: no reasons here."""
        raise NotImplementedError

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return why nodes do not pass; a node passes if and only if no rejection applies."""
        raise NotImplementedError

    def may_filter(self, template: PodTemplate) -> bool:
        """With scope CLUSTER: return False if PreFilter skips every pod of the template that has no volumes.

        That holds whatever the cluster is like, and the cycle does not ask the plugin about such pods. Of a template
        that requests native resources alone, this reads nothing but its `shape` and its spec without requests.
        """
        return True

    def filter_key_now(self, frame: Frame, ready: Ready) -> Hashable | None:
        """With scope TEMPLATE: return what the answers for all nodes follow from now; None: it takes all to know.

        Templates with the same key have the same answers until the next static change or change of images.
        """
        return ready.key

    def leaving_key(self, pod: PodInfo) -> Hashable | None:
        """Return what tells placed pods that go away from each other, if it rejects pods as a whole or not at all.

        All nodes pass its `filter`. Its PreFilter looks at which pods are placed, and never at where. Pods with the
        same key count the same: without some of them PreFilter returns what it returns without as many others.
        Preemption asks such a filter once for all nodes with alike victims. None, for every pod: that is not so.
        """
        return None

    def rejects_new_nodes(self, frame: Frame, together: int, awaiting: AwaitedPods | None) -> str | None:
        """Return why it would reject the pod on every node that could be added, None if it might accept one.

        Args:
            frame: of the pod.
            together: how many pods like this one must be placed at once: 1, or what its gang still needs.
            awaiting: counts the other pods that new nodes are wanted for, all in row 0; None: there are none.
        """
        return None

    def delays(self, frame: Frame, other: PodInfo, together: int) -> bool:
        """Return whether it may reject the pod later if another one starts now, though it may run on any node.

        Args:
            frame: of the pod.
            other: the pod that would start.
            together: how many pods like this one are to be placed at once.
        """
        return False


class ScorePlugin(Plugin):
    """A score plugin; its scope also says what the state from `pre_score` depends on."""

    normalizes = False
    """Whether `normalize` does anything; if not, raw scores are final and it is not called."""
    score_one: ScoreOne | None = None
    """`score_one(frame, state, row)` returns what `score` does for this row, the only one of the frame; None: there is
    no such form."""
    resource_score: ScorePlugin | None = None
    """The score of Kubernetes by resources that it equals, of which PreScore returns the state; None: it equals none,
    or only for some nodes."""

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """PreScore: evaluate the pod once; `frame.rows` are feasible (all nodes with a scope other than CLUSTER)."""
        return Ready()

    def score(self, frame: Frame, state: Any) -> IntArray | FloatArray:
        """Return raw scores `[rows]`, higher is better unless `normalize` says otherwise."""
        raise NotImplementedError

    def normalize(self, frame: Frame, state: Any, raw: IntArray | FloatArray) -> IntArray | FloatArray:
        """Return final scores `[rows]` from the raw ones of all feasible nodes (Kubernetes': int 0 to 100)."""
        return raw

    def may_score(self, template: PodTemplate) -> bool:
        """With scope CLUSTER: return False if no pod of the template gets a score other than 0; see `may_filter`."""
        return True

    def score_key_now(self, frame: Frame, ready: Ready) -> Hashable | None:
        """With scope TEMPLATE: return what the normalized scores of all nodes follow from; see `filter_key_now`."""
        return ready.key


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


class ComparesDomains:
    """Base of normalizing score plugins of scope CLUSTER whose raw scores are the same for all nodes of a domain.

    The final scores are whole numbers: 100 for the highest raw one of all feasible nodes, 0 for the lowest, and 0 if
    they are equal.
    """

    def by_domain(self, state: Any) -> tuple[IntArray, IntArray] | None:
        """Return `int64[nodes]`, the domain of each node, and `int64[domains]`, their raw scores.

        None: there are domains of several kinds, whose raw scores add up.
        """
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
