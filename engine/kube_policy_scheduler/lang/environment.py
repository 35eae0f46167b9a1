"""What a policy may name: fields and builtins, as one value handed to the checker.

The language itself knows none of them, and nothing registers itself: they are collected from a package.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.lang.signature import Builtin, FloatColumn, TypeSpec, takes
from kube_policy_scheduler.lang.statements import PODS, WORKLOADS
from kube_policy_scheduler.lang.types import Depends, Info, Kind, Shape, Type, resource_unit


class Frame(Protocol):
    """What one evaluation reads; opaque here except for its rows of the node table."""

    @property
    def size(self) -> int:
        """Return how many rows it looks at."""
        ...

    @property
    def rows(self) -> slice | NDArray[np.int64]:
        """Return which rows it looks at."""
        ...

    def index(self) -> NDArray[np.int64]:
        """Return the numbers of the rows that it looks at."""
        ...

    def at(self, rows: slice | NDArray[np.int64]) -> Frame:
        """Return the same inputs with other rows."""
        ...


class TextChanges(Protocol):
    """A journal of the places in a list of texts that have another text than before."""

    @property
    def end(self) -> int:
        """Return the position after the last change."""
        ...

    def since(self, position: int) -> Sequence[int] | None:
        """Return the places that changed after a position; None if that is too long ago to know."""
        ...


class Texts(NamedTuple):
    """One text per row, dictionary coded."""

    codes: NDArray[np.int32]
    """`int32[rows]`, an index into `values`; -1 is absent."""
    values: list[str]
    places: dict[str, int]
    """The index of each text in `values`."""
    changes: TextChanges | None = None
    """Of a column that is kept: what changes in `values`. What follows from the texts is kept by this."""


class Lists:
    """One list of texts per row, dictionary coded: many nodes have the same taints."""

    __slots__ = ("codes", "values")

    def __init__(self, codes: NDArray[np.int32], values: Sequence[tuple[str, ...]]) -> None:
        self.codes = codes
        """`int32[rows]`, an index into `values`."""
        self.values = values

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> tuple[str, ...]:
        return self.values[int(self.codes[row])]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return (self.values[code] for code in self.codes.tolist())


class Key(Enum):
    """What a field takes as its key."""

    RESOURCE = "resource"
    LABEL = "label key"
    ANNOTATION = "annotation key"
    CONDITION = "condition"


class Field(msgspec.Struct, frozen=True):
    """A named value that a policy reads, such as `node.free.cpu`: `node.free` with a resource as key."""

    path: str
    doc: str
    gives: TypeSpec
    shape: Shape
    depends: Depends
    key: Key | None
    read: Callable[..., Any]
    """Takes the frame, and the key if there is one."""
    low: float
    high: float
    foreign: tuple[str, ...] = ()
    """Words of other languages for it after the first dot, in lower case."""
    advice: str = ""
    """What to write for those."""
    over_time: Callable[[Any], Any] | None = None
    """From a frame to a `Line` (`compiling.over_time`), where the value changes as time passes."""
    key_words: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """Of keys whose texts are known: all that they can be."""

    def info(self, key: str | None) -> Info:
        """Return what is known of the value; of a resource, by its Kubernetes name."""
        if self.gives.per_resource:
            unit = resource_unit(key or "")
            kind = Type(Kind.NUMBER, unit)
        else:
            kind = Type(self.gives.kind, self.gives.unit or Type(Kind.NUMBER).unit, self.gives.item)
        words = frozenset(self.key_words.get(key or "", self.gives.words)) or None
        return Info(kind, self.shape, self.gives.maybe, self.depends, self.low, self.high, words=words)

    @property
    def written(self) -> str:
        """Return the path as written in policies."""
        return f"{self.path}.{self.key.name}" if self.key else self.path


def node_field(
    path: str,
    *,
    depends: Depends,
    key: Key | None = None,
    low: float = -1e308,
    high: float = 1e308,
    foreign: tuple[str, ...] = (),
    advice: str = "",
    over_time: Callable[[Any], Any] | None = None,
    key_words: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Callable[[Callable[..., Any]], Field]:
    """Make a field with one value per node from an annotated reader; see `Field`."""

    def make(function: Callable[..., Any]) -> Field:
        gives = takes(inspect.get_annotations(function, eval_str=True)["return"])
        doc, said = inspect.getdoc(function) or "", advice or f"write `{path}`"
        return Field(
            path, doc, gives, Shape.NODE, depends, key, function, low, high, foreign, said, over_time, key_words
        )

    return make


def pod_field(path: str, *, depends: Depends = Depends.TEMPLATE, **facts: Any) -> Callable[[Callable[..., Any]], Field]:
    """Make a field of the pod from an annotated reader.

    One that depends on the template alone reads nothing of the frame but `frame.template`: it then also serves
    for pods that already run, in `count(p in node.pods where p.…)`.
    """
    make = node_field(path, depends=depends, **facts)
    return lambda function: msgspec.structs.replace(make(function), shape=Shape.DECISION)


class Pods(Protocol):
    """Goes over existing pods and nodes on behalf of aggregates and spread; backed by indexes, not by scans."""

    def count(
        self, frame: Any, members: Members, *, topology: str | None, on: OnNodes | None = None
    ) -> FloatColumn | float:
        """Return how many members are in each row's domain. on: the nodes whose pods count; None: all."""
        ...

    def fold(
        self,
        frame: Any,
        members: Members,
        value: Members,
        *,
        function: str,
        topology: str | None,
        on: OnNodes | None = None,
    ) -> FloatColumn | float:
        """Return sum, min, max, avg or distinct of a value over the members in each row's domain; NaN where there are
        none and the function has no value for none. on: as of `count`."""
        ...

    def fold_of_nodes(
        self, frame: Any, members: Members, column: Any, *, function: str, topology: str | None, on: OnNodes | None
    ) -> FloatColumn | float:
        """Return what `fold` does of a value of the node of each member.

        column: `float64[nodes]`, or a text for each node. on: as of `count`.
        """
        ...

    def fold_nodes(self, frame: Any, fold: NodeFold, captured: tuple[Any, ...]) -> Any:
        """Return what an aggregate over nodes gives: one value, or one for each row by its domain."""
        ...


