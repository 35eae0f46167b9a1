"""A scheduler that is killed in the middle of anything leaves nothing behind that Python complains about."""

from __future__ import annotations

import asyncio
import gc
import warnings

from tests.simulation.calm import Calm, story


def test_a_kill_before_the_first_step_of_an_eviction_leaves_no_coroutine_behind() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("low", millis=2000)
        await calm.after(3)
        scheduler = calm.process.scheduler
        scheduler.lead(False)
        calm.pod("high", millis=2000, priority=9)
        await calm.after(3)
        with warnings.catch_warnings(record=True) as said, calm.process.machine:
            warnings.simplefilter("always")
            scheduler.lead(True)
            scheduler.schedule_batch()
            assert len(scheduler.in_flight) == 1
            calm.process.kill()
            await asyncio.sleep(1)
            gc.collect()
        assert [str(each.message) for each in said] == []

    story("score 1\n", tell, cpus=(2,))
