"""How much of each `limit` that concerns a pod is taken, and what the pod would add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.lang.checked import Quota
from kube_policy_scheduler.lang.types import BYTES
from kube_policy_scheduler.policy.clauses import LimitClause
from kube_policy_scheduler.tooling.why.values import shown


@dataclass(frozen=True, slots=True)
class LimitState:
    """One limit at one moment."""

    clause: str
    place: str
    key: str | None
    """Whose it is; None: of the pods without a key."""
    used: float
    adds: float
    """What the pod counts for."""
    most: float
    bytes: bool

    def sentence(self) -> str:
        """Return it in one sentence, without an end."""
        used, adds, most = (shown(value, as_bytes=self.bytes) for value in (self.used, self.adds, self.most))
        whose = f"{self.key} has" if self.key is not None else "pods without a key have"
        return f"`{self.clause}` ({self.place}): {whose} {used} of {most}, and this pod counts for {adds}"


def limits(frame: Frame, profile: Profile) -> Iterator[LimitState]:
    """Yield the limits that concern a pod, on the cluster without it."""
    for plugin in profile.filters:
        if not isinstance(plugin, LimitClause):
            continue
        clause = plugin.clause
        if clause.condition is not None and not clause.condition(frame):
            continue
        assert isinstance(clause.checked, Quota)
        measure = clause.checked.measure
        used, adds, most = plugin.usage(frame)
        in_bytes = measure is not None and measure.info.type.unit.same_dimension(BYTES)
        key = clause.key(frame)
        yield LimitState(clause.text, str(clause.span), key and str(key), used, adds, most, in_bytes)
