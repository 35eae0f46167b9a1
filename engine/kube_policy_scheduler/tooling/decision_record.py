"""One decision as a document: what the decision log keeps and `why`, `impact` and `capture` read. Knows no files.

A log is JSON lines, one record each, oldest first. A record holds the pod as far as scheduling reads it (hence no
environment, no commands, no secrets), so that the decision can be made again on a cluster like the one of then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TypeVar

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.documents.bounded_files import encoding_problem
from kube_policy_scheduler.times import rfc3339

VERSION = 1
"""Of the format. Keys may be added within a version; readers pass over what they do not know."""


class Outcome(Enum):
    """What happened to a pod in one attempt."""

    ASSIGNED = "assigned"
    """It got a node, and its binding began."""
    WAITING = "waiting"
    """It has a place on a node that it takes together with the rest of its group."""
    UNSCHEDULABLE = "unschedulable"
    """It fits nowhere, or gave its place back because its group was not complete in time."""
    PREEMPTING = "preempting"
    """It fits nowhere; `victims` are evicted from `node`, where room is kept for it."""
    HELD = "held"
    """A policy, a gate or its incomplete group keeps it from being decided."""
    BIND_FAILED = "bind-failed"
    """Its binding to `node` was refused, by the API server, or by an extender whose policy does not want it there."""
    ANSWERED = "answered"
    """kube-scheduler got the nodes that pass, or their scores (`verb`); it places the pod."""
    SHADOW = "shadow"
    """Another scheduler has placed the pod on `theirs`; `node` is ours, `verdict` how the two compare."""
    FAILED = "failed"
    """The attempt broke."""


class Part(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """Base of what a record consists of."""


class Reason(Part, frozen=True):
    """Why nodes were rejected."""

    text: str
    nodes: int
    """How many nodes the first filter that rejected them rejected for it; 0: the pod was rejected as a whole."""
    plugin: str = ""
    """The filter: kube-scheduler's name for it, or the clause's."""


class Ranked(Part, frozen=True):
    """One of the best nodes."""

    node: str
    total: float
    scores: dict[str, float]
    """Weighted, by plugin, by clause name, or as the clause is written; those that are written alike are added up."""


class Reading(Part, frozen=True):
    """One metric at the time of the decision."""

    query: str
    """Its PromQL."""
    age_seconds: float | None = None
    """None: there had been no result yet."""
    missing: int | None = None
    """Nodes without a usable value; None where that was not counted."""


class DecisionRecord(Part, frozen=True, tag_field="version", tag=VERSION):
    """What was decided about one pod, by what, and why."""

    time: float
    """Unix seconds; the clock that the decision saw."""
    pod: objects.Pod
    """With name, namespace, uid, labels, annotations, controller and the scheduling part of the spec."""
    outcome: Outcome
    node: str = ""
    message: str = ""
    """Why not, in kube-scheduler's words; why it is held; what the API server said."""
    reasons: tuple[Reason, ...] = ()
    """Where it fits nowhere."""
    policy: str | None = None
    """The policy that governs the pod; None where none does."""
    hash: str = ""
    """Of the policy set in force."""
    seed: int = 0
    """What ties are broken with."""
    queued: float = 0.0
    """Unix seconds at which the pod first entered the queue."""
    attempt: int = 1
    """1 for the first."""
    nodes: int = 0
    """Nodes in the cluster."""
    feasible: int = 0
    """Nodes that passed every filter."""
    ties: int = 1
    """Nodes with the best total."""
    score: float | None = None
    """The node's total; None where only one node was feasible and nothing was scored."""
    detailed: bool = False
    """Whether `top` and `refused` were taken: that is done for as many decisions as a share of the time allows."""
    top: tuple[Ranked, ...] = ()
    """The best nodes, the chosen one first."""
    refused: dict[str, int] = {}
    """Nodes that each filter refuses, evaluated alone; filters that refuse none are left out."""
    metrics: tuple[Reading, ...] = ()
    verb: str = ""
    """What kube-scheduler asked an extender: `filter`, `prioritize`, `preempt`, `bind`; "" where we decide ourselves.
    `nodes` are then those it asked about."""
    theirs: str = ""
    """The node that another scheduler gave the pod; with outcome `shadow`."""
    verdict: str = ""
    """`agreed`, `differed`, `rejected`, `not-placed`, `not-bound`, `gone`; with outcome `shadow`."""
    margin: float | None = None
    """How much lower their node scores than ours, as a share of the range over all feasible nodes: 0 to 1."""
    victims: tuple[str, ...] = ()
    """`namespace/name` of the pods to be evicted."""
    short: tuple[str, ...] = ()
    """With victims of a `reclaim`: the resources of which there was too little."""
    seconds: float = 0.0
    """From taking the pod from the queue to this outcome."""
    bound_seconds: float | None = None
    """From taking the pod from the queue to the API server's word that it is bound; None where that had not come
    when the record was made, as in files."""
    repeats: int = 0
    """How often the same was decided again until the record was made: such decisions have no records of their own.
    Always 0 in files, where the next record's `attempt` tells."""
    last: float | None = None
    """Unix seconds of the last repetition."""
    replica: str = ""
    """The scheduler's identity."""
    kubernetes: str = ""
    """The version of Kubernetes by whose rules it was decided, such as `1.37.1`; "" where that is not known."""

    @property
    def key(self) -> str:
        """Return the pod's `namespace/name`."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def place(self) -> str:
        """Return the node that the pod really has, or waits on for the rest of its group; "" if this gave it none."""
        if self.outcome is Outcome.SHADOW:
            return self.theirs
        return self.node if self.outcome in (Outcome.ASSIGNED, Outcome.WAITING) else ""


class RecordError(ValueError):
    """A line is no decision record; the text names its place."""


Record = TypeVar("Record")
_NO_RECORD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.json.Encoder()


class _Head(msgspec.Struct):
    version: int


def encode(record: msgspec.Struct) -> bytes:
    """Return a record as one line, with its end."""
    return _encoder.encode(record) + b"\n"


def decode(line: bytes, *, place: str = "decision record") -> DecisionRecord:
    """Return the record of one line.

    Args:
        line: with or without its end.
        place: what an error text begins with, such as `decisions.jsonl:12`.

    Raises:
        RecordError: it is no record, or of a version that this program does not know.
    """
    return decode_as(DecisionRecord, line, place=place)


def decode_as(kind: type[Record], line: bytes, *, place: str) -> Record:
    """Return the record of one line; as `decode`. kind: of the record."""
    try:
        version = msgspec.json.decode(line, type=_Head).version
    except _NO_RECORD as error:
        problem = encoding_problem(line) or f"expected a decision record, one JSON object a line: {error}"
        raise RecordError(f"{place}: {problem}") from error
    if version != VERSION:
        raise RecordError(
            f"{place}: the record has version {version}, this program reads version {VERSION}; use the program's"
            " version that wrote it, or a newer one"
        )
    try:
        return msgspec.json.decode(line, type=kind)
    except _NO_RECORD as error:
        raise RecordError(f"{place}: {encoding_problem(line) or error}") from error


def decode_lines(
    lines: Iterable[bytes], *, name: str, on_truncated: Callable[[str], None] = lambda place: None
) -> Iterator[DecisionRecord]:
    """Return the records of a log, in its order; blank lines are passed over.

    A last line without an end that is no record was cut off while it was written: it is left out.

    Args:
        lines: with their ends, as an opened binary file yields them.
        name: of the log, for error texts.
        on_truncated: receives the place of a line that was cut off.

    Raises:
        RecordError: as `decode`.
    """
    return decode_lines_as(DecisionRecord, lines, name=name, on_truncated=on_truncated)


def decode_lines_as(
    kind: type[Record],
    lines: Iterable[bytes],
    *,
    name: str,
    on_truncated: Callable[[str], None] = lambda place: None,
) -> Iterator[Record]:
    """Return the records of a log; as `decode_lines`. kind: of the record."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        try:
            yield decode_as(kind, line, place=place)
        except RecordError:
            if line.endswith(b"\n") or _is_whole(line):
                raise
            on_truncated(place)


def _is_whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except _NO_RECORD:
        return False
    return True


def recorded_pod(pod: PodInfo) -> objects.Pod:
    """Return a pod as a record keeps it: as it waits, with what rules read and nothing else."""
    template = pod.template
    spec = template.spec
    if pod.volumes:
        spec = msgspec.structs.replace(spec, volumes=[*(spec.volumes or ()), *pod.volumes])
    return objects.Pod(
        metadata=objects.ObjectMeta(
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            labels=dict(template.labels) or None,
            annotations=dict(pod.annotations) or None,
            owner_references=[template.controller] if template.controller is not None else None,
            creation_timestamp=rfc3339(pod.created) if pod.created else None,
        ),
        spec=spec,
        status=objects.PodStatus(nominated_node_name=pod.nominated_node),
    )
