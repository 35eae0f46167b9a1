"""Why nodes were rejected: the first refusing plugin of every node, with its reasons, and the message that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.status import Code, Refusal, Status, fit_message

SUCCESS = Status(Code.SUCCESS)
_PASSED = -1


class Diagnosis(msgspec.Struct, frozen=True):
    """The verdicts of all filters on all nodes, as kube-scheduler would record them (first failure per node)."""

    plugins: tuple[str, ...]
    first: NDArray[np.int16]
    """`int16[nodes]`: index into `plugins` of the plugin that refused the node; -1 where none did."""
    refusals: tuple[tuple[int, Refusal], ...]
    """Each reason with its plugin's index; `where` holds only nodes that this plugin was the first to refuse."""
    rejection: Status | None = None
    """Set if the pod was refused as a whole before any node was checked."""

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return len(self.first)

    @property
    def bytes(self) -> int:
        """Return how many bytes the columns take."""
        return self.first.nbytes + sum(refusal.where.nbytes for _, refusal in self.refusals)

    @property
    def unresolvable(self) -> BoolArray:
        """Return `bool[nodes]`: refused in a way that preemption cannot change."""
        result = np.zeros(self.size, np.bool_)
        if self.rejection is not None:
            result[:] = self.rejection.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        for _, refusal in self.refusals:
            if refusal.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                result |= refusal.where
        return result

    @property
    def errors(self) -> tuple[str, ...]:
        """Return the texts of plugins that failed on some node, sorted: one of them ends the whole attempt."""
        if self.rejection is not None:
            return self.rejection.reasons if self.rejection.code is Code.ERROR else ()
        return tuple(sorted({r.reason for _, r in self.refusals if r.code is Code.ERROR}))

    def rejectors(self) -> frozenset[str]:
        """Return the names of the plugins that reject the pod."""
        if self.rejection is not None:
            return frozenset((self.rejection.plugin,))
        return frozenset([self.plugins[index] for index, _ in self.refusals])

    def refused_by(self, plugin: str) -> IntArray:
        """Return the rows that a plugin was the first to refuse, ascending."""
        if plugin not in self.plugins:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.first == self.plugins.index(plugin))

    def counts(self) -> Counter[str]:
        """Return the number of nodes rejected for each reason."""
        counts: Counter[str] = Counter()
        for _, refusal in self.refusals:
            counts[refusal.reason] += int(np.count_nonzero(refusal.where))
        return counts

    def reasons(self) -> dict[str, set[str]]:
        """Return the reasons by plugin."""
        if self.rejection is not None:
            return {self.rejection.plugin: set(self.rejection.reasons)}
        found: dict[str, set[str]] = {}
        for plugin, refusal in self.refusals:
            found.setdefault(self.plugins[plugin], set()).add(refusal.reason)
        return found

    def status(self, row: int) -> Status:
        """Return the status of one node; its reasons are sorted."""
        if self.rejection is not None:
            return self.rejection
        plugin = int(self.first[row])
        if plugin == _PASSED:
            return SUCCESS
        mine = [refusal for index, refusal in self.refusals if index == plugin and refusal.where[row]]
        return status_of(self.plugins[plugin], mine)

    def statuses(self) -> Iterator[Status]:
        """Return the status of every node, by row."""
        return (self.status(row) for row in range(self.size))

    def message(self, after: str = "") -> str:
        """Return kube-scheduler's sentence for a pod that fits nowhere; `after` is the message of preemption."""
        return fit_message(self.size, self.counts(), rejection=self.rejection, after=after)


def status_of(plugin: str, refusals: Sequence[Refusal]) -> Status:
    """Return one plugin's status of a node, of the refusals that apply to it."""
    codes = {refusal.code for refusal in refusals}
    worst = (Code.ERROR, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.UNSCHEDULABLE)
    code = next(code for code in worst if code in codes)
    return Status(code, plugin, tuple(sorted(refusal.reason for refusal in refusals)))


class DiagnosisBuilder:
    """Collects refusals plugin by plugin; later plugins only count on nodes that passed the earlier ones."""

    def __init__(self, size: int) -> None:
        self._plugins: list[str] = []
        self._first = np.full(size, _PASSED, np.int16)
        self._refusals: list[tuple[int, Refusal]] = []

    @property
    def open(self) -> BoolArray:
        """Return `bool[nodes]`: not refused so far."""
        result: BoolArray = self._first == _PASSED
        return result

    def add(self, plugin: str, refusals: Sequence[Refusal]) -> None:
        """Add one plugin's refusals, over all nodes."""
        remaining = self.open
        index = len(self._plugins)
        self._plugins.append(plugin)
        for refusal in refusals:
            where = refusal.where & remaining
            if where.any():
                self._first[where] = index
                self._refusals.append((index, Refusal(refusal.code, refusal.reason, where)))

    def build(self, rejection: Status | None = None) -> Diagnosis:
        """Return the diagnosis."""
        return Diagnosis(tuple(self._plugins), self._first, tuple(self._refusals), rejection)


def with_refusals(diagnosis: Diagnosis, plugin: str, refusals: Sequence[Refusal]) -> Diagnosis:
    """Return a diagnosis in which a plugin also refuses some of the nodes that nothing refused before."""
    if diagnosis.rejection is not None:
        return diagnosis
    first, index, added = diagnosis.first.copy(), len(diagnosis.plugins), []
    for refusal in refusals:
        where = refusal.where & (first == _PASSED)
        if where.any():
            first[where] = index
            added.append((index, Refusal(refusal.code, refusal.reason, where)))
    return Diagnosis((*diagnosis.plugins, plugin), first, (*diagnosis.refusals, *added))


CLAUSE_NAMED = "policy clause "
"""Reasons that are made of a clause's source have this before it."""


def refusing_clauses(diagnosis: Diagnosis, profile: Profile) -> list[str]:
    """Return the names of the clauses that reject the pod, in the order in which they ran."""
    rejectors = diagnosis.rejectors()
    return [plugin.name for plugin in profile.filters if plugin.name in rejectors and plugin.name in profile.clauses]


def refusal_message(diagnosis: Diagnosis, profile: Profile, *, after: str = "") -> str:
    """Return the message; `after` is the message of PostFilter."""
    clauses = refusing_clauses(diagnosis, profile)
    if not clauses:
        return diagnosis.message(after)
    reasons = diagnosis.reasons()
    unnamed = [name for name in clauses if not any(CLAUSE_NAMED in reason for reason in reasons.get(name, ()))]
    who = by_policy("Refused", profile.name, unnamed)
    return diagnosis.message(f"{who} {after}" if after else who)


def by_policy(what: str, policy: str, clauses: list[str]) -> str:
    """Return a sentence that names a policy, and clauses of it."""
    names = ", ".join(f"`{name}`" for name in clauses)
    which = "" if not clauses else f", clause {names}" if len(clauses) == 1 else f", clauses {names}"
    return f"{what} by policy {policy}{which}."
