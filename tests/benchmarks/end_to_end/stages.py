"""`python -m tests.benchmarks.end_to_end.stages FILE ARGUMENT…`: our daemon, and when each pod passed which stage.

Times are of `time.monotonic`, which the processes of a machine share. They are written when the daemon ends.
"""

from __future__ import annotations

import atexit
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kube_policy_scheduler.adapters.kube.binding import Unknown
from kube_policy_scheduler.adapters.kube.client import Request
from kube_policy_scheduler.cluster.objects import Pod
from kube_policy_scheduler.cluster.objects.likeness import ListedPod
from kube_policy_scheduler.daemon.main import main
from kube_policy_scheduler.daemon.scheduling.context import AssumedPod
from kube_policy_scheduler.daemon.scheduling.event_handlers import EventHandlers
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler

Passed = Mapping[str, Mapping[str, float]]
"""When a pod passed each stage, by its name."""
STAGES = ("received", "decided", "sent")
BINDING = re.compile(r"\S*/pods/([^/\s]+)/binding")

_passed: defaultdict[str, dict[str, float]] = defaultdict(dict)


def _note(name: str, stage: str) -> None:
    _passed[name].setdefault(stage, time.monotonic())


def _watch_stages() -> None:
    """Have the daemon's own steps tell when a pod comes to them."""
    pod_changed, pods_changed = EventHandlers.pod_changed, EventHandlers.pods_changed
    bind, check = Scheduler.start_binding_cycle, Request.check_fence

    def received(self: EventHandlers, pod: Pod | ListedPod) -> None:
        _note(pod.metadata.name, "received")
        pod_changed(self, pod)

    def received_together(self: EventHandlers, pods: Sequence[Pod | ListedPod]) -> None:
        for pod in pods:
            _note(pod.metadata.name, "received")
        pods_changed(self, pods)

    def decided(self: Scheduler, assumed: AssumedPod, *, after: Unknown | None = None) -> None:
        _note(assumed.queued.pod.name, "decided")
        bind(self, assumed, after=after)

    def sent(self: Request) -> None:
        if (found := BINDING.fullmatch(self.path)) is not None:
            _note(found[1], "sent")
        check(self)

    EventHandlers.pod_changed = received  # type: ignore[method-assign]
    EventHandlers.pods_changed = received_together  # type: ignore[method-assign]
    Scheduler.start_binding_cycle = decided  # type: ignore[method-assign]
    Request.check_fence = sent  # type: ignore[method-assign]


def quantiles(created: Mapping[str, float], passed: Passed, bound: Mapping[str, float]) -> dict[str, list[float]]:
    """Return p50, p90 and p99 in ms from stage to stage, of the pods that passed all of them."""
    pods = [name for name in created if name in bound and len(passed.get(name, ())) == len(STAGES)]
    at = {stage: np.array([passed[name][stage] for name in pods]) for stage in STAGES}
    at |= {"created": np.array([created[name] for name in pods]), "bound": np.array([bound[name] for name in pods])}
    steps = {
        "created → received": ("created", "received"),
        "received → decided": ("received", "decided"),
        "decided → sent": ("decided", "sent"),
        "sent → bound": ("sent", "bound"),
        "ours: received → sent": ("received", "sent"),
    }
    return {
        step: [round(float(value), 2) for value in np.percentile((at[end] - at[begin]) * 1e3, (50, 90, 99))]
        for step, (begin, end) in (steps.items() if pods else ())
    }


if __name__ == "__main__":
    _, file, *arguments = sys.argv
    _watch_stages()
    atexit.register(lambda: Path(file).write_text(json.dumps(_passed)))
    main(arguments, prog_name="policy-scheduler")
