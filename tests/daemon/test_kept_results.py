"""What is kept for pods goes once they are gone, in an idle moment."""

from __future__ import annotations

import asyncio
import gc

from tests.growth.stage import Stage, container

MANY = 150
POLICY = "score 100 * (1 - node.used_fraction.cpu)\nspread by pod.label.app\n"


def test_results_kept_for_pods_that_are_gone_are_dropped() -> None:
    async def course() -> tuple[int, int, int]:
        stage = Stage(POLICY)
        scheduler, found = stage.scheduler, []

        def look() -> None:
            stage.now += 60.0
            scheduler.keep_queue()
            gc.collect()
            found.append(scheduler.algorithm.cycle.kept.taken)

        neighbour = stage.pod("neighbour", {"metadata": {"labels": {"app": "web"}}})
        stage.run_pod(neighbour)
        look()
        made = [
            stage.pod(
                "tenant",
                {
                    "metadata": {"labels": {"app": f"x{number}"}},
                    "spec": {
                        "nodeSelector": {"kubernetes.io/hostname": f"n{number % 12}"},
                        "containers": [container()],
                    },
                },
            )
            for number in range(MANY)
        ]
        for pod in made:
            stage.run_pod(pod)
        await scheduler.drained()
        look()
        for pod in made:
            stage.event_handlers.pod_deleted(pod)
        look()
        stage.event_handlers.pod_deleted(neighbour)
        return found[0], found[1], found[2]

    first, while_there, after = asyncio.run(course())
    assert while_there > 4 * first
    assert after < while_there / 3
