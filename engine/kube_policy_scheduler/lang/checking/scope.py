"""Where an expression stands: which names it sees, and what it may speak about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.types import Depends

_NONE: Mapping[str, typed.Typed] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Scope:
    """The place of an expression."""

    statement: str
    """What people call it: `filter`, `for pods where`."""
    nodes: bool = True
    """Whether there are nodes to speak about."""
    scores: bool = False
    """Whether nodes may be compared with each other."""
    parameters: Mapping[str, typed.Typed] = field(default_factory=lambda: _NONE)
    """Of the `def` that is expanded."""
    items: frozenset[str] = frozenset()
    """Names that stand for an existing pod."""
    item_depends: Depends = Depends.TEMPLATE
    """What may be read of an existing pod."""
    bare_item: bool = False
    """Whether fields of an existing pod are written without a name before them, as in `limit sum(request.cpu)`."""

    def over(self, name: str, *, statement: str) -> Scope:
        """Return the scope inside `… for name in pods`."""
        return replace(self, statement=statement, items=frozenset({name}), nodes=False, scores=False)


ANYWHERE = Scope("let", nodes=True, scores=True)
