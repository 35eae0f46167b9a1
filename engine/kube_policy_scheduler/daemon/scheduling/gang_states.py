"""How far the gangs have come whose members wait. Looks only; `permitting` carries out what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kube_policy_scheduler.daemon.scheduling.deciding import Deciding
from kube_policy_scheduler.daemon.scheduling.gang_trial import GangTrial
from kube_policy_scheduler.framework.permit import Claim, Permit
from kube_policy_scheduler.framework.queue import QueuedPod, SchedulingQueue
from kube_policy_scheduler.policy.gang_state import GangState, gang_state


class GangStates:
    """Tells of gangs."""

    def __init__(
        self,
        queue: SchedulingQueue,
        *,
        permit: Permit,
        trial: GangTrial,
        deciding: Deciding,
        clock: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._permit = permit
        self._trial = trial
        self._deciding = deciding
        self._clock = clock

    def of(self, queued: QueuedPod) -> tuple[GangState, ...]:
        """Return how far the groups of a pod have come; none where a size has no value: the pod's refusal tells."""
        try:
            return tuple(self._state(claim) for claim in self._deciding.claims(queued))
        except ValueError:
            return ()

    def waits(self, claims: Iterable[Claim], *, joining: int = 1) -> str:
        """Return what a member waits for, for people; joining: whether it has just found a place (1) or not (0)."""
        return "; ".join(self._state(claim, joining=joining).sentence() for claim in claims)

    def _state(self, claim: Claim, *, joining: int = 0) -> GangState:
        """joining: how many pending members are about to get a place."""
        since = self._permit.since(claim.group)
        return gang_state(
            claim,
            placed=self._trial.placed(claim) + joining,
            pending=self._queue.without_place(claim.group) - joining,
            holding=self._permit.number(claim.group) + joining,
            since=self._clock() if since is None and joining else since,
        )
