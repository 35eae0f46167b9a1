"""How the cost of a decision grows: against nodes, pods already placed, distinct templates, and clauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tests.benchmarks.decisions import measure, start
from tests.benchmarks.manifests import Json
from tests.benchmarks.policies import policy_text, profile_of
from tests.benchmarks.reference import Reference
from tests.benchmarks.workloads import MakePod, Workload, named

NODES = (100, 300, 1_000, 3_000, 10_000, 20_000)
PLACED = (0, 1_000, 10_000, 50_000, 100_000)
TEMPLATES = (1, 10, 100, 1_000, 10_000)
ALLOCATED = (0, 1_000, 4_000, 16_000, 32_000)
CLAUSES = (1, 2, 5, 10, 20, 40)


@dataclass(frozen=True)
class Curve:
    """One workload along one axis."""

    axis: str
    label: str
    xs: tuple[int, ...]
    cpu_us: tuple[float, ...]
    """CPU time per decision."""
    relative: tuple[float, ...]
    """The same in turns of the reference loop."""


def curves(reference: Reference, *, at_least: int) -> list[Curve]:
    """Measure all curves."""
    found = []
    for name in ("SchedulingBasic", "OwnRequests", "TopologySpreading", "SchedulingPodAffinity", "PolicyOf20Clauses"):
        points = [Point(x, named(name), nodes=x) for x in NODES]
        found.append(_curve("nodes", name, points, reference, at_least=at_least))
    for name in ("SchedulingBasic", "TopologySpreading", "SchedulingPodAffinity", "PolicyOf20Clauses"):
        crowded = replace(named(name), make_placed=named(name).make_pod)
        points = [Point(x, crowded, placed=x) for x in PLACED]
        found.append(_curve("pods placed", name, points, reference, at_least=at_least))
    for name, label in (("OwnLabels", "labels"), ("OwnRequests", "labels, requests"), ("OwnEverything", "everything")):
        points = [Point(x, replace(named(name), make_pod=_again(named(name), x)), placed=0) for x in TEMPLATES]
        found.append(_curve("templates", f"{label} differ", points, reference, at_least=max(at_least, 1_000)))
    claiming = named("SchedulingWithResourceClaimTemplate")
    points = [Point(x, claiming, placed=x) for x in ALLOCATED]
    found.append(_curve("claims allocated", claiming.name, points, reference, at_least=at_least))
    policy = named("PolicyOf20Clauses")
    points = [Point(x, replace(policy, profile=partial(profile_of, policy_text(x)))) for x in CLAUSES]
    found.append(_curve("clauses", "policy with metrics", points, reference, at_least=at_least))
    return found


@dataclass(frozen=True)
class Point:
    """What is measured for one place of a curve."""

    x: int
    workload: Workload
    nodes: int = 5_000
    placed: int | None = None
    """None: as the workload says."""


def _curve(axis: str, label: str, points: Sequence[Point], reference: Reference, *, at_least: int) -> Curve:
    measured = [
        measure(start(point.workload, nodes=point.nodes, placed=point.placed), reference, at_least=at_least)
        for point in points
    ]
    xs = tuple(point.x for point in points)
    return Curve(axis, label, xs, tuple(m.cpu_us for m in measured), tuple(m.relative for m in measured))


def _again(workload: Workload, templates: int) -> MakePod:
    """Return pods of so many templates in turn."""

    def make(number: int) -> Json:
        manifest = workload.make_pod(number % templates)
        manifest["metadata"] |= {"name": f"pod-{number}", "uid": f"pod-{number}"}
        return manifest

    return make
