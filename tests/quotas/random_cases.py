"""Random clusters, queues and arrivals: small, so that what goes wrong can be read."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.quotas.accounts import Amounts, Budget, Node, Pod, Queue
from tests.quotas.evictions import Reclaim
from tests.quotas.model import Arrival, Case

GPU = "nvidia.com/gpu"
OTHER = "example.com/nic"


def random_case(seed: int) -> Case:
    """Return the case of a seed."""
    chance = Random(seed)
    resources = chance.choice((("cpu",), ("cpu",), (GPU, "cpu"), (GPU, "cpu"), (GPU, OTHER, "cpu"), ("cpu", "pods")))
    nodes = tuple(_node(chance, number, resources) for number in range(chance.choice((1, 1, 1, 2, 3))))
    queues = _queues(chance, resources)
    arrivals = _arrivals(chance, resources, queues)
    end = max(each.at for each in arrivals)
    cordons = tuple((round(chance.uniform(0, end + 5)) + 0.5, node.name) for node in nodes[1:] if chance.random() < 0.2)
    reclaim = chance.choice((Reclaim.NO, Reclaim.GUARANTEES, Reclaim.GUARANTEES, Reclaim.FAIR, Reclaim.FAIR))
    return Case(nodes, queues, arrivals, reclaim, chance.random() < 0.5, cordons)


def varied_case(seed: int) -> Case:
    """Return the case of a seed, in some with PodDisruptionBudgets, in others with a strict order and backfill.

    In some, gangs need a leader.
    """
    case, chance = random_case(seed), Random(f"varied {seed}")
    if Random(f"roles {seed}").random() < 0.25:
        case = replace(case, arrivals=tuple(map(_with_leader, case.arrivals)))
    match chance.choice(("plain", "plain", "budgets", "backfill")):
        case "budgets":
            chosen = [each for each in case.arrivals if chance.random() < 0.5]
            names = (frozenset(pod.name for pod in each.pods) for each in chosen)
            return replace(case, budgets=tuple(Budget(covers, chance.choice((0, 0, 1, 2))) for covers in names))
        case "backfill":
            return _with_backfill(case, chance)
    return case


def _with_leader(arrival: Arrival) -> Arrival:
    """Return a gang of which the first member is a leader, which the gang needs."""
    if not arrival.pods[0].gang:
        return arrival
    pods = (replace(pod, role="worker" if at else "leader") for at, pod in enumerate(arrival.pods))
    return replace(arrival, pods=tuple(replace(pod, needs=(("leader", 1),)) for pod in pods))


def _with_backfill(case: Case, chance: Random) -> Case:
    """Return a case in which nobody is evicted, no two arrivals come at one moment, and most pods end."""
    arrivals = tuple(
        Arrival(
            each.at + number,
            tuple(replace(pod, priority=0) for pod in each.pods),
            chance.choice((None, 20.0, 50.0, 80.0, 200.0)),
        )
        for number, each in enumerate(case.arrivals)
    )
    return replace(case, arrivals=arrivals, reclaim=Reclaim.NO, by_share=False, backfill=True)


def _node(chance: Random, number: int, resources: tuple[str, ...]) -> Node:
    offers = {name: chance.randint(2, 8) * (1000 if name == "cpu" else 1) for name in resources}
    return Node(f"n{number}", {"cpu": 8000, "pods": 110, **offers, "memory": 256 << 30}, chance.random() > 0.05)


def _queues(chance: Random, resources: tuple[str, ...]) -> tuple[Queue, ...]:
    """Return a forest of at most three levels, in which no child is guaranteed more than its parent."""
    made = list[Queue]()
    for top in "abc"[: chance.randint(1, 3)]:
        made.append(_queue(chance, top, "", resources))
        for child in "12"[: chance.choice((0, 0, 0, 1, 2))]:
            made.append(_queue(chance, top + child, top, resources))
            if chance.random() < 0.25:
                made.append(_queue(chance, top + child + "x", top + child, resources))
    return consistent(tuple(made))


def _queue(chance: Random, name: str, parent: str, resources: tuple[str, ...]) -> Queue:
    def some(likely: float, high: int) -> dict[str, int]:
        unit = {resource: 1000 if resource == "cpu" else 1 for resource in resources}
        return {r: chance.randint(1, high) * unit[r] for r in resources if chance.random() < likely}

    low = some(0.5, 4)
    high = {r: max(amount, low.get(r, 0)) for r, amount in some(0.12, 6).items()}
    lends = {r: chance.randint(0, amount // 1000 if r == "cpu" else amount) for r, amount in low.items()}
    lend = {r: amount * (1000 if r == "cpu" else 1) for r, amount in lends.items() if chance.random() < 0.15}
    return Queue(name, parent, low, high, lend, chance.choice((1, 1, 1, 2)))


def consistent(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Return the queues without what the linter rejects: children guaranteed more than their parent, or above a max."""
    by_name = {queue.name: queue for queue in queues}
    for queue in sorted(queues, key=lambda each: len(each.name), reverse=True):
        below = [each for each in by_name.values() if each.parent == queue.name]
        low = dict(by_name[queue.name].minimum)
        for resource in sorted({r for each in below for r in each.minimum}):
            total = sum(each.minimum.get(resource, 0) for each in below)
            if resource in low or by_name[queue.name].parent:
                low[resource] = max(low.get(resource, 0), total)
        by_name[queue.name] = replace(by_name[queue.name], minimum=low)
    for queue in sorted(queues, key=lambda each: len(each.name)):
        mine = by_name[queue.name]
        above = by_name[mine.parent].maximum if mine.parent else {}
        high = {r: max(most, _guaranteed(by_name, mine.name, r)) for r, most in mine.maximum.items()}
        by_name[queue.name] = replace(mine, maximum={r: min(m, above.get(r, m)) for r, m in high.items()})
    return tuple(by_name[queue.name] for queue in queues)


def _guaranteed(by_name: dict[str, Queue], name: str, resource: str) -> int:
    declared = by_name[name].minimum.get(resource)
    if declared is not None:
        return declared
    return sum(_guaranteed(by_name, each.name, resource) for each in by_name.values() if each.parent == name)


def _arrivals(chance: Random, resources: tuple[str, ...], queues: tuple[Queue, ...]) -> tuple[Arrival, ...]:
    made, at = list[Arrival](), 0.0
    for number in range(chance.randint(2, 6)):
        at += chance.choice((0, 0, 1, 10, 40))
        queue = chance.choice([*(each.name for each in queues), *([""] * (chance.random() < 0.3))])
        priority = chance.choice((0, 0, 0, 0, 5, 10))
        size = chance.choice((0, 0, 0, 2, 3))
        count = max(size, chance.randint(1, 6))
        lasts = chance.choice((None, None, None, 25.0, 60.0))
        name = f"{'g' if size else 'p'}{number}"
        kind = Pod(name, _requests(chance, resources), queue, priority, name if size else "", size)
        pods = tuple(replace(kind, name=f"{name}-{each}") for each in range(count))
        made.append(Arrival(at, pods, lasts))
    return tuple(made)


def _requests(chance: Random, resources: tuple[str, ...]) -> Amounts:
    wants = {r: chance.choice((0, 1, 1, 1, 2, 3)) for r in resources if "/" in r}
    cpu = chance.choice((500, 1000, 1000, 1000, 1500, 2000, 3000))
    return {**{r: amount for r, amount in wants.items() if amount}, "cpu": cpu, "memory": 1 << 20, "pods": 1}