class OnNodes(NamedTuple):
    """Some nodes, for aggregates over the pods there."""

    rows: NDArray[np.bool_]
    """`bool[nodes]`"""
    name: Hashable
    """The same for the same condition with the same captured values."""


class NodeFold(msgspec.Struct, frozen=True, eq=False):
    """An aggregate over nodes; what it gives for the same captured values changes only with the nodes."""

    function: str
    """count, distinct, sum, min, max, avg, any or all."""
    topology: str
    """Label key of the domains; "*" is the cluster."""
    value: Callable[[Any], Any] | None
    """Takes a `CapturingFrame` and returns a column: of truth for any and all, else of numbers or texts."""
    where: Callable[[Any], Any] | None
    """Takes a `CapturingFrame` and returns `bool[rows]`."""
    changes_by_row: bool
    """Whether the value of a node changes only with that node, which the node table reports."""


class CapturingFrame:
    """A frame, with what an expression captures from the decision."""

    __slots__ = ("_frame", "captured")

    def __init__(self, frame: Frame, captured: tuple[Any, ...]) -> None:
        self._frame = frame
        self.captured = captured

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)


class StateReads(msgspec.Struct, frozen=True):
    """What an expression over existing pods reads of their state: ready, started, restarts, for how long running."""

    thresholds: tuple[float, ...] | None
    """Seconds that running times are compared with, ascending; None if they or restarts are used in another way."""
    is_running: bool = False
    """Whether it is the running time itself."""
    restarts: tuple[float, ...] = ()
    """What numbers of restarts are compared with, ascending."""


@dataclass(frozen=True, slots=True)
class Members:
    """A set of pods, or a value of pods, that follows from the template and from values of the decision.

    Comparable: the same expression with the same captured values is the same set.
    """

    expression: Any
    """What it was compiled from; compared by identity."""
    captured: tuple[Any, ...]
    test: Callable[[Any], Any] = field(compare=False)
    """Takes an `Item`."""
    by: Callable[[Any], Any] | None = field(default=None, compare=False)
    """Takes an `Item` and returns what equals one of the captured values for all pods of the set; None: not known."""
    state: StateReads | None = field(default=None, compare=False)
    """What it reads of the state of pods; None: only their template."""
    by_at: int = field(default=0, compare=False)
    """Which captured value `by` is about."""
    own: frozenset[tuple[str, str | None]] = field(default=frozenset(), compare=False)
    """What it reads of pods that differs between those of one template: the paths of fields, and keys."""

    def __call__(self, template: Any) -> Any:
        """Return the value for pods of a template, which has what they say of themselves."""
        return self.test(Item(template, self.captured, template.own))

    def of_pod(self, pod: Any, now: float) -> Any:
        """Return the value for one pod, at a time in Unix seconds."""
        return self.test(Item(pod.template, self.captured, pod, now))


