"""The way of a run in which nobody waits: pods come one by one, and are placed or dropped."""

from __future__ import annotations

from kube_policy_scheduler.tooling.simulation.stage import SAMPLES, Progress, Stage, reason


def place_or_drop(stage: Stage, *, progress: Progress) -> None:
    """Deal with each arrival in turn."""
    arrivals, measures, tally = stage.scenario.arrivals, stage.measures, stage.tally
    every = max(1, len(arrivals) // SAMPLES)
    marks = [mark for mark in stage.scenario.marks if measures.capacity[measures.main.name]]
    for place, arrival in enumerate(arrivals):
        frame = stage.frame(stage.arrive(arrival))
        decision = stage.decide(frame)
        if decision.host is not None:
            stage.place(decision)
        else:
            tally.unplaced(reason(decision))
        while marks and stage.share_arrived() >= marks[0] - 1e-9:
            tally.marks[marks.pop(0)] = measures.used(measures.main)
        if place % every == 0 or place == len(arrivals) - 1:
            stage.sample(frame, at=float(place + 1), pending=sum(tally.reasons.values()))
            progress(place + 1)
