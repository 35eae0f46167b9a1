"""What always holds of quotas with borrowing: whole gangs, fair shares, decisions that do not depend on the order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaUsage
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from tests.policy.queue_worlds import GPU, World
from tests.simulation.calm import Calm, story

GANG = "gang by pod.label.job size number(pod.label.size) within 30s if pod.label.job\n"

# --- gangs ---------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(
    mins=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    most=st.tuples(st.one_of(st.none(), st.integers(1, 6)), st.one_of(st.none(), st.integers(1, 6))),
    top=st.integers(4, 9),
    gangs=st.lists(
        st.tuples(st.sampled_from(["a", "b", "ab"]), st.integers(1, 4), st.integers(0, 1), st.integers(0, 5)),
        min_size=1,
        max_size=7,
    ),
    reclaim=st.sampled_from(["", "reclaim\n", "reclaim fair after 5s\n"]),
)
def test_gangs_are_charged_whole_and_never_run_in_part(
    mins: tuple[int, int],
    most: tuple[int | None, int | None],
    top: int,
    gangs: Sequence[tuple[str, int, int, int]],
    reclaim: str,
) -> None:
    """Invariant 7: a gang, whose members may be of two queues, has all the nodes that it needs, or holds none."""
    lines = [f"queue all max cpu {top}"]
    for name, low, high in zip("ab", mins, most, strict=True):
        amounts = f" min cpu {low}" + (f" max cpu {max(low, high)}" if high is not None else "")
        lines.append(f'queue {name} of all for pods where pod.label.q == "{name}"{amounts}')
    if sum(mins) > top:
        lines[0] = f"queue all max cpu {sum(mins)}"

    async def tell(calm: Calm) -> None:
        sizes: dict[str, int] = {}
        for number, (where, size, more, pause) in enumerate(gangs):
            sizes[f"g{number}"] = size
            for member in range(size + more):
                labels = {"q": where[member % len(where)], "job": f"g{number}", "size": str(size)}
                calm.pod(f"g{number}-{member}", **labels)
            await calm.after(pause)
        for _ in range(3):
            await calm.after(90)
            whole(calm, sizes)
            ended = next((name for name in calm.on_nodes()), None)
            if ended is not None:
                job = ended.partition("-")[0]
                for name in [name for name in calm.server.pods if name.partition("-")[0] == job]:
                    calm.server.delete_pod(name)

    def whole(calm: Calm, sizes: Mapping[str, int]) -> None:
        there = Counter(name.partition("-")[0] for name in calm.on_nodes())
        parts = {job: number for job, number in there.items() if number < sizes[job]}
        assert parts == {}, f"run in part: {parts}"
        assert calm.waiting() == [], "holds quota and nodes for a gang that does not start"
        usage = calm.process.scheduler.cluster.quota_usage
        for queue in usage.queues() if usage is not None else ():
            assert all(used <= limit for used, limit in zip(queue.used, queue.maximum, strict=True)), queue

    story("\n".join(lines) + "\n" + GANG + reclaim, tell, cpus=(4, 4, 4))


# --- fair shares of one resource -----------------------------------------------------------------------------


def filled(world: World, pods: Sequence[tuple[str, int]]) -> None:
    """Let a world serve pods of queues, so many of each in this order, from the real queue of pending pods."""
    policy = world.rules.policies[0]

    queue = SchedulingQueue(position=lambda queued: policy.position(queued, world.frame(queued.pod)))
    for name, number in pods:
        for _ in range(number):
            pod = world.pod(name)
            world.queued[pod.uid] = world.now
            queue.add(pod, world.now)
    while (queued := queue.pop(world.now)) is not None:
        decision = world.cycle.decide(world.frame(queued.pod), policy.profile)
        if decision.host is None:
            queue.remove(queued.pod.uid)
        else:
            world.cluster.place(queued.pod, decision.host)
            queue.done(queued.pod.uid)


LEAVES = ("a", "b", "c", "d")
"""`a` and `b` are below `p`, the others below `r`, if there are departments."""


def forest(
    weights: Sequence[int],
    mins: Sequence[int] = (0,) * 6,
    most: Sequence[int | None] = (None,) * 4,
    *,
    departments: bool,
    order: bool = True,
    reclaim: str = "",
) -> str:
    """Return a policy with four queues, below two departments or not; the last two weights are of departments."""
    labels = [f'pod.label.q == "{name}"' for name in LEAVES]
    lines = []
    if departments:
        for name, weight, (first, second) in zip("pr", weights[4:], (labels[:2], labels[2:]), strict=True):
            lines.append(f"queue {name} for pods where {first} or {second} weight {weight}")
    for at, (name, weight, low, high) in enumerate(zip(LEAVES, weights, mins, most, strict=False)):
        parent = f" of {'p' if at < 2 else 'r'}" if departments else ""
        limit = f" max {GPU} {high * 1000}" if high is not None else ""
        low = min(low, high) if high is not None else low
        lines.append(f"queue {name}{parent} for pods where {labels[at]} min {GPU} {low * 1000}{limit} weight {weight}")
    if order:
        lines.append("order by queue.share, pod.queued")
    return "\n".join([*lines, reclaim, "filter true", ""])


def used(world: World) -> dict[str, int]:
    return {name: round(world.used(name)[0]) for name in LEAVES}


_weights = st.tuples(*[st.integers(1, 4)] * 6)
_mins = st.tuples(*[st.integers(0, 2)] * 4)
_most = st.tuples(*[st.one_of(st.none(), st.integers(1, 6))] * 4)
_demands = st.tuples(*[st.integers(0, 9)] * 4)


@given(
    weights=_weights, mins=_mins, most=_most, demands=_demands, capacity=st.integers(8, 16), departments=st.booleans()
)
def test_no_queue_has_more_than_its_weighted_share_and_one_pod_while_others_wait(
    weights: Sequence[int],
    mins: Sequence[int],
    most: Sequence[int | None],
    demands: Sequence[int],
    capacity: int,
    departments: bool,
) -> None:
    """Invariant 9, one resource, at each level of the tree: weighted max-min above the guarantees, within one pod."""
    world = World.of(forest(weights, mins, most, departments=departments), capacity)
    filled(world, list(zip(LEAVES, demands, strict=True)))

    there = used(world)
    limits = {n: d if m is None else min(d, m) for n, d, m in zip(LEAVES, demands, most, strict=True)}
    unsatisfied = {name for name in LEAVES if there[name] < limits[name]}
    assert sum(there.values()) == min(capacity, sum(limits.values())), "room is left"
    for first, second in _siblings(departments):
        for one, other in ((first, second), (second, first)):
            if unsatisfied & set(_leaves(other)):
                x, y = world.queue(one), world.queue(other)
                ours = max(0, x.over(0)) / 1000 / x.weight
                theirs = (max(0, y.over(0) + 1000)) / 1000 / y.weight
                assert ours <= theirs + 1e-9, f"{one} has {there}, while {other} waits"


def _siblings(departments: bool) -> list[tuple[str, str]]:
    if departments:
        return [("p", "r"), ("a", "b"), ("c", "d")]
    return [(x, y) for at, x in enumerate(LEAVES) for y in LEAVES[at + 1 :]]


def _leaves(name: str) -> str:
    return {"p": "ab", "r": "cd"}.get(name, name)


@given(demands=_demands, capacity=st.integers(1, 16))
def test_equal_queues_get_their_max_min_share(demands: Sequence[int], capacity: int) -> None:
    """Invariant 9: within one pod of what pouring water gives."""
    world = World.of(forest((1,) * 6, departments=False), capacity)
    filled(world, list(zip(LEAVES, demands, strict=True)))

    left, level, waiting = float(min(capacity, sum(demands))), 0.0, sorted(demands)
    for at, demand in enumerate(waiting):
        step = min(demand - level, left / (len(waiting) - at))
        left -= step * (len(waiting) - at)
        level += step
        if left <= 1e-9:
            break
    for name, demand in zip(LEAVES, demands, strict=True):
        assert abs(used(world)[name] - min(demand, level)) < 1


@given(
    weights=_weights,
    mins=_mins,
    demands=_demands,
    capacity=st.integers(8, 16),
    departments=st.booleans(),
    greedy=st.sampled_from(LEAVES),
    more=st.integers(1, 5),
)
def test_overclaiming_gains_nothing_and_more_capacity_harms_nobody(
    weights: Sequence[int],
    mins: Sequence[int],
    demands: Sequence[int],
    capacity: int,
    departments: bool,
    greedy: str,
    more: int,
) -> None:
    """Invariant 9, exactly: the fair order is the same, and only its end moves."""
    text, asked = forest(weights, mins, departments=departments), list(zip(LEAVES, demands, strict=True))
    worlds = [World.of(text, capacity), World.of(text, capacity), World.of(text, capacity + more)]
    for world, pods in zip(worlds, (asked, [*asked, (greedy, more)], asked), strict=True):
        filled(world, pods)
    plain, overclaimed, larger = map(used, worlds)
    if plain[greedy] < dict(asked)[greedy]:
        assert overclaimed == plain
    assert all(larger[name] >= plain[name] for name in LEAVES)


# --- order and chance ----------------------------------------------------------------------------------------


@given(
    weights=_weights,
    mins=_mins,
    demands=_demands,
    capacity=st.integers(8, 16),
    departments=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_equal_arrivals_in_another_order_give_the_same_totals(
    weights: Sequence[int], mins: Sequence[int], demands: Sequence[int], capacity: int, departments: bool, seed: int
) -> None:
    """Invariant 10: only the last pod of queues with equal shares depends on who asked first."""
    text = forest(weights, mins, departments=departments)
    pods = [(name, 1) for name, number in zip(LEAVES, demands, strict=True) for _ in range(number)]
    first, second = World.of(text, capacity), World.of(text, capacity)
    filled(first, pods)
    filled(second, Random(seed).sample(pods, len(pods)))
    totals, others = used(first), used(second)
    assert sum(totals.values()) == sum(others.values())
    assert all(abs(totals[name] - others[name]) <= 1 for name in LEAVES), (totals, others)


@settings(max_examples=15, deadline=None)
@given(
    mins=_mins,
    arrivals=st.lists(st.tuples(st.sampled_from(LEAVES), st.integers(1, 6)), min_size=2, max_size=6),
    capacity=st.integers(8, 12),
    seed=st.integers(0, 2**16),
)
def test_with_fair_reclaim_it_does_not_matter_who_came_first(
    mins: Sequence[int], arrivals: Sequence[tuple[str, int]], capacity: int, seed: int
) -> None:
    """Invariant 10: what came first gives back, so all orders of arrival settle at the same totals, within one pod."""
    text = forest((1,) * 6, mins, departments=False, order=False, reclaim="reclaim fair")
    totals = []
    for order in (arrivals, Random(seed).sample(list(arrivals), len(arrivals))):
        world = World.of(text, capacity)
        for name, number in order:
            world.asks(name, *[1] * number)
        world.check()
        totals.append(used(world))
    assert sum(totals[0].values()) == sum(totals[1].values())
    assert all(abs(totals[0][name] - totals[1][name]) <= 1 for name in LEAVES), totals


@given(
    running=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 0, 0, 1])), min_size=4, max_size=8),
    asks=st.integers(1, 2),
    keyed=st.booleans(),
    fair=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_the_same_state_gives_the_same_victims(
    running: Sequence[tuple[str, int]], asks: int, keyed: bool, fair: bool, seed: int
) -> None:
    """Invariant 10: however the state came about, whatever the seed of the cycle."""
    kinds = ("by pod.label.q",) if keyed else tuple(f'for pods where pod.label.q == "{name}"' for name in "abcz")
    text = "".join(f"queue q{number} {kind} min {GPU} 1000\n" for number, kind in enumerate(kinds))
    text += f"reclaim{' fair' if fair else ''}\nfilter true\n"
    found = []
    for at in (0, 1):
        world = World.of(text, len(running))
        world.cycle = Cycle(seed=at)
        pods = [world.pod(name, priority=priority) for name, priority in running]
        for pod in pods if not at else Random(seed).sample(pods, len(pods)):
            world.cluster.place(pod, "n0")
        asker = world.pod("z", asks, priority=1)
        world.queued[asker.uid] = world.now
        decision = world.cycle.decide(world.frame(asker), world.rules.policies[0].profile)
        victims = decision.preemption.victims if decision.preemption is not None else ()
        found.append((decision.host, decision.message, [victim.name for victim in victims]))
    assert found[0] == found[1]


@settings(max_examples=15, deadline=None)
@given(
    weights=_weights,
    arrivals=st.lists(st.tuples(st.sampled_from(LEAVES), st.integers(1, 6), st.integers(0, 2)), max_size=8),
    departments=st.booleans(),
)
def test_without_guarantees_nothing_is_reclaimed(
    weights: Sequence[int], arrivals: Sequence[tuple[str, int, int]], departments: bool
) -> None:
    """Invariant 10 (YUNIKORN-1951); Kubernetes' preemption by priority goes on."""
    text = forest(weights, departments=departments, order=False, reclaim="reclaim") + "preempt never\n"
    world = World.of(text, 6)
    for name, number, priority in arrivals:
        world.asks(name, *[1] * number, priority=priority)
    assert world.evicted == []


