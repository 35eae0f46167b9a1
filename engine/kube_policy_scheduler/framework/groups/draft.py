"""What a plan has tried so far, of which any part can be taken back: places on the columns, and rules of groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kube_policy_scheduler.framework.decide.gang_domains import Domain
from kube_policy_scheduler.framework.decide.gang_table import Anywhere, GangTable
from kube_policy_scheduler.framework.devices.thrift import Thrifty
from kube_policy_scheduler.framework.groups.attempt import Attempt
from kube_policy_scheduler.framework.permit import Group


class Draft:
    """What a plan has tried so far: places on the columns, and rules of groups."""

    def __init__(self, attempt: Attempt, gangs: GangTable) -> None:
        self.attempt, self._gangs = attempt, gangs
        self._rules: list[Callable[[], None]] = []
        """What undoes each, the oldest first."""

    def mark(self) -> tuple[int, int]:
        """Return what `undo_to` goes back to."""
        return self.attempt.mark(), len(self._rules)

    def undo_to(self, mark: tuple[int, int]) -> None:
        """Take back what was tried since."""
        self.attempt.undo_to(mark[0])
        while len(self._rules) > mark[1]:
            self._rules.pop()()

    def forget_rules(self) -> None:
        """Have domains and orders of devices be what they were; the places are taken back by others."""
        while self._rules:
            self._rules.pop()()

    def settle(self, group: Group, where: Domain | Anywhere) -> None:
        """Place members of a group there from now on."""
        self._rules.append(partial(self._gangs.settle, group, self._gangs.where(group)))
        self._gangs.settle(group, where)

    def order(self, group: Group, order: Thrifty) -> None:
        """Give members of a group devices in an order from now on."""
        self._rules.append(partial(self._gangs.order_devices, group, None))
        self._gangs.order_devices(group, order)
