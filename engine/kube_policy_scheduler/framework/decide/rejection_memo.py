"""Rejections kept for the next pods: of many unschedulable pods of one template, one is evaluated.

Kept until the cluster changes. Pods whose result can differ from others of their template are left out:
those with volumes, claims or a nomination, and policies that read more than the template.
"""

from __future__ import annotations

from collections.abc import Container

from kube_policy_scheduler.cluster.footprint import footprint
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.profile import Profile

_MOST = 4096
_MOST_BYTES = 64 * 2**20
"""Of pods, which may be deleted by now, messages, and columns of nodes: with 130,000 nodes 0.4 to 0.6 MB a decision."""


class RejectionMemo:
    """Decisions without a host, by template and profile, for one epoch of the cluster's ledger."""

    def __init__(self, kept: KeptBytes | None = None) -> None:
        """Start without any; kept: bounds them; None: nothing else counts with them."""
        self._kept: KeptView[tuple[PodTemplate, Profile, bool], Decision] = KeptView(
            KeptBytes(_MOST_BYTES) if kept is None else kept, most=_MOST, size_of=lambda _, decision: _size(decision)
        )

    def get(self, pod: PodInfo, profile: Profile, epoch: int, *, preempts: bool = True) -> Decision | None:
        """Return the decision on a pod of the same template, None if there is none since this epoch began.

        preempts: whether the decision included a search for victims.
        """
        if epoch != self._kept.position or not is_alike(pod, profile):
            return None
        return self._kept.get((pod.template, profile, preempts))

    def note(self, decision: Decision, profile: Profile, epoch: int, *, preempts: bool = True) -> None:
        """Keep a decision if it is a rejection without preemption."""
        found = decision.preemption
        acts = found is not None and (found.victims or (found.claims is not None and found.claims.acts))
        if decision.host is None and is_alike(decision.pod, profile) and not acts and not decision.rejected_by:
            self._kept.follow(epoch)
            self._kept.set((decision.pod.template, profile, preempts), decision)

    def clear(self) -> None:
        """Drop all: rules changed, or a pod was placed or displaced where that is only tried out."""
        self._kept.clear()

    def keep_in_use(self, templates: Container[PodTemplate]) -> None:
        """Drop decisions on pods of other templates than these."""
        self._kept.keep_only(lambda key: key[0] in templates)


def _size(decision: Decision) -> int:
    return decision.pod.size + footprint(decision.message, decision.diagnosis)[0]


def is_alike(pod: PodInfo, profile: Profile) -> bool:
    """Return whether a pod gets the same decision as any other of its template, at one moment."""
    is_own = pod.volumes or pod.nominated_node or pod.template.spec.resource_claims
    return profile.by_template and not is_own