class PodsRead(NamedTuple):
    """What an aggregate over existing pods reads, if that is the same whichever pod is decided."""

    function: str
    """As it is written; `distinct` for `count(distinct …)`."""
    members: Members
    value: Members | None
    """None: the members are counted."""


class Item(NamedTuple):
    """What fields of an existing pod are read from."""

    template: Any
    captured: tuple[Any, ...] = ()
    pod: Any = None
    """The pod itself, or its state, if the expression iterates over pods rather than templates."""
    now: float = 0.0
    """Unix seconds."""


class QueryKey(NamedTuple):
    """What text finds the series of a query."""

    name: Hashable
    """The same for the same text."""
    read: Callable[..., Any]
    """Takes a frame; if it has one value per decision, also an `Item`."""


class QueryInput(NamedTuple):
    """A metric query among the arguments of a builtin that takes them (`Receives.INPUTS`)."""

    query: Any
    key: QueryKey | None
    """None: of nodes, or of the cluster."""
    of_nodes: bool
    """Whether each of its series is about a node."""


CLUSTER = "*"
"""The topology that has one domain."""


class Subject(msgspec.Struct, frozen=True):
    """What policies decide about, and what they choose among."""

    name: str
    """As in `for NAME where …`."""
    decided: str
    """What fields of it begin with; how it is called."""
    row: str
    """The same of what is chosen."""
    everything: str
    """What stands for all of them: `cluster.nodes`, `fleet.clusters`."""
    collections: tuple[str, ...]
    """What can stand behind a topology in an aggregate; the last one are the rows."""

    @property
    def roots(self) -> tuple[str, str]:
        """Return what the paths of its fields begin with."""
        return self.row, self.decided

    @property
    def rows(self) -> str:
        """Return how several of them are called."""
        return self.collections[-1]


OF_PODS = Subject(PODS, "pod", "node", "cluster", ("pods", "nodes"))
OF_WORKLOADS = Subject(WORKLOADS, "workload", "cluster", "fleet", ("clusters",))


class Environment(msgspec.Struct, frozen=True, eq=False):
    """What a policy may name."""

    fields: Mapping[str, Field]
    builtins: Mapping[str, Builtin]
    pods: Pods
    plugins: frozenset[str] = frozenset()
    """Names for `use kubernetes without`."""
    needed_by_kubelet: frozenset[str] = frozenset()
    """Those of `plugins` without which pods can be bound to nodes that cannot run them."""
    scores: Mapping[str, float] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """Kubernetes' default scores by name, with their weights."""
    ties: tuple[str, ...] = ()
    """What may follow `ties by`."""
    devices: tuple[str, ...] = ()
    """What may follow `devices by`."""
    domains: tuple[str, ...] = ()
    """What may follow `domains by`."""
    queries: Mapping[str, Builtin] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """What a `metric` is that is not of nodes: of the `cluster`, or of a `value` that a label of its series has."""
    topologies: Mapping[str, str | None] = msgspec.field(default_factory=lambda: MappingProxyType({"node": None}))
    """Label keys by short name; None is the node itself."""
    subject: Subject = OF_PODS
    others: tuple[Environment, ...] = ()
    """What policies of other subjects may name."""
    members: Environment | None = None
    """What may be named inside an aggregate over the nodes and pods of one row, where rows are clusters."""

    @property
    def every_field(self) -> Mapping[str, Field]:
        """Return the fields by path, with those that only aggregates over members can read."""
        return self.fields if self.members is None else {**self.members.fields, **self.fields}

    def of(self, subject: str) -> Environment:
        """Return what policies of a subject may name."""
        return next((each for each in self.others if each.subject.name == subject), self)


def collect(modules: Iterable[ModuleType]) -> tuple[dict[str, Field], dict[str, Builtin]]:
    """Return the fields and builtins defined in modules, in order of their names.

    Raises:
        ValueError: two of them have one name.
    """
    fields: dict[str, Field] = {}
    builtins: dict[str, Builtin] = {}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Field):
                if fields.setdefault(value.path, value) is not value:
                    raise ValueError(f"two fields are called {value.path}")
            elif isinstance(value, Builtin) and builtins.setdefault(value.name, value) is not value:
                raise ValueError(f"two builtins are called {value.name}")
    return dict(sorted(fields.items())), dict(sorted(builtins.items()))
