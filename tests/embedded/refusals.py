"""Requests that the embedded API server refuses because a test wants it. Worse faults: `tests/integration/front.py`."""

from __future__ import annotations

from dataclasses import dataclass

from kube_policy_scheduler.embedded.errors import ApiError
from kube_policy_scheduler.embedded.requests import Target

_REASONS = {410: "Expired", 500: "InternalError"}


@dataclass(slots=True)
class _Refusal:
    verb: str
    resource: str
    code: int
    skip: int
    times: float


class Refusals:
    """For `EmbeddedCluster(intercept=...)`."""

    def __init__(self) -> None:
        self._ordered: list[_Refusal] = []

    def add(self, verb: str, resource: str, *, code: int = 500, skip: int = 0, times: float = 1) -> None:
        """Refuse as many requests for a resource (plural), after some that pass."""
        self._ordered.append(_Refusal(verb, resource, code, skip, times))

    def clear(self) -> None:
        self._ordered.clear()

    def __call__(self, target: Target) -> None:
        for refusal in self._ordered:
            if (refusal.verb, refusal.resource) != (target.verb, target.resource.plural) or refusal.times <= 0:
                continue
            if refusal.skip > 0:
                refusal.skip -= 1
                continue
            refusal.times -= 1
            raise ApiError(refusal.code, _REASONS[refusal.code], "refused for a test", details={})
