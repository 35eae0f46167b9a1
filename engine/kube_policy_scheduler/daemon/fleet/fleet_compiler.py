"""Compiles what is loaded into policies of workloads."""

from __future__ import annotations

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.daemon.policies.live import PolicyCompiler
from kube_policy_scheduler.daemon.policies.reload import Accepted, Refused
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies

NONE_OF_WORKLOADS = "there is no policy of workloads: begin one with `for workloads where …`"


class FleetCompiler:
    """Compiles sources into policies of workloads."""

    def __init__(self, compile_policies: PolicyCompiler) -> None:
        """Note who compiles policies of all kinds."""
        self._compile = compile_policies

    def __call__(self, sources: PolicySources) -> Accepted[FleetPolicies] | Refused:
        """Return the policies, or what is wrong with the sources.

        Raises:
            WorkerLost: they could not be checked.
        """
        found = self._compile(sources)
        if isinstance(found, Refused):
            return found
        fleet = found.policies.policy_set.fleet
        return Accepted(fleet, found.warnings if fleet.policies else (*found.warnings, NONE_OF_WORKLOADS))
