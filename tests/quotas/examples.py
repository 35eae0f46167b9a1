"""Cases whose outcome was worked out by hand; the model and the scheduler must both agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.quotas.accounts import Amounts, Node, Pod, Queue
from tests.quotas.evictions import Reclaim
from tests.quotas.model import Arrival, Case

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Example:
    """A case, and what must come of it."""

    case: Case
    used: Mapping[str, int] = field(default_factory=dict)
    """By queue, of the resource `of`."""
    evicted: Mapping[str, int] = field(default_factory=dict)
    """Pods by queue; others have none."""
    pending: int = 0
    of: str = "cpu"


def cpu(whole: float, gpus: int = 0) -> Amounts:
    """Return an amount of cpu and GPUs."""
    return {"cpu": round(whole * 1000)} | ({GPU: gpus} if gpus else {})


def node(whole: float, gpus: int = 0, *, name: str = "n0", usable: bool = True, rack: str = "") -> Node:
    """Return a node that has enough of everything else."""
    return Node(name, {**cpu(whole, gpus), "memory": 256 << 30, "pods": 110}, usable, rack)


def few_pods(of: Node, most: int) -> Node:
    """Return a node with room for fewer pods."""
    return replace(of, offers={**of.offers, "pods": most})


def pods(
    name: str, count: int, queue: str, whole: float = 1, gpus: int = 0, *, at: float = 0, lasts: float | None = None,
    priority: int = 0, size: int = 0, gang: str = "", role: str = "", needs: Mapping[str, int] | None = None,
) -> Arrival:  # fmt: skip
    """Return equal pods; with a size, a gang."""
    asks = {**cpu(whole, gpus), "memory": 1 << 20, "pods": 1}
    gang = gang or (name if size else "")
    each = Pod(name, asks, queue, priority, gang, size, role, tuple((needs or {}).items()), rack=bool(needs))
    return Arrival(at, tuple(_named(each, f"{name}-{number}") for number in range(count)), lasts)


def _named(pod: Pod, name: str) -> Pod:
    return Pod(name, pod.requests, pod.queue, pod.priority, pod.gang, pod.size, pod.role, pod.needs, pod.rack)


def queue(
    name: str, parent: str = "", *, cpus: float | None = None, gpus: int | None = None, most: float | None = None,
    lends: float | None = None, weight: int = 1,
) -> Queue:  # fmt: skip
    """Return a queue with guarantees; the GPUs are declared first."""
    low: dict[str, int] = {}
    if gpus is not None:
        low[GPU] = gpus
    if cpus is not None:
        low["cpu"] = round(cpus * 1000)
    high = {"cpu": round(most * 1000)} if most is not None else {}
    return Queue(name, parent, low, high, {"cpu": round(lends * 1000)} if lends is not None else {}, weight)


def _case(*parts: Node | Queue | Arrival, reclaim: Reclaim = Reclaim.GUARANTEES, by_share: bool = False) -> Case:
    return Case(
        tuple(part for part in parts if isinstance(part, Node)),
        tuple(part for part in parts if isinstance(part, Queue)),
        tuple(part for part in parts if isinstance(part, Arrival)),
        reclaim,
        by_share,
    )


FAIR = Reclaim.FAIR
_JOB = {"leader": 1, "worker": 2}

EXAMPLES: dict[str, Example] = {
    "a burst takes no more than the guarantee": Example(
        _case(node(8), queue("c1", cpus=4), queue("c2"), pods("o", 8, "c2"), pods("m", 8, "c1", at=6)),
        {"c1": 4000, "c2": 4000}, {"c2": 4}, 8,
    ),
    "a guarantee of GPUs holds although cpu is borrowed": Example(
        _case(
            node(64, 8), queue("lab", gpus=4, cpus=16), queue("prod", gpus=4),
            pods("study", 8, "lab", 1, 1), pods("serve", 4, "prod", 2, 1, at=60), by_share=True,
        ),
        {"lab": 4, "prod": 4}, {"lab": 4}, 4, GPU,
    ),
    "who borrows what is short goes, not who borrows something else": Example(
        _case(
            node(16, 8), queue("lab", gpus=4, cpus=2), queue("prod", gpus=4, cpus=4), queue("rest"),
            pods("study", 4, "lab", 3, 1), pods("misc", 4, "rest", 0.5, 1), pods("serve", 1, "prod", 1, 1, at=60),
            by_share=True,
        ),
        {"lab": 4, "prod": 1, "rest": 3}, {"rest": 1}, 1, GPU,
    ),
    "a guarantee of cpu takes no guaranteed GPUs": Example(
        _case(
            node(20, 8), queue("lab", gpus=4, cpus=16), queue("prod", gpus=4),
            pods("serve", 4, "prod", 4, 1), pods("batch", 8, "lab", at=60), by_share=True,
        ),
        {"lab": 4000, "prod": 16000}, {}, 4,
    ),
    "a priority takes no guarantee of another queue": Example(
        _case(
            node(16, 6), queue("a", gpus=2, cpus=3), queue("c", gpus=4, cpus=5),
            pods("a", 2, "a", 2, 1), pods("c", 2, "c", 2, 3, at=10, priority=10),
        ),
        {"a": 2, "c": 3}, {}, 1, GPU,
    ),
    "fair shares count what is short, not what a queue borrows beside it": Example(
        _case(
            node(10.5, 8), queue("a", gpus=5, cpus=4), queue("b", gpus=1),
            pods("a", 5, "a", 2, 1), pods("b", 4, "b", 0.1, 1, at=10), reclaim=FAIR, by_share=True,
        ),
        {"a": 5, "b": 3}, {}, 1, GPU,
    ),
    "two elastic gangs come to rest": Example(
        _case(
            node(8), queue("d"), queue("a"), pods("j1", 5, "d", 1.5, size=2), pods("j2", 5, "a", 1.5, at=10, size=2),
            reclaim=FAIR, by_share=True,
        ),
        {"d": 4500, "a": 3000}, {"d": 2}, 5,
    ),
    "with fair shares, priorities do not cross queues": Example(
        _case(
            node(8), queue("x", most=100), queue("y"), pods("y", 8, "y"), pods("x", 8, "x", at=10, priority=10),
            reclaim=FAIR, by_share=True,
        ),
        {"x": 4000, "y": 4000}, {"y": 4}, 8,
    ),
    "a surplus member goes before its gang": Example(
        _case(
            node(11), queue("qa", cpus=2), queue("qb", cpus=9), pods("v", 11, "qa", size=4), pods("w", 1, "qb", at=60),
            by_share=True,
        ),
        {"qa": 10000, "qb": 1000}, {"qa": 1}, 1,
    ),
    "a gang that cannot work goes whole": Example(
        _case(
            node(11), queue("qa", cpus=2), queue("qb", cpus=9), pods("v", 11, "qa", size=4),
            pods("w", 1, "qb", 8, at=60), by_share=True,
        ),
        {"qa": 0, "qb": 8000}, {"qa": 11}, 11,
    ),
    "surplus members start with their gang": Example(
        _case(node(8), pods("big", 1, "", 6, lasts=1000), pods("m", 5, "", at=1, size=3), reclaim=Reclaim.NO),
    ),
    "a gang that does not fit holds nothing": Example(
        _case(
            *(node(4, name=f"n{number:02}") for number in range(11)), pods("h", 12, "", 4, size=12),
            pods("g", 3, "", 4, at=1, size=3), reclaim=Reclaim.NO,
        ),
        pending=12,
    ),
    "a gang above its guarantee borrows as a whole": Example(
        _case(node(8), queue("f", cpus=4), queue("b"), pods("b", 8, "b"), pods("x", 6, "f", at=5, size=6)),
        {"f": 0, "b": 8000}, {}, 6,
    ),
    "leader and workers are seated together": Example(
        _case(
            *(node(3, name=f"r1{n}", rack="r1") for n in "ab"),
            *(node(3, name=f"r2{n}", rack="r2") for n in "ab"), node(2, name="r2c", rack="r2"),
            pods("l", 1, "", 2, size=3, gang="x", role="leader", needs=_JOB),
            pods("w", 2, "", 3, size=3, gang="x", role="worker", needs=_JOB), reclaim=Reclaim.NO,
        ),
    ),
    "what is kept is kept on usable nodes": Example(
        _case(
            node(4), node(4, name="n1", usable=False), queue("a", cpus=4, lends=0), queue("b"), pods("b", 4, "b"),
            pods("a", 4, "a", at=10), reclaim=Reclaim.NO,
        ),
        {"a": 4000, "b": 0}, {}, 4,
    ),
    "what pods of no queue use cannot be kept": Example(
        _case(
            node(8), queue("a", cpus=4, lends=0), queue("b"), pods("sys", 2, ""), pods("b", 8, "b", at=1),
            pods("a", 4, "a", at=10), reclaim=Reclaim.NO,
        ),
        {"a": 4000, "b": 2000}, {}, 6,
    ),
    "the guarantee of a parent serves its children": Example(
        _case(
            node(8), queue("a", cpus=6), queue("a1", "a", cpus=2), queue("a2", "a"), queue("b"), pods("b", 8, "b"),
            pods("a2", 4, "a2", at=5), by_share=True,
        ),
        {"a2": 4000, "b": 4000}, {"b": 4}, 4,
    ),
    "who would borrow takes no guaranteed place, not even in its own queue": Example(
        _case(
            node(2), queue("f", cpus=1), queue("r"), pods("u", 1, "f"), pods("x", 1, "r", at=1),
            pods("p", 1, "f", 2, at=10, priority=10),
        ),
        {"f": 1000, "r": 1000}, {}, 1,
    ),
    "a guarantee comes before priorities": Example(
        _case(
            node(8), queue("a", cpus=4), queue("b"), pods("b", 8, "b", priority=100), pods("a", 6, "a", at=10),
            by_share=True,
        ),
        {"a": 4000, "b": 4000}, {"b": 4}, 6,
    ),
    "pods below a parent within its guarantee stay": Example(
        _case(
            node(8), queue("a", cpus=6), queue("a1", "a"), queue("b", cpus=2), queue("c"), pods("a1", 6, "a1"),
            pods("c", 2, "c"), pods("b", 2, "b", at=5),
        ),
        {"a1": 6000, "b": 2000, "c": 0}, {"c": 2}, 2,
    ),
    "a max of a queue is a matter of the queue": Example(
        _case(
            node(8), queue("a", most=2), queue("b"), pods("low", 2, "a"), pods("b", 4, "b"),
            pods("high", 1, "a", at=10, priority=10),
        ),
        {"a": 2000, "b": 4000}, {"a": 1}, 1,
    ),
    "a guarantee of GPUs is stronger than one of cpu": Example(
        _case(
            node(64, 8), queue("f", gpus=4), queue("g", cpus=16), pods("g", 8, "g", 1, 1),
            pods("f", 5, "f", 1, 1, at=10),
        ),
        {"f": 4, "g": 4}, {"g": 4}, 5, GPU,
    ),
    "pods of a parent itself give way to its children": Example(
        _case(
            node(8), queue("a", cpus=6), queue("a1", "a", cpus=2), pods("own", 8, "a"), pods("a1", 3, "a1", at=5),
        ),
        {"a": 8000, "a1": 2000}, {"a": 2}, 3,
    ),
    "what goes below a common parent lets its guarantee count against others": Example(
        _case(
            node(5, 4), queue("a"), queue("a1", "a", gpus=4), queue("c"), pods("own", 1, "a", 1, 1),
            pods("c", 1, "c", 1, 3, priority=10), pods("g", 2, "a1", 0.5, 2, at=10, size=2),
        ),
        {"a": 4, "a1": 4, "c": 0}, {"a": 1, "c": 1}, 2, GPU,
    ),
    "a gang is short of one resource on the nodes that it gets, and of others elsewhere": Example(
        _case(
            node(8, 6), node(2, 2, name="n1"), node(6, 5, name="n2"), queue("b"), queue("c", gpus=2, cpus=3),
            pods("b", 3, "b", 1, 3), pods("g", 2, "c", 3, 1, at=10, size=2),
        ),
        {"b": 6, "c": 2}, {"b": 1}, 1, GPU,
    ),
    "surplus on other nodes goes before a gang does": Example(
        _case(
            few_pods(node(5), 3), few_pods(node(8, name="n1"), 7), queue("a", most=3), pods("g", 5, "a", 0.5, size=3),
            pods("high", 1, "a", 1.5, at=10, priority=5),
        ),
        {"a": 3000}, {"a": 2}, 2,
    ),
}  # fmt: skip
