"""The decision maker that only looks on: it decides the bindings that another scheduler has decided, and writes none.

What is decided is the binding as it was right before the other wrote to it, when it tells how that ended: so that both
decide the same. Its own replicas do not count then; those of all others do, where the other has put them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from kube_policy_scheduler.fleet.karmada.decision_maker import AnyQuestion, DecisionMaker, Key, key_of
from kube_policy_scheduler.fleet.karmada.objects import ResourceBinding
from kube_policy_scheduler.fleet.karmada.triggers import APPLIED, Trigger, condition, trigger
from kube_policy_scheduler.fleet.karmada.writes import is_observed
from kube_policy_scheduler.fleet.model import Outcome
from kube_policy_scheduler.fleet.waiting import Wake
from kube_policy_scheduler.times import Steady


class DecidedByAnother(msgspec.Struct, frozen=True, eq=False):
    """What another scheduler decided about a binding, and what we would have."""

    key: Key
    asked: ResourceBinding
    """As it was before."""
    told: ResourceBinding
    """As it was once the other had told how its decision ended."""
    ours: Outcome
    unread: str
    """Why labels and annotations of the template are missing; "" if they are not."""

    @property
    def is_placed(self) -> bool:
        """Return whether the other has placed it."""
        found = condition(self.told)
        return found is not None and found.status == "True"


class _Told(msgspec.Struct, frozen=True, eq=False):
    asked: ResourceBinding
    told: ResourceBinding


class Onlooker:
    """Looks at what another scheduler does to the bindings that a decision maker knows."""

    def __init__(self, maker: DecisionMaker) -> None:
        """maker: knows the bindings of the other scheduler, and is asked for no work."""
        self._maker = maker
        self._open: dict[Key, ResourceBinding] = {}
        """As they were when the other had to decide them, and has not told yet."""
        self._told: dict[Key, _Told] = {}
        """What is to be compared."""
        self._theirs: dict[Key, int] = {}
        """The generation that the last placement of the other led to."""

    def replace_bindings(self, bindings: Sequence[ResourceBinding], now: Steady, *, namespaced: bool) -> None:
        """Take a whole list of ResourceBindings, or of ClusterResourceBindings."""
        listed = {key_of(each) for each in bindings}
        for key in [key for key in self._maker.bindings if bool(key[0]) is namespaced and key not in listed]:
            self.delete_binding(key)
        for each in bindings:
            self.set_binding(each, now)

    def set_binding(self, binding: ResourceBinding, now: Steady) -> None:
        """Take a binding that is new or has changed, and note what the other did to it."""
        key = key_of(binding)
        before = self._maker.binding(key)
        self._maker.set_binding(binding, now)
        if self._maker.binding(key) is not binding:
            if before is not None and self._maker.binding(key) is None:
                self._forget(key)
            return
        if before is None or before.metadata.uid != binding.metadata.uid:
            self._forget(key)
            if self._is_open(key, binding):
                self._open[key] = binding
            return
        if _is_placement(before, binding):
            self._theirs[key] = binding.metadata.generation
            self._open.setdefault(key, before)
        elif self._is_open(key, binding):
            self._open[key] = binding
        if key in self._open and _is_told(before, binding):
            self._told[key] = _Told(self._open.pop(key), binding)
            self._maker.waiting.wake(key, Wake.OWN, now)

    def delete_binding(self, key: Key) -> None:
        """Take note that a binding is gone, or no longer of the other scheduler."""
        self._forget(key)
        self._maker.delete_binding(key)

    def _forget(self, key: Key) -> None:
        for each in (self._open, self._told, self._theirs):
            each.pop(key, None)

    def _is_open(self, key: Key, binding: ResourceBinding) -> bool:
        """Return whether the other has to decide a binding: not because of what it wrote itself."""
        if is_observed(binding) or self._theirs.get(key) == binding.metadata.generation:
            return False
        return trigger(binding, is_leaving=self._maker.is_leaving) not in (None, Trigger.INTERRUPTED)

    def next(self, now: Steady) -> DecidedByAnother | AnyQuestion | None:
        """Decide the next binding that the other has decided; None if there is none.

        Who gets a question answers it, as one of the decision maker. What was decided is settled already.
        """
        while (key := self._maker.waiting.next(now)) is not None:
            found = self._decided(key, now)
            if found is not None:
                return found
            self._maker.waiting.settled(key, now)
        return None

    def _decided(self, key: Key, now: Steady) -> DecidedByAnother | AnyQuestion | None:
        told = self._told.get(key)
        if told is None:
            return self._maker.question_of_other(key)
        question = self._maker.question(key, now)
        if question is not None:
            return question
        del self._told[key]
        ours = self._maker.would_have_decided(told.asked, now)
        return DecidedByAnother(key, told.asked, told.told, ours, self._maker.unread(key))


def _is_placement(before: ResourceBinding, after: ResourceBinding) -> bool:
    """Return whether a change is a placement of the other: an eviction says more than that."""
    if before.spec.clusters == after.spec.clusters and _applied(before) == _applied(after):
        return False
    return replace(before.spec, clusters=None) == replace(after.spec, clusters=None)


def _applied(binding: ResourceBinding) -> str | None:
    return (binding.metadata.annotations or {}).get(APPLIED)


def _is_told(before: ResourceBinding, after: ResourceBinding) -> bool:
    """Return whether the other told how a decision ended; of two within a second only the generation differs."""
    return condition(after) is not None and _said(before) != _said(after)


def _said(binding: ResourceBinding) -> tuple[object, ...]:
    found, status = condition(binding), binding.status
    how = (found.status, found.reason, found.message) if found is not None else None
    return how, status.last_scheduled_time, status.scheduler_observed_generation
