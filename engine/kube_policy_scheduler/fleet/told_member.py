"""What is known of the nodes and pods of a cluster that somebody else reads: values, and how old they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kube_policy_scheduler.lang.compiling.member_values import MemberValue


class ToldMember(msgspec.Struct, frozen=True, eq=False):
    """What somebody else said of a member: values, so that it may be read and changed elsewhere meanwhile."""

    values: Mapping[MemberValue, float]
    at: float | None = None
    """When it was read, Unix seconds; None: never."""
    problem: str = ""
    """Why there are no values now; "" if there are."""

    def value(self, asked: MemberValue, now: float) -> float:
        """Return a value of it, `asked.missing` if it has none or nobody said it. now: Unix seconds."""
        return self.values.get(asked, asked.missing)

    def answers(self, asked: Iterable[MemberValue]) -> bool:
        """Return whether it says all of these, or why it does not."""
        return bool(self.problem) or all(each in self.values for each in asked)

    def says_the_same(self, before: ToldMember | None) -> bool:
        """Return whether it has the values of another one."""
        return before is not None and _comparable(self.values) == _comparable(before.values)


def _comparable(values: Mapping[MemberValue, float]) -> Mapping[MemberValue, float | None]:
    """Return values of which each equals itself."""
    return {asked: value if value == value else None for asked, value in values.items()}
