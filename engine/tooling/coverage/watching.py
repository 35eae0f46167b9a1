"""A test run with a probe beside it."""

from __future__ import annotations

from engine.framework.frame import Frame
from engine.policy.policy_set import PolicySet
from engine.tooling.coverage.probe import Probe
from engine.tooling.tester.playing import Observe
from engine.tooling.tester.policies import TestedCompiledPolicy, TestedPolicy
from engine.tooling.tester.suite import Case, Kind


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
