"""The policies in force, as the scheduler asks for them; compiling is the language's business."""

from __future__ import annotations

from collections.abc import Iterable

from engine.adapters.policy_sources import PolicySources
from engine.cluster.pods import PodInfo
from engine.cluster.signals import Query
from engine.daemon.reload import Accepted, Refused
from engine.daemon.settings import Settings
from engine.framework.kubernetes import kubernetes_profile
from engine.framework.profile import Profile


class LivePolicies:
    """One policy set, with the daemon's defaults applied."""

    def __init__(self, settings: Settings) -> None:
        self._names = frozenset(settings.scheduler_names)
        self._profile = kubernetes_profile()
        self.queries: Iterable[Query] = ()

    def serves(self, pod: PodInfo) -> bool:
        """Return whether the pod asks for a scheduler that we are."""
        return pod.scheduler_name in self._names

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile that places the pod."""
        return self._profile


class PolicyCompiler:
    """Compiles sources into a live policy set."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, sources: PolicySources) -> Accepted[LivePolicies] | Refused:
        """Return the set, or what is wrong with the sources."""
        return Accepted(LivePolicies(self._settings))
