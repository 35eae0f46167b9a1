"""Why nodes were rejected: the first rejecting plugin of every node, with its reasons, and the message that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Code, Rejection, Status, fit_message

SUCCESS = Status(Code.SUCCESS)
_PASSED = -1


class Diagnosis(Measured, msgspec.Struct, frozen=True):
    """The verdicts of all filters on all nodes, as kube-scheduler would record them (first failure per node)."""

    plugins: tuple[str, ...]
    first: NDArray[np.int16]
    """`int16[nodes]`: index into `plugins` of the plugin that rejected the node; -1 where none did."""
    rejections: tuple[tuple[int, Rejection], ...]
    """Each reason with its plugin's index; `where` holds only nodes that this plugin was the first to reject."""
    rejection: Status | None = None
    """Set if the pod was rejected as a whole before any node was checked."""

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return len(self.first)

    @property
    def unresolvable(self) -> BoolArray:
        """Return `bool[nodes]`: rejected in a way that preemption cannot change."""
        result = np.zeros(self.size, np.bool_)
        if self.rejection is not None:
            result[:] = self.rejection.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        for _, rejection in self.rejections:
            if rejection.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                result |= rejection.where
        return result

    @property
    def errors(self) -> tuple[str, ...]:
        """Return the texts of plugins that failed on some node, sorted: one of them ends the whole attempt."""
        if self.rejection is not None:
            return self.rejection.reasons if self.rejection.code is Code.ERROR else ()
        return tuple(sorted({r.reason for _, r in self.rejections if r.code is Code.ERROR}))

    def rejectors(self) -> frozenset[str]:
        """Return the names of the plugins that reject the pod."""
        if self.rejection is not None:
            return frozenset((self.rejection.plugin,))
        return frozenset([self.plugins[index] for index, _ in self.rejections])

    def rejected_by(self, plugin: str) -> IntArray:
        """Return the rows that a plugin was the first to reject, ascending."""
        if plugin not in self.plugins:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.first == self.plugins.index(plugin))

    def counts(self) -> Counter[str]:
        """Return the number of nodes rejected for each reason."""
        counts: Counter[str] = Counter()
        for _, rejection in self.rejections:
            counts[rejection.reason] += int(np.count_nonzero(rejection.where))
        return counts

    def reasons(self) -> dict[str, set[str]]:
        """Return the reasons by plugin."""
        if self.rejection is not None:
            return {self.rejection.plugin: set(self.rejection.reasons)}
        found: dict[str, set[str]] = {}
        for plugin, rejection in self.rejections:
            found.setdefault(self.plugins[plugin], set()).add(rejection.reason)
        return found

    def status(self, row: int) -> Status:
        """Return the status of one node; its reasons are sorted."""
        if self.rejection is not None:
            return self.rejection
        plugin = int(self.first[row])
        if plugin == _PASSED:
            return SUCCESS
        mine = [rejection for index, rejection in self.rejections if index == plugin and rejection.where[row]]
        return status_of(self.plugins[plugin], mine)

    def statuses(self) -> Iterator[Status]:
        """Return the status of every node, by row."""
        return (self.status(row) for row in range(self.size))

    def message(self, after: str = "") -> str:
        """Return kube-scheduler's sentence for a pod that fits nowhere; `after` is the message of preemption."""
        return fit_message(self.size, self.counts(), rejection=self.rejection, after=after)


def status_of(plugin: str, rejections: Sequence[Rejection]) -> Status:
    """Return one plugin's status of a node, of the rejections that apply to it."""
    codes = {rejection.code for rejection in rejections}
    worst = (Code.ERROR, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.UNSCHEDULABLE)
    code = next(code for code in worst if code in codes)
    return Status(code, plugin, tuple(sorted(rejection.reason for rejection in rejections)))


class DiagnosisBuilder:
    """Collects rejections plugin by plugin; later plugins only count on nodes that passed the earlier ones."""

    def __init__(self, size: int) -> None:
        self._plugins: list[str] = []
        self._first = np.full(size, _PASSED, np.int16)
        self._rejections: list[tuple[int, Rejection]] = []

    @property
    def open(self) -> BoolArray:
        """Return `bool[nodes]`: not rejected so far."""
        result: BoolArray = self._first == _PASSED
        return result

    def add(self, plugin: str, rejections: Sequence[Rejection]) -> None:
        """Add one plugin's rejections, over all nodes."""
        remaining = self.open
        index = len(self._plugins)
        self._plugins.append(plugin)
        for rejection in rejections:
            where = rejection.where & remaining
            if where.any():
                self._first[where] = index
                self._rejections.append((index, Rejection(rejection.code, rejection.reason, where)))

    def build(self, rejection: Status | None = None) -> Diagnosis:
        """Return the diagnosis."""
        return Diagnosis(tuple(self._plugins), self._first, tuple(self._rejections), rejection)


def with_rejections(diagnosis: Diagnosis, plugin: str, rejections: Sequence[Rejection]) -> Diagnosis:
    """Return a diagnosis in which a plugin also rejects some of the nodes that nothing rejected before."""
    if diagnosis.rejection is not None:
        return diagnosis
    first, index, added = diagnosis.first.copy(), len(diagnosis.plugins), []
    for rejection in rejections:
        where = rejection.where & (first == _PASSED)
        if where.any():
            first[where] = index
            added.append((index, Rejection(rejection.code, rejection.reason, where)))
    return Diagnosis((*diagnosis.plugins, plugin), first, (*diagnosis.rejections, *added))


def rejecting_clauses(diagnosis: Diagnosis, profile: Profile) -> list[str]:
    """Return the names of the clauses that reject the pod, in the order in which they ran."""
    rejecting = diagnosis.rejectors() & profile.clauses.keys()
    return [plugin.name for plugin in profile.filters if plugin.name in rejecting] if rejecting else []


def rejection_message(diagnosis: Diagnosis, profile: Profile, *, after: str = "") -> str:
    """Return the message; `after` is the message of PostFilter."""
    clauses = rejecting_clauses(diagnosis, profile)
    if not clauses:
        return diagnosis.message(after)
    reasons = diagnosis.reasons()
    unnamed = [name for name in clauses if reasons.get(name) == {profile.clauses[name]}]
    who = by_policy("Rejected", profile.name, unnamed)
    return diagnosis.message(f"{who} {after}" if after else who)


def by_policy(what: str, policy: str, clauses: list[str]) -> str:
    """Return a sentence that names a policy, and clauses of it."""
    names = ", ".join(f"`{name}`" for name in clauses)
    which = "" if not clauses else f", clause {names}" if len(clauses) == 1 else f", clauses {names}"
    return f"{what} by policy {policy}{which}."
