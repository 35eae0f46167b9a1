"""Faults on order: what a test wants to go wrong, how often, and for which requests. Deterministic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.errors import ApiError
from kube_policy_scheduler.embedded.requests import Target

Effect = Literal["status", "hang", "latency", "cut", "drop-answer", "gone-event"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    `status` answers with `code` and does nothing; `hang` never answers (or after `seconds`); `latency` answers
    `seconds` late; `cut` ends the connection in the middle of the answer, in a watch in the middle of a line;
    `drop-answer` does the work and ends the connection without an answer; `gone-event` ends a watch with an ERROR
    event of code 410.
    """

    effect: Effect
    verb: str = "*"
    resource: str = "*"
    """Plural, with the subresource behind a slash: `pods`, `pods/binding`."""
    name: str = "*"
    code: int = 500
    retry_after_seconds: int | None = None
    seconds: float | None = None
    times: int | None = 1
    """How many matching requests it strikes; None: all."""
    skip: int = 0
    """How many matching requests it lets pass first."""
    after_bytes: int = 0
    """For `cut`: how much of the answer is sent at least; more only up to the middle of the next line."""

    def matches(self, target: Target) -> bool:
        """Whether a request is of those it strikes."""
        resource = target.resource.plural + (f"/{target.subresource}" if target.subresource else "")
        wanted = ((self.verb, target.verb), (self.resource, resource), (self.name, target.name))
        return all(want in ("*", have) for want, have in wanted)


class FaultInjector:
    """The faults a server still has to commit, in the order they were added."""

    def __init__(self) -> None:
        self._pending: list[tuple[Fault, list[int]]] = []

    def add(self, fault: Fault) -> None:
        """Order a fault."""
        self._pending.append((fault, [0]))

    def clear(self) -> None:
        """Cancel all faults."""
        self._pending.clear()

    def struck(self) -> int:
        """Return how many requests were struck by faults that are still ordered."""
        return sum(max(seen[0] - fault.skip, 0) for fault, seen in self._pending)

    def take(self, target: Target) -> Fault | None:
        """Return the fault that strikes a request, and count it."""
        for fault, seen in self._pending:
            if not fault.matches(target):
                continue
            if fault.times is not None and seen[0] >= fault.skip + fault.times:
                continue
            seen[0] += 1
            if seen[0] > fault.skip:
                return fault
        return None


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def failure(fault: Fault, target: Target) -> ApiError:
    """Return the answer of a fault whose effect is `status`."""
    resource = target.resource
    seconds = fault.retry_after_seconds
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    details = {"kind": resource.plural} if seconds is None else {"retryAfterSeconds": seconds}
    if fault.code == 409:
        return errors.modified(target.name, group=resource.group, plural=resource.plural)
    return ApiError(
        fault.code, _REASONS.get(fault.code, ""), f"injected fault {fault.code}", details=details, headers=headers
    )
