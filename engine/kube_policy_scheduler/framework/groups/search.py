"""A search for any seating of the members of a gang that differ: bounded, and on equal nodes once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.gang_room import Members
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.groups.attempt import Attempt
from kube_policy_scheduler.framework.groups.members import GangMembers
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod

MOST_SEARCH_STEPS = 10_000
"""Members that a search through all seatings places at most, in one domain."""
STEPS_CUT = f"the search stopped after {MOST_SEARCH_STEPS:,} steps"
WORK_CUT = "the search was stopped because it took too long"
_ALIKE_WORK = 2
"""To look at a node in a search, see `trial.NODE_WORK`."""
_MOST_ROWS = 128
"""Nodes on which a search tries a member, the fullest first."""


class SeatSearch:
    """Looks for any seating of members that differ, on nodes of which equal ones are tried once."""

    def __init__(
        self,
        attempt: Attempt,
        algorithm: ScheduleAlgorithm,
        cluster: Cluster,
        requirement: GangRequirement,
        kinds: Sequence[Members],
        *,
        members: GangMembers,
        independent: bool,
    ) -> None:
        """Begin one.

        Args:
            attempt: where members are placed.
            algorithm: says where they may be.
            cluster: of the nodes.
            requirement: of their gang.
            kinds: the members, by template.
            members: says how many of the gang have a place, those that are tried out included.
            independent: whether members neither exclude nor need each other.
        """
        self._attempt, self._algorithm, self._nodes, self._requirement = attempt, algorithm, cluster.nodes, requirement
        self._members = members
        self._independent = independent
        self._seated: list[tuple[PodTemplate, int]] = []
        """The members that have a place, each with its row."""
        self._steps = 0
        self.cut = ""
        """Why it ended before it had tried all; "": it did not."""
        self._is_partial = False
        self._resources = sorted({name for kind in kinds for name in kind.template.requests})
        self._allowed = np.packbits(np.stack([kind.feasible for kind in kinds], axis=1), axis=1)
        self._failed: set[object] = set()
        """States from which the rest found no seats."""

    def seats(self, members: Sequence[QueuedPod]) -> Generator[int, None, bool]:
        """Place members until the group is complete; return whether it is. Yields where a turn may end."""
        algorithm, attempt, requirement = self._algorithm, self._attempt, self._requirement
        missing = requirement.size - self._members.placed(requirement)
        if missing <= 0:
            return True
        if missing > len(members):
            return False
        there: Iterable[object] = map(self._alike, attempt.rows()) if self._independent else self._seated
        roles = Counter(requirement.role_of(template) for template, _ in self._seated)
        state = len(members), missing, frozenset(Counter(there).items()), frozenset(roles.items())
        if state in self._failed:
            return False
        member, rest = members[0], members[1:]
        if not self._members.is_surplus(member, requirement):
            seen, rows = set[object](), algorithm.by_fullness(member, most=_MOST_ROWS + 1)
            self._is_partial = self._is_partial or len(rows) > _MOST_ROWS
            for row in rows[:_MOST_ROWS]:
                alike = self._alike(row) if self._independent else row
                algorithm.work += _ALIKE_WORK
                if alike in seen:
                    continue
                seen.add(alike)
                self._steps += 1
                if self._steps > MOST_SEARCH_STEPS or attempt.is_over:
                    self.cut = WORK_CUT if attempt.is_over else STEPS_CUT
                    return False
                mark = attempt.mark()
                attempt.seat(member, algorithm.on_row(member, row))
                self._seated.append((member.pod.template, row))
                yield attempt.step()
                if (yield from self.seats(rest)):
                    return True
                self._seated.pop()
                attempt.undo_to(mark)
                if self.cut:
                    return False
        if missing <= len(rest) and (yield from self.seats(rest)):
            return True
        if not self.cut:
            self._failed.add(state)
        return False

    @property
    def left_out(self) -> str:
        """Return why it did not try all ways to seat the members; "": it did."""
        return self.cut or (f"only the {_MOST_ROWS} fullest nodes were tried for each pod" if self._is_partial else "")

    def _alike(self, row: int) -> object:
        """Return what tells a node apart from others, as far as the search looks."""
        nodes = self._nodes
        free = [nodes.allocatable(name).item(row) - nodes.requested(name).item(row) for name in self._resources]
        pods = nodes.allocatable("pods").item(row) - nodes.pod_count.item(row)
        return self._allowed[row].tobytes(), pods, tuple(free)
