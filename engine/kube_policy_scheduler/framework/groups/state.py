"""How far a gang has come, for people."""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.framework.gangs import GangRequirement, NumberOf
from kube_policy_scheduler.times import rfc3339
from kube_policy_scheduler.wording import part_of


class RoleState(msgspec.Struct, frozen=True):
    """The members of one gang that have a role, at one moment."""

    text: str
    """`role=driver`"""
    number: int
    """How many of them the gang needs."""
    placed: int
    """Those that have a place."""
    there: int
    """Those that there are, with a place or without."""


class GangState(msgspec.Struct, frozen=True):
    """The members of one gang at one moment."""

    name: str
    """`NAMESPACE/KEY`."""
    rule: str
    """The clause as it is written, or the PodGroup."""
    size: int
    """No member binds before this many have a place."""
    placed: int
    """Members on nodes, those that hold a place for the others included."""
    holding: int
    """Members that hold a place and do not bind yet."""
    pending: int
    """Members without a place."""
    until: float | None = None
    """Unix seconds at which those that hold places give them back; None where none does, or that is not known."""
    roles: tuple[RoleState, ...] = ()
    domain: str = ""
    """The domain that its members share, such as `rack=r1`; "" if they have none yet, or need none."""
    children: tuple[int, int] | None = None
    """Of a composite group: how many of its groups are complete, and how many it needs."""
    lacking: int = 0
    """Of a composite group: how many pods its groups are too few."""
    rest_goes: str = ""
    """When its pods are evicted that run without the others: `at 2026-11-21T10:00:00Z`; "" if they are not."""

    @property
    def missing(self) -> int:
        """Return how many pods there are too few, whatever room there is."""
        if self.children is not None:
            return self.lacking
        lacking = sum(max(0, role.number - role.there) for role in self.roles)
        return max(0, self.size - self.placed - self.pending, lacking)

    def sentence(self) -> str:
        """Return it in one sentence, without an end."""
        where = f" in {self.domain}" if self.domain and self.placed else ""
        short = self.placed < self.size or (self.children is not None and self.children[0] < self.children[1])
        parts = [f"{part_of(self.placed, self.size, 'member')} {'has' if self.placed == 1 else 'have'} a node{where}"]
        if self.pending:
            parts.append(f"{self.pending} {'is' if self.pending == 1 else 'are'} pending")
        if self.missing:
            parts.append(f"{self.missing} {'is' if self.missing == 1 else 'are'} missing")
        parts += [
            f"{role.placed} of {role.number} with {role.text}" for role in self.roles if role.placed < role.number
        ]
        if self.children is not None and short:
            done, needed = self.children
            parts.append(f"{part_of(done, needed, 'group')} {'is' if done == 1 else 'are'} complete")
        held = f", held until {rfc3339(self.until)}" if self.until is not None and short else ""
        if self.rest_goes and short:
            parts.append(f"those that run are evicted {self.rest_goes} unless it is complete by then")
        return f'gang "{self.name}": {", ".join(parts)}{held} ({self.rule})'


def gang_state(
    requirement: GangRequirement,
    *,
    placed: NumberOf,
    pending: NumberOf,
    holding: int = 0,
    since: float | None = None,
    domain: str = "",
    rest_goes: str = "",
) -> GangState:
    """Return the state of a requirement's gang.

    Args:
        requirement: what is asked for its members.
        placed: members on nodes.
        pending: members without a place.
        holding: members that hold a place and do not bind yet.
        since: Unix seconds at which the first of those began, None where there is none.
        domain: the domain that its members share; "" if there is none.
        rest_goes: when its pods are evicted that run without the others; "" if they are not.
    """
    until = since + requirement.within_seconds if since is not None else None
    roles = []
    for role in requirement.roles:
        on_nodes = placed(role.group_of, role.group)
        there = on_nodes + pending(role.group_of, role.group)
        roles.append(RoleState(role.text, role.number, on_nodes, there))
    tree = requirement.tree
    return GangState(
        str(requirement.group),
        requirement.text,
        requirement.size,
        requirement.members(placed),
        holding,
        requirement.members(pending),
        until,
        tuple(roles),
        domain,
        children=(tree.complete(placed), tree.number) if tree is not None else None,
        rest_goes=rest_goes,
        lacking=tree.lacking(lambda *of: placed(*of) + pending(*of)) if tree is not None else 0,
    )
