"""What continuous rebalancing remembers from pass to pass: nodes that were left, rests, budgets by time, hits. Pure.

A rebalancer without a memory moves a pod back and forth when a metric swings, and goes on when its moves do not land
where they were planned. This one does neither. It outlives the replica as a text: bounded, and checked when read.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from kube_policy_scheduler.tooling.rebalancing.moves import Move

HOUR_SECONDS = 3600.0
LEFT_SECONDS = 24 * HOUR_SECONDS
"""For so long a workload is not moved back to a node that it left."""
ELSEWHERE_RESTS_SECONDS = HOUR_SECONDS
"""For so long a workload stays after a replacement that landed elsewhere, or did not come."""
_MOST_WORKLOADS = 10_000
_MOST_LEFT = 64
"""Nodes remembered of one workload."""
JUDGED = 20
"""Outcomes by which it is judged whether moves land; from half of them on."""
LEAST_SHARE = 0.9
MOST_BYTES = 200 << 10
"""Of the text: some 100 bytes for each workload. All annotations of an object may have 256 KiB."""
_MOST_EVICTED = 1000


class MoveOutcome(Enum):
    """The outcome of a planned move; the value is the label of the metric."""

    PLANNED = "planned"
    """In a dry run: nothing was evicted."""
    EVICTED = "evicted"
    LATER = "later"
    """A PodDisruptionBudget allows no disruption now."""
    NEVER = "never"
    """The Eviction API cannot evict the pod."""
    FAILED = "failed"
    """The eviction was not sent, or the API server did not answer."""
    LANDED = "landed"
    """The replacement is on the node of the plan."""
    ELSEWHERE = "elsewhere"
    """The replacement is on another node."""
    PENDING = "pending"
    """The replacement did not come, or has no node, and its room is no longer reserved."""


class _Workload(msgspec.Struct):
    left: OrderedDict[str, float] = msgspec.field(default_factory=OrderedDict)
    """By node: when it was left."""
    rests_until: float = 0.0


class KeptWorkload(msgspec.Struct, frozen=True):
    """What is kept of a workload."""

    rests_until: float
    left: dict[str, float]
    """By node: when it was left, the earliest first."""


class KeptLedger(msgspec.Struct, frozen=True):
    """What outlives a ledger. All times are Unix seconds."""

    policies: str
    """What tells the policies apart under which moves were judged."""
    evicted: tuple[float, ...]
    hits: tuple[bool, ...]
    """Whether the last replacements are on the nodes of the plan."""
    workloads: dict[str, KeptWorkload]
    """The last that moved comes last."""


class Ledger:
    """Keeps what was moved, and judges it. All times are seconds of one clock."""

    def __init__(self, *, per_hour: int) -> None:
        """per_hour: how many pods may be evicted within an hour."""
        self._per_hour = per_hour
        self._evicted: deque[float] = deque()
        self._workloads: OrderedDict[str, _Workload] = OrderedDict()
        self._hits: deque[bool] = deque(maxlen=JUDGED)
        self._never: OrderedDict[str, None] = OrderedDict()
        """The uids of pods that the Eviction API cannot evict."""
        self.counts: Counter[MoveOutcome] = Counter()
        self.stopped = ""
        """Why nothing is moved any more; "" while moves land."""

    def allowed(self, now: float) -> int:
        """Return how many pods may be evicted now."""
        while self._evicted and not 0 <= now - self._evicted[0] < HOUR_SECONDS:
            self._evicted.popleft()
        return 0 if self.stopped else max(0, self._per_hour - len(self._evicted))

    def left(self, now: float) -> Mapping[str, frozenset[str]]:
        """Return by workload the nodes that its pods were moved off."""
        return {
            name: frozenset(node for node, at in known.left.items() if now - at < LEFT_SECONDS)
            for name, known in self._workloads.items()
            if known.left
        }

    def keeps(self, workload: str, uid: str, now: float) -> bool:
        """Return whether a pod stays for now: its workload rests, or the Eviction API cannot evict it."""
        known = self._workloads.get(workload)
        return uid in self._never or (known is not None and now < known.rests_until)

    def note(self, move: Move, outcome: MoveOutcome, now: float, *, rest_seconds: float = 0.0) -> None:
        """Note the outcome of a move; rest_seconds: for how long its workload stays after an eviction."""
        self.counts[outcome] += 1
        match outcome:
            case MoveOutcome.EVICTED:
                self._evicted.append(now)
                known = self._workload(move.workload)
                known.left[move.source] = now
                known.left.move_to_end(move.source)
                while len(known.left) > _MOST_LEFT:
                    known.left.popitem(last=False)
                known.rests_until = max(known.rests_until, now + rest_seconds)
            case MoveOutcome.LANDED:
                self._judge(hit=True)
            case MoveOutcome.ELSEWHERE | MoveOutcome.PENDING:
                known = self._workload(move.workload)
                known.rests_until = max(known.rests_until, now + ELSEWHERE_RESTS_SECONDS)
                self._judge(hit=False)
            case MoveOutcome.NEVER:
                self._never[move.uid] = None
                while len(self._never) > _MOST_WORKLOADS:
                    self._never.popitem(last=False)
            case MoveOutcome.PLANNED | MoveOutcome.LATER | MoveOutcome.FAILED:
                pass

    def resume(self) -> None:
        """Begin to judge afresh: the policies changed, or another term of leadership began."""
        self._hits.clear()
        self.stopped = ""

    def kept(self, now: float, *, unix: float, policies: str) -> KeptLedger:
        """Return what is to outlive this ledger, without what is over.

        Args:
            now: the time by the clock of the ledger.
            unix: the same moment, Unix seconds.
            policies: what tells the present policies from others.
        """
        self.allowed(now)
        shift = unix - now
        workloads = {}
        for name, known in self._workloads.items():
            left = {node: round(at + shift, 1) for node, at in known.left.items() if now - at < LEFT_SECONDS}
            rests_until = known.rests_until if known.rests_until > now else -shift
            if left or known.rests_until > now:
                workloads[name] = KeptWorkload(round(rests_until + shift, 1), left)
        evicted = tuple(round(at + shift, 1) for at in self._evicted)
        return KeptLedger(policies, evicted, tuple(self._hits), workloads)

    def recall(self, kept: KeptLedger, now: float, *, unix: float, policies: str) -> None:
        """Go on where another ledger ended; arguments as of `kept`. Its hits count under the same policies only."""
        shift = now - unix
        known_at = {round(at - shift, 1) for at in self._evicted}  # as they were kept, if they were
        before = (min(now, at + shift) for at in kept.evicted if at not in known_at)
        self._evicted = deque(sorted((*self._evicted, *before)))
        for name, was in kept.workloads.items():
            known = self._workload(name)
            known.rests_until = max(known.rests_until, min(was.rests_until + shift, now + LEFT_SECONDS))
            for node, at in list(was.left.items())[-_MOST_LEFT:]:
                known.left[node] = max(known.left.get(node, -math.inf), min(now, at + shift))
        if policies == kept.policies and not self._hits:
            for hit in kept.hits:
                self._judge(hit=hit)

    def _workload(self, name: str) -> _Workload:
        known = self._workloads.setdefault(name, _Workload())
        self._workloads.move_to_end(name)
        while len(self._workloads) > _MOST_WORKLOADS:
            self._workloads.popitem(last=False)
        return known

    def _judge(self, *, hit: bool) -> None:
        self._hits.append(hit)
        hits, of = sum(self._hits), len(self._hits)
        if 2 * of >= JUDGED and hits < LEAST_SHARE * of:
            self.stopped = f"only {hits} of the last {of} replacements are on the nodes of the plan"


def encode_ledger(kept: KeptLedger, *, most_bytes: int = MOST_BYTES) -> str:
    """Return the text; the workloads that were moved first are left out where there is no room."""
    encode = msgspec.json.encode
    head = msgspec.structs.replace(kept, workloads={}, evicted=kept.evicted[-_MOST_EVICTED:])
    room, workloads = most_bytes - len(encode(head)), dict[str, Any]()
    for name, workload in reversed(kept.workloads.items()):
        room -= len(encode(name)) + len(encode(workload)) + 2
        if room < 0:
            break
        workloads[name] = workload
    return encode(msgspec.structs.replace(head, workloads=dict(reversed(workloads.items())))).decode()


def decode_ledger(text: str) -> KeptLedger:
    """Read such a text.

    Raises:
        ValueError: it is none; says why.
    """
    kept = msgspec.json.decode(text, type=KeptLedger)
    numbers = [*kept.evicted, *(each for one in kept.workloads.values() for each in _times(one))]
    if not all(0.0 <= each < math.inf for each in numbers):
        raise ValueError("times must be numbers of 0 or more")
    if len(kept.hits) > JUDGED:
        raise ValueError(f"expected at most {JUDGED} hits, got {len(kept.hits)}")
    return kept


def _times(workload: KeptWorkload) -> list[float]:
    return [workload.rests_until, *workload.left.values()]
