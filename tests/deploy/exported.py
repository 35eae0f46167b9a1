"""Everything that a daemon exports, without one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.daemon.observing.canaries import Canaries
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts, ClauseMetrics
from kube_policy_scheduler.daemon.observing.live_metrics import LiveMetrics, LiveState
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.model_watch import ModelWatch
from kube_policy_scheduler.policy.answer import Answers


def registry() -> CollectorRegistry:
    """Return the registry of a daemon that has decided nothing."""
    found = SchedulerMetrics(version=lambda: "1").registry
    found.register(LiveMetrics(LiveState))
    found.register(ClauseMetrics(ClauseCounts(), policies=lambda: None))
    Canaries(found, ask=Answers().answer, stopwatch=lambda: 0.0)
    ModelWatch(found, pods=environment().pods, stopwatch=lambda: 0.0)
    return found
