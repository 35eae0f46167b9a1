"""A test run with a probe beside it."""

from __future__ import annotations

from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.coverage.probe import Probe
from kube_policy_scheduler.tooling.tester.playing import Observe
from kube_policy_scheduler.tooling.tester.policies import TestedCompiledPolicy, TestedPolicy
from kube_policy_scheduler.tooling.tester.suite import Case, Kind


def watched_by(probe: Probe, policy_set: PolicySet) -> Observe:
    """Return what a run calls before each decision, so that the probe counts what the policies say."""

    def observe(case: Case, frame: Frame, tested: TestedPolicy) -> None:
        probe.governing(frame, policy_set)
        if isinstance(tested, TestedCompiledPolicy):
            if case.kind is Kind.QUEUE:
                probe.queued(frame, tested.policy)
                return
            probe.decided(frame, tested.policy)
            if tested.hold_reason(frame) is None:
                probe.permitted(frame, tested.policy)

    return observe
