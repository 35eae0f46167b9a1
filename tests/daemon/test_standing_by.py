"""A replica that does not lead says nothing of pods, and looks at those it holds as soon as it does."""

from __future__ import annotations

from tests.simulation.calm import Calm, story


def test_only_the_leader_reports_a_held_pod() -> None:
    async def tell(calm: Calm) -> None:
        calm.process.scheduler.lead(False)
        calm.pod("late")
        await calm.after(60)
        assert calm.told.why == {}
        calm.process.scheduler.lead(True)
        await calm.after(1)
        assert calm.told.why == {"late": 'not today. Held by policy p, clause `pod.name == "late"`.'}

    story('hold if pod.name == "late" else "not today"\n', tell, cpus=(4,))
