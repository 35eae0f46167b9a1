"""What a neighbour's pod goes through beside a tenant, and the tenant's own."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from kube_policy_scheduler.cluster import objects
from tests.growth.axes import TENANT, Axis, claim, required, term, volume
from tests.growth.stage import Meter, Stage, container


async def life(stage: Stage, meter: Meter, who: str, pod: Any) -> None:
    """Let a pod come, be decided, be bound, and go, each a step."""
    scheduler, event_handlers = stage.scheduler, stage.event_handlers

    def event(name: str, happen: Callable[[], None]) -> None:
        meter.step(f"{who} {name}", lambda: (happen(), stage.move_pods()))

    event("comes", lambda: event_handlers.pod_changed(pod))
    if scheduler.queue.has_active():
        meter.step(f"{who} is decided", stage.decide)
    await scheduler.drained()
    node = stage.node_of(pod)
    if node is not None:
        event("is bound", lambda: event_handlers.pod_changed(stage.on_node(pod, node)))
    event("goes", lambda: event_handlers.pod_deleted(pod))


_BODY: Any = {"metadata": {"labels": {"app": "web"}}}
_APART: Any = {
    "metadata": {"labels": {"app": "apart"}},
    "spec": {
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": {"app": "apart"}},
                            "topologyKey": "kubernetes.io/hostname",
                        },
                    }
                ]
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 100,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "apart"}},
            }
        ],
    },
}


async def _staged() -> Stage:
    """Return a stage with some of the neighbour's pods."""
    stage = Stage()
    for ns in ("neighbour", TENANT):
        stage.event_handlers.object_changed(stage.thing(objects.Namespace, {"metadata": {"name": ns}}))
    for number in range(4):
        stage.place(stage.pod("neighbour", _BODY), number)
    await life(stage, Unmeasured(), "", stage.pod("neighbour", _BODY))
    return stage


async def _come(axis: Axis, n: int, stage: Stage, meter: Meter) -> None:
    """Let a tenant's n things come."""
    if axis.world is not None:
        axis.world(stage, n)
        await stage.scheduler.drained()
    if axis.pod is not None:
        mine = axis.pod(n)
        await life(stage, meter, "own", stage.pod(TENANT, mine))
        await life(stage, meter, "own again", stage.pod(TENANT, mine))
        stage.place(stage.pod(TENANT, mine), 0)
        pending = stage.pod(TENANT, mine, {"metadata": {"name": "pending"}})
        stage.event_handlers.pod_changed(pending)
        stage.decide()
        await stage.scheduler.drained()


async def beside(axis: Axis, n: int, meter: Meter) -> None:
    """Let a tenant with n things and a neighbour live side by side."""
    stage = await _staged()
    await _come(axis, n, stage, meter)
    await life(stage, meter, "known", stage.pod("neighbour", _BODY))
    await life(stage, meter, "new", stage.pod("neighbour", _BODY, {"metadata": {"labels": {"app": "new"}}}))
    await life(stage, meter, "apart", stage.pod("neighbour", _APART))
    big: Any = {"spec": {"containers": [container(cpu="100000")], "priority": 2000}}
    await life(stage, meter, "refused", stage.pod("neighbour", big))
    stage.event_handlers.object_changed(stage.thing(objects.PersistentVolume, volume("pv-neighbour-c")))
    stage.event_handlers.object_changed(
        stage.thing(
            objects.StorageClass,
            {"metadata": {"name": "late"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"},
        )
    )
    meter.step(
        "claim",
        lambda: stage.event_handlers.object_changed(
            stage.thing(objects.PersistentVolumeClaim, claim("c", "neighbour", bound=True))
        ),
    )
    await life(
        stage,
        meter,
        "stores",
        stage.pod("neighbour", {"spec": {"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]}}),
    )
    meter.step("node", lambda: stage.event_handlers.node_changed(stage.node(3, fresh="yes")))
    meter.step(
        "namespace",
        lambda: stage.event_handlers.object_changed(
            stage.thing(objects.Namespace, {"metadata": {"name": "neighbour", "labels": {"x": "y"}}})
        ),
    )
    await life(stage, meter, "after", stage.pod("neighbour", _BODY))
    meter.step("node gone", lambda: stage.event_handlers.node_deleted(stage.node(4)))
    meter.step("node back", lambda: stage.event_handlers.node_changed(stage.node(4)))


async def afterwards(axis: Axis, n: int, meter: Meter) -> None:
    """Let a tenant's n things come and go; then a neighbour, and another pod of the tenant, live."""
    stage = await _staged()
    before = stage.event_handlers.there()
    await _come(axis, n, stage, Unmeasured())
    stage.event_handlers.let_go(but=before)
    stage.move_pods()
    await life(stage, Unmeasured(), "first", stage.pod("neighbour", _BODY))
    await life(stage, meter, "known", stage.pod("neighbour", _BODY))
    await life(stage, meter, "new", stage.pod("neighbour", _BODY, {"metadata": {"labels": {"app": "new"}}}))
    await life(stage, meter, "apart", stage.pod("neighbour", _APART))
    mine: Any = {
        "metadata": {"labels": {"own": "other"}},
        "spec": {
            "affinity": required("podAntiAffinity", [term(10**6, "nowhere")])["spec"]["affinity"],
            "topologySpreadConstraints": _APART["spec"]["topologySpreadConstraints"],
        },
    }
    await life(stage, meter, "the tenant's own", stage.pod(TENANT, mine))
    meter.step("node", lambda: stage.event_handlers.node_changed(stage.node(3, fresh="yes")))
    meter.step("node gone", lambda: stage.event_handlers.node_deleted(stage.node(4)))
    meter.step("node back", lambda: stage.event_handlers.node_changed(stage.node(4)))


async def left_over(axis: Axis, n: int, meter: Meter) -> None:
    """Let a tenant's n things come and go; then count the objects of meanwhile that are still there minutes later."""
    stage = await _staged()
    before = stage.event_handlers.there()
    gc.collect()
    old = gc.get_objects()  # which hold their ids
    known = {id(each) for each in old}
    await _come(axis, n, stage, Unmeasured())
    stage.event_handlers.let_go(but=before)
    stage.move_pods()
    await life(stage, Unmeasured(), "first", stage.pod("neighbour", _BODY))
    stage.let_minutes_pass()
    gc.collect()
    meter.taken["objects"] = sum(id(each) not in known for each in gc.get_objects())


class Unmeasured(Meter):
    """Runs steps, and measures none."""

    def _measured(self, run: Any) -> float:
        run()
        return 0.0


Course = Callable[[Axis, int, Meter], Coroutine[Any, Any, None]]


def measure(axis: Axis, n: int, meter: Meter, course: Course = beside) -> dict[str, float]:
    """Return what each step took with n of the axis's things, or after them."""
    before = logging.root.manager.disable
    logging.disable()
    gc.disable()  # what earlier tests left is collected at any moment, and counts there
    try:
        asyncio.run(course(axis, n, meter))
    finally:
        gc.enable()
        logging.disable(before)
    return meter.taken
