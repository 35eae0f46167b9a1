"""New metric values are mapped to nodes when they arrive; missing values are known before the next decision."""

from __future__ import annotations

from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from tests.simulation.calm import Calm, story

POLICY = 'score promql("load")\n'


def test_missing_values_are_counted_as_soon_as_readings_come() -> None:
    async def tell(calm: Calm) -> None:
        await calm.after(3)
        now = calm.server.now()
        series = tuple(Series({"node": name}, 0.5, now) for name in ("n0", "n1"))
        reading = Reading("load", series, evaluated_at=now, fetched_at=now)
        calm.process.scheduler.use_signals(Signals.of((reading,)))
        assert calm.process.scheduler.algorithm.missing_nodes() == {"load": 1}
        calm.process.scheduler.use_signals(Signals.EMPTY)
        assert calm.process.scheduler.algorithm.missing_nodes() == {"load": 3}

    story(POLICY, tell, cpus=(1, 1, 1))
