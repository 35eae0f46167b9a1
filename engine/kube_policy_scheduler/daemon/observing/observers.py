"""Observers of the scheduler: metrics, the decision log, the status page.

An observer only looks: it returns at once, changes nothing, and one that breaks disturbs neither the scheduler nor
the other observers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

import msgspec

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.tooling.decision_record import Outcome, Reason
from kube_policy_scheduler.tooling.rebalancing.ledger import MoveOutcome
from kube_policy_scheduler.tooling.rebalancing.moves import Move

logger = logging.getLogger(__name__)


class Decided(msgspec.Struct, frozen=True, eq=False):
    """One decision: a node, or why there is none."""

    decision: Decision
    policy: str | None
    """The policy that governs the pod; None where none does."""
    at: float
    """Unix seconds."""
    seconds: float
    """How long the attempt took so far."""
    attempts: int
    """How many attempts the pod has had, this one included."""
    queued: float
    """Unix seconds since which the pod waits."""
    waits: str
    """What its binding waits for, such as the rest of its group; "" where it is bound at once."""
    frame: Frame
    """What the decision saw. True only until `on_decided` returns: the cluster changes with the next decision."""
    entered: float = 0.0
    """Unix seconds at which the attempt before ended, or the pod came; 0 where that is not known."""
    others: Sequence[Decision] = ()
    """Decided with it: about other members of its gang for which pods are evicted. Each is also reported later."""


class PodBound(msgspec.Struct, frozen=True, eq=False):
    """The API server took a binding."""

    pod: PodInfo
    node_name: str
    at: float
    """Unix seconds."""
    seconds: float
    """Since its last attempt began."""
    attempts: int
    """How many it took."""
    queued: float
    """Unix seconds at which the pod was first seen."""


class AttemptFailed(msgspec.Struct, frozen=True, eq=False):
    """An attempt broke: a binding or a volume was refused, or something of ours is wrong."""

    pod: PodInfo
    why: str
    at: float
    """Unix seconds."""
    seconds: float
    """Since the attempt began."""


class PodHeld(msgspec.Struct, frozen=True, eq=False):
    """A pod must wait before it is decided at all: a policy holds it, or its group has too few pods."""

    pod: PodInfo
    why: str
    at: float
    """Unix seconds."""
    policy: str | None
    """The policy that governs the pod; None where none does."""
    attempts: int
    queued: float
    """Unix seconds since which the pod waits."""


class ShadowOutcome(Enum):
    """How what was done compares with what we would have done."""

    AGREED = "agreed"
    """The pod is where we would have put it, or on a node that the policy rates as high."""
    DIFFERED = "differed"
    """Its node passes our filters, but another rates higher."""
    REJECTED = "rejected"
    """Its node does not pass our filters; another does."""
    NOT_PLACED = "not-placed"
    """We would have placed it nowhere, at that moment."""
    NOT_BOUND = "not-bound"
    """We would have placed it, and the other has not for long."""
    GONE = "gone"
    """We would have placed it, and it was deleted before the other did."""


class Compared(msgspec.Struct, frozen=True, eq=False):
    """A pod that another scheduler looks after: its node, and ours."""

    pod: PodInfo
    verdict: ShadowOutcome
    policy: str | None
    at: float
    """Unix seconds."""
    queued: float
    """Unix seconds since which the pod waited."""
    ours: str = ""
    """"" where there is none."""
    theirs: str = ""
    why: str = ""
    """Why their node is rejected, or why we have none."""
    clauses: frozenset[str] = frozenset()
    """Who refuses."""
    score: float | None = None
    """Of our node, by the policy; None where nothing was scored."""
    their_score: float | None = None
    margin: float | None = None
    """Score of our node less that of theirs, as a share of the range over all feasible nodes: 0 to 1."""
    late: bool = False
    """It was bound before we had decided."""
    decided: Decided | None = None
    """Our decision of the same moment; None where one of before stands for it, or none was made."""


class Answered(msgspec.Struct, frozen=True, eq=False):
    """An answer to kube-scheduler about a pod: an extender decides a part, and places the pod only if it binds it."""

    pod: PodInfo
    verb: str
    """`filter`, `prioritize`, `preempt` or `bind`."""
    outcome: Outcome
    policy: str | None
    """The policy that governs the pod; None where none does."""
    profile: Profile | None
    """The plugins that were asked; None where none were."""
    frame: Frame
    """What they saw. True only until `on_answered` returns."""
    attempts: int
    """How often kube-scheduler asked for nodes, this attempt included."""
    queued: float
    """Unix seconds of the first question about the pod."""
    rows: IntArray | None = None
    """`int64[nodes]`: those that were rated, with `prioritize`."""
    nodes: int = 0
    """How many nodes the last `filter` asked about; 0 where there was none."""
    passed: int = 0
    """How many of them pass."""
    reasons: tuple[Reason, ...] = ()
    """Why the others do not."""
    node: str = ""
    """The best one with `prioritize`, that of the binding with `bind`."""
    score: float | None = None
    """Of the best node, with `prioritize`."""
    ties: int = 1
    message: str = ""
    bound_seconds: float | None = None
    """What the binding took."""


class ClaimsBound(msgspec.Struct, frozen=True):
    """The claims of a pod were written before its binding, or could not be."""

    pod: PodInfo
    node_name: str
    began: float
    """Unix seconds."""
    seconds: float
    claims: int
    why: str = ""
    """Why that failed, "" if it did not."""
    created: str = ""
    """`success` or `failure` if a claim for extended resources was to be created."""
    contended: int = 0
    """Claims that were taken back, because another scheduler gave their devices away at the same time."""
    conditions: str = ""
    """How the wait for conditions of devices ended: `success`, `failure`, `timeout`, `error`; "" without a wait."""
    conditions_seconds: float = 0.0
    drivers: tuple[str, ...] = ()
    """Of the devices with conditions."""


class PodMoved(msgspec.Struct, frozen=True):
    """The outcome of a move that rebalancing planned."""

    move: Move
    outcome: MoveOutcome
    at: float
    """Unix seconds."""
    note: str = ""
    """What the API server said, or where the replacement is."""


class Observer:
    """Looks on; what a subclass does not override is of no interest to it."""

    def on_decided(self, decided: Decided) -> None:
        """Note a decision, before its place is taken. A gang that gives a place back is a decision for no node."""

    def on_bound(self, bound: PodBound) -> None:
        """Note that a pod is bound."""

    def on_claims_bound(self, bound: ClaimsBound) -> None:
        """Note that the claims of a pod were written, or could not be; its binding or `on_failed` follows."""

    def on_failed(self, failed: AttemptFailed) -> None:
        """Note that an attempt broke; the pod will be tried again."""

    def on_held(self, held: PodHeld) -> None:
        """Note why a pod is held; called once per reason, some seconds after the pod came."""

    def on_compared(self, compared: Compared) -> None:
        """Note what another scheduler did with a pod, and what we would have done."""

    def on_answered(self, answered: Answered) -> None:
        """Note what an extender answered kube-scheduler."""

    def on_moved(self, moved: PodMoved) -> None:
        """Note the outcome of a planned move; a move that is carried out is reported twice, evicted and landed."""

    def on_reloaded(self, record: ReloadRecord) -> None:
        """Note that a policy set was read, and whether it is in force now."""


_HOOKS = tuple(name for name in vars(Observer) if name.startswith("on_"))


class Observers(Observer):
    """Tells each of several observers."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._told: dict[str, list[tuple[Observer, Callable[[Any], None]]]] = {hook: [] for hook in _HOOKS}
        """By hook, whom it interests: most observers look at one thing or two."""
        for observer in observers:
            self.add(observer)

    def add(self, observer: Observer) -> None:
        """Tell one more from now on."""
        for hook, told in self._told.items():
            method = getattr(observer, hook)
            if getattr(method, "__func__", None) is not vars(Observer)[hook]:
                told.append((observer, method))

    def on_decided(self, decided: Decided) -> None:
        """Pass it on."""
        self._notify("on_decided", decided)

    def on_bound(self, bound: PodBound) -> None:
        """Pass it on."""
        self._notify("on_bound", bound)

    def on_claims_bound(self, bound: ClaimsBound) -> None:
        """Pass it on."""
        self._notify("on_claims_bound", bound)

    def on_failed(self, failed: AttemptFailed) -> None:
        """Pass it on."""
        self._notify("on_failed", failed)

    def on_held(self, held: PodHeld) -> None:
        """Pass it on."""
        self._notify("on_held", held)

    def on_compared(self, compared: Compared) -> None:
        """Pass it on."""
        self._notify("on_compared", compared)

    def on_answered(self, answered: Answered) -> None:
        """Pass it on."""
        self._notify("on_answered", answered)

    def on_moved(self, moved: PodMoved) -> None:
        """Pass it on."""
        self._notify("on_moved", moved)

    def on_reloaded(self, record: ReloadRecord) -> None:
        """Pass it on."""
        self._notify("on_reloaded", record)

    def _notify(self, hook: str, news: object) -> None:
        for observer, tell in self._told[hook]:
            try:
                tell(news)
            except Exception:
                logger.exception("unexpected error in observer %s", type(observer).__name__)