# --- what is counted for a while -----------------------------------------------------------------------------

_keys = st.sampled_from("xyz")


@given(
    nested=st.booleans(),
    steps=st.lists(
        st.tuples(st.sampled_from(["place", "displace", "count"]), st.lists(_keys, max_size=4)), max_size=12
    ),
)
def test_what_is_counted_for_a_while_counts_as_if_it_ran_and_leaves_no_trace(
    nested: bool, steps: Sequence[tuple[str, Sequence[str]]]
) -> None:
    """Also for queues by a key without pods, which keep what they do not lend from their first pod on."""
    above = f"queue all max {GPU} 20\n" if nested else ""
    by_key = f"queue each{' of all' if nested else ''} by pod.label.q min {GPU} 3 lend {GPU} 1\n"
    world = World.of(above + by_key + "filter true\n", 30)
    usage, there = world.usage, list[str]()
    for what, keys in steps:
        pods = [world.pod(key) for key in keys]
        match what:
            case "place":
                for pod in pods:
                    world.cluster.place(pod, "n0")
                    there.append(pod.uid)
            case "displace":
                for _ in keys[: len(there)]:
                    world.cluster.displace(there.pop(0))
            case _:
                queues = [usage.quota_of(pod.template) for pod in pods]
                assert queues == [usage.quota_of(pod.template) for pod in pods], "two that ask mean the same queue"
                wanted = [(queue, usage.amounts(pod)) for queue, pod in zip(queues, pods, strict=True) if queue]
                placed = QuotaUsage(usage.tree, world.cluster.nodes, (*world.cluster.pods.values(), *pods))
                with usage.counting(wanted):
                    assert (usage.top.used, usage.top.charged) == (placed.top.used, placed.top.charged)
                    for queue in wanted:
                        same = placed.named(queue[0].name)
                        assert same is not None
                        assert (queue[0].used, queue[0].charged) == (same.used, same.charged)
        assert usage.miscounted(world.cluster.pods.values()) == []
        assert usage.top.charged == QuotaUsage(usage.tree, world.cluster.nodes, world.cluster.pods.values()).top.charged
