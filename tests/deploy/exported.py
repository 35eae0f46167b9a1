"""Everything that a daemon exports, without one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from engine.daemon.observing.clause_counts import ClauseCounts
from engine.daemon.observing.clause_metrics import ClauseMetrics
from engine.daemon.observing.metrics import SchedulerMetrics
from engine.daemon.policies.canaries import Canaries
from engine.framework.cycle import Cycle


def registry() -> CollectorRegistry:
    """Return the registry of a daemon that has decided nothing."""
    found = SchedulerMetrics(version="1").registry
    found.register(ClauseMetrics(ClauseCounts(), policies=lambda: None))
    Canaries(found, decide=Cycle().decide, stopwatch=lambda: 0.0)
    return found
