"""One decision about a workload of a fleet as a document: what its decision log keeps and `why` reads.

A log is JSON lines like that of pods (`decision_record`): one record each, oldest first, of the same version. A record
has a `workload` where those of pods have a `pod`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from heapq import nsmallest
from itertools import islice

import msgspec

from kube_policy_scheduler.fleet.model import Outcome, Verdict
from kube_policy_scheduler.tooling.decision_record import VERSION, Part

MOST_CLUSTERS = 20
"""Of each record, beside those that the workload runs in: the best of them. The others are counted by what rejects
them."""
MOST_RULES = 20
"""That are named with the number of clusters that they reject."""
MOST_CHARACTERS = 1000
"""Of the reason that is given for one cluster."""


class WorkloadOutcome(Enum):
    """What happened to a workload in one attempt."""

    PLACED = "placed"
    """It got its clusters."""
    MOVED = "moved"
    """Some of its replicas go to better clusters, by a `rebalance`."""
    UNPLACED = "unplaced"
    """It cannot have what it asks for; `reason` and `message` say why."""
    REFUSED = "refused"
    """The API server refused the decision: a quota, a webhook or a missing permission."""
    FAILED = "failed"
    """The decision could not be written; it is tried again."""
    SHADOW = "shadow"
    """Another scheduler decided `theirs`; `targets` are ours, `verdict` is how the two compare."""


class RecordedWorkload(Part, frozen=True):
    """Whose decision it is."""

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""
    uid: str = ""
    replicas: int = 0

    @property
    def key(self) -> str:
        """Return `namespace/name`, or the name if it has no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class RecordedCluster(Part, frozen=True):
    """What was said about one cluster."""

    cluster: str
    has: int = 0
    """Replicas before the decision."""
    gets: int = 0
    rejected_by: str = ""
    why: str = ""
    room: int | None = None
    """Replicas that still fitted beside what it had; None if nobody said."""
    room_by: str = ""
    score: float | None = None
    """None if it is rejected."""
    read_at: float | None = None
    """When its nodes and pods were read by which the policy decides, Unix seconds; None: it reads none, or they were
    never read."""
    unread: str = ""
    """Why its nodes and pods were not known, though the policy reads them; "" if they were."""


class WorkloadRecord(Part, frozen=True, tag_field="version", tag=VERSION):
    """What was decided about one workload, by what, and why."""

    time: float
    """Unix seconds."""
    workload: RecordedWorkload
    object: str
    """`namespace/name` of the object that was decided: the binding, or Kueue's Workload."""
    outcome: WorkloadOutcome
    generation: int = 0
    """Of the object as it was decided."""
    trigger: str = ""
    """Why it was decided."""
    reason: str = ""
    """Of the condition `Scheduled`, such as NoClusterFit."""
    message: str = ""
    policy: str | None = None
    """The policy that governs the workload; None if its Placement alone decides."""
    hash: str = ""
    """Of the policy set in force."""
    unread: str = ""
    """Why the labels and annotations of the template are missing; "" if they are not."""
    before: dict[str, int] = msgspec.field(default_factory=dict)
    """Replicas by cluster before."""
    targets: dict[str, int] = msgspec.field(default_factory=dict)
    """Replicas by cluster that were decided."""
    theirs: dict[str, int] = msgspec.field(default_factory=dict)
    """Replicas by cluster that another scheduler decided; with outcome `shadow`."""
    verdict: str = ""
    """How the two compare; with outcome `shadow`."""
    term: str = ""
    """The affinity term that worked."""
    clusters: tuple[RecordedCluster, ...] = ()
    """Those that it runs in or gets, and the best of the others."""
    total: int = 0
    """Number of clusters that were looked at."""
    rejected: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of clusters by the filter or clause that rejects them."""
    attempt: int = 1
    """1 for the first since it was last placed."""
    seconds: float = 0.0
    """That the decision took, without its writes."""
    repeats: int = 0
    """How often the same was decided again until the record was made. Always 0 in files."""
    last: float | None = None
    """Unix seconds of the last repetition."""
    replica: str = ""
    """The identity of the decision maker."""

    @property
    def key(self) -> str:
        """Return `namespace/name` of the workload."""
        return self.workload.key

    @property
    def names(self) -> tuple[str, ...]:
        """Return how people may call it: the workload, and the object that was decided, each with its namespace or
        not."""
        return self.key, self.workload.name, self.object, self.object.rpartition("/")[2]


class _Head(msgspec.Struct):
    workload: msgspec.Raw


def is_about_workload(line: bytes) -> bool:
    """Return whether a line of a decision log is about a workload, not a pod; False if it is no record."""
    try:
        msgspec.json.decode(line, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def recorded_clusters(outcome: Outcome, has: Mapping[str, int]) -> tuple[RecordedCluster, ...]:
    """Return what a record says of clusters: those with replicas, and the best of the others, in this order."""
    running = has.keys() | outcome.targets.keys()
    shown = sorted(running, key=lambda name: (-outcome.targets.get(name, 0), name))
    others = [(name, verdict) for name, verdict in outcome.verdicts.items() if name not in running]
    best = nsmallest(MOST_CLUSTERS, [(-verdict.score, name) for name, verdict in others if not verdict.rejected_by])
    shown += [name for _, name in best]
    rejected = (name for name, verdict in others if verdict.rejected_by)
    shown += islice(rejected, MOST_CLUSTERS - len(best))
    return tuple(
        _recorded(name, outcome.verdicts.get(name, _GONE), has.get(name, 0), outcome.targets.get(name, 0))
        for name in shown[: 10 * MOST_CLUSTERS]
    )


_GONE = Verdict(message="it is not known, or is being deleted")


def _recorded(name: str, verdict: Verdict, has: int, gets: int) -> RecordedCluster:
    return RecordedCluster(
        cluster=name,
        has=has,
        gets=gets,
        rejected_by=verdict.rejected_by[:MOST_CHARACTERS],
        why=verdict.message[:MOST_CHARACTERS],
        room=verdict.room,
        room_by=verdict.room_by,
        score=None if verdict.rejected_by else verdict.score,
        read_at=verdict.read_at,
        unread=verdict.unread[:MOST_CHARACTERS],
    )


def rejections(outcome: Outcome) -> dict[str, int]:
    """Return how many clusters each filter or clause rejects, those that reject most first."""
    found = Counter([each.rejected_by for each in outcome.verdicts.values()])
    del found[""]
    return {rule[:MOST_CHARACTERS]: count for rule, count in found.most_common(MOST_RULES)}
