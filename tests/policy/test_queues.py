"""`queue` and `reclaim`: who is admitted, who is served first, who is evicted, and what always holds."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas import quota_usage
from kube_policy_scheduler.cluster.quotas.past_usage import PastUsage
from kube_policy_scheduler.cluster.quotas.quota_usage import AwaitedPods, QuotaUsage
from kube_policy_scheduler.framework.quota import any_evictable, has_precedence
from kube_policy_scheduler.times import Steady
from tests.lang.clusters import NOW
from tests.policy.queue_worlds import GPU, World, gpu_node


def queues(*lines: str, reclaim: str = "reclaim") -> str:
    """Return a policy: `a min 4 max 6` becomes a queue of the pods with the label q=a, amounts in thousandths."""
    found = []
    for line in lines:
        head, *parts = line.split(" ")
        name, _, parent = head.partition("@")
        said = [f"queue {name}", f"of {parent}" if parent else ""]
        if parts[:1] == ["all"]:
            parts = parts[1:]
        else:
            said.append(f'for pods where pod.label.q == "{name}"')
        words = iter(parts)
        for word in words:
            value = next(words)
            said.append(f"{word} {value}" if word == "weight" else f"{word} {GPU} {round(float(value) * 1000)}")
        found.append(" ".join(each for each in said if each))
    return "\n".join([*found, reclaim, "filter node.ready or true", ""])


# --- the worked examples of other schedulers ---------------------------------------------------------------


def test_elastic_quota_reclaims_up_to_min_and_rejects_above_max() -> None:
    """scheduler-plugins KEP-9: 10 GPUs, A 4 to 6, B 6 to 8."""
    world = World.of(queues("a min 4 max 6", "b min 6 max 8"), 10, returns=False)
    world.runs("a", *[1] * 4)
    world.runs("b", *[1] * 3)

    world.asks("a", 1, 1, 1)
    assert world.used("a", "b") == [6, 3]
    world.pending.clear()
    world.asks("b", 1, 1, 1)
    assert world.used("a", "b") == [4, 6]
    assert len(world.evicted) == 2
    world.asks("b", 1)
    assert world.used("a", "b") == [4, 6]
    assert len(world.pending) == 1


def test_a_single_borrower_gives_back_one_pod() -> None:
    world = World.of(queues("a min 4 max 5", "b min 1 max 5"), 5)
    world.runs("a", *[1] * 5)

    world.asks("b")
    assert world.used("a", "b") == [4, 1]
    assert len(world.evicted) == 1


@pytest.mark.parametrize(
    ("asks", "reclaim", "used"),
    [
        ("c", "reclaim", [3, 4, 2]),
        ("a", "reclaim", [3, 5, 1]),  # `a` would borrow: without `fair` it is rejected, as in classical Kueue
        ("a", "reclaim fair", [4, 4, 1]),
    ],
)
def test_one_cohort_of_three(asks: str, reclaim: str, used: list[float]) -> None:
    """Kueue: three queues of 3, of which b borrows."""
    world = World.of(queues("a min 3", "b min 3", "c min 3", reclaim=reclaim), 9)
    for name, number in (("a", 3), ("b", 5), ("c", 1)):
        world.runs(name, *[1] * number)

    world.asks(asks)
    assert world.used("a", "b", "c") == used
    world.asks("a")
    assert world.used("a", "b", "c") == used, "once more is rejected"


@pytest.mark.parametrize("priority", [5, 0])
def test_fair_reclaim_takes_nothing_after_which_the_shares_are_less_fair(priority: int) -> None:
    """Kueue: LessThanOrEqualToFinalShare takes the high pod of 1, as without the low one of 5 b would be below a.

    Ours spares it, too: it is guaranteed, and only the low one, which does not fit beside it, is borrowed.
    """
    world = World.of(queues("a min 3", "b min 3", "c min 3", reclaim="reclaim fair"), 9, returns=False)
    world.runs("a", 1, 1, 1, priority=5)
    world.runs("b", 5, priority=0, name="low")
    world.runs("b", 1, priority=5, name="high")

    world.asks("a", priority=priority)
    assert world.evicted == []


def test_fair_reclaim_of_coarse_pods_ends() -> None:
    """Kueue: b and c run 2 and 2.5 each of 3; a asks for 3.5, and both pods of 2 go; what returns evicts nobody.

    Ours spares them: a pod that is larger than the guarantee of its queue is borrowed in full, and b and c would have a
    smaller share than a afterwards. With pods of 3, a gets what it is guaranteed.
    """
    world = World.of(queues("a min 3", "b min 3", "c min 3", reclaim="reclaim fair"), 9)
    for name in "bc":
        world.runs(name, 2, name=f"{name}2")
        world.runs(name, 2.5, name=f"{name}2.5")

    world.asks("a", 3.5)
    assert world.evicted == []
    world.asks("a", 3)
    assert world.used("a") == [3]
    assert sorted(world.evicted) == ["b2.5", "c2.5"]


@pytest.mark.parametrize(
    "reads", ["not p.ready", "p.running > 1h", 'p.name == "odd"', 'p.annotation.odd == "yes"'], ids=str
)
def test_victims_of_one_template_stand_for_each_other_unless_rules_tell_them_apart(reads: str) -> None:
    """Both are tried to be gone; then the younger one may stay, though the older one, put back first, may not."""
    filtered = f'filter pod.label.q == "b" or not any(p in node.pods where {reads})'
    world = World.of(queues("a min 1", "b") + filtered, 2, returns=False)
    for name, age in (("odd", 7200.0), ("even", 60.0)):
        pod = msgspec.structs.replace(
            world.pod("b", name=name),
            started=world.now - age,
            ready=name == "even",
            annotations={"odd": "yes"} if name == "odd" else {},
        )
        world.cluster.place(pod, "n0")

    world.asks("a")
    assert world.evicted == ["odd"]


def test_pods_that_share_other_devices_do_not_stand_for_each_other() -> None:
    """Of two pods alike, only the one on the device that has room otherwise must go; it is tried to stay first."""
    share = f"{GPU}-milli"
    guarantee = (
        f'queue a for pods where pod.label.q == "a" min {share} 2000\nqueue b for pods where pod.label.q == "b"\n'
    )
    world = World.of(guarantee + "reclaim\n", returns=False)
    shared = gpu_node("n0", 2 / 1000)
    assert shared.status.allocatable is not None
    shared.status.allocatable[share] = "2000"
    world.cluster.set_node(shared)

    def pod(queue: str, milli: int, name: str) -> PodInfo:
        body = msgspec.convert(
            {
                "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"q": queue}},
                "spec": {
                    "schedulerName": "policy-scheduler",
                    "containers": [{"name": "c", "resources": {"requests": {share: str(milli)}}}],
                },
            },
            objects.Pod,
        )
        return world.cluster.templates.pod(body)

    world.cluster.place(pod("a", 600, "stays"), "n0", devices={GPU: (0,)})
    for name, device, age in (("on-1", 1, 60.0), ("on-0", 0, 30.0)):
        started = msgspec.structs.replace(pod("b", 300, name), started=world.now - age)
        world.cluster.place(started, "n0", devices={GPU: (device,)})
    world.submit(pod("a", 900, "asks"))
    world.settle()
    assert world.evicted == ["on-1"]


def test_a_queue_evicts_its_own_pods_of_lower_priority_and_spares_the_guarantees_of_others() -> None:
    text = queues("a min 5", "R all min 1", "b@R").replace("queue R of ", "queue R ")
    world = World.of(text.replace("queue R ", 'queue R for pods where pod.label.q == "b" '), 6, returns=False)
    world.runs("a", 1, 1, 1, priority=0)
    world.runs("b", 1, priority=0)

    world.asks("a", 5, priority=10)
    assert world.used("a", "b") == [5, 1]
    assert len(world.evicted) == 3


def test_the_guarantee_of_a_parent_serves_its_children() -> None:
    """kueue#3948: G has 1, its child g none of its own; x borrows it."""
    text = "\n".join(
        [
            f'queue x for pods where pod.label.q == "x" max {GPU} 1000',
            f'queue G for pods where pod.label.q == "g" min {GPU} 1000',
            "queue g of G",
            "reclaim",
            "filter true",
        ]
    )
    world = World.of(text, 1)
    world.runs("x")

    world.asks("g")
    assert world.used("x", "g") == [0, 1]
    assert len(world.evicted) == 1


def test_deserved_amounts_that_pods_do_not_divide() -> None:
    """Volcano: 11 CPUs, 5 deserved each, 10 at most, pods of 2: 6 and 4 is final."""
    world = World.of(queues("a min 5 max 10", "b min 5 max 10"), 11)
    world.runs("a", *[2] * 5)

    world.asks("b", 2, 2)
    assert world.used("a", "b") == [6, 4]
    assert len(world.evicted) == 2


# --- admission ---------------------------------------------------------------------------------------------


def test_a_rejection_names_queue_borrowers_and_shortfall() -> None:
    text = queues("company all max 4", "a@company min 2", "b@company min 2", reclaim="")
    world = World.of(text, 8)
    world.runs("a", 1, 1, 1)
    world.runs("b", 1)

    world.asks("b", 1)
    (pod,) = world.pending
    assert world.decisions[pod.uid].message == (
        f"0/1 nodes are available: queue b, below company, has no quota for {GPU}: 4000 used, 1000 requested,"
        " at most 4000, so 1000 too many; borrowed by a (1000)."
    )
    assert world.decisions[pod.uid].rejectors == {"QueueQuota"}


def test_what_is_not_lent_stays_free() -> None:
    world = World.of(queues("a min 4 lend 1", "b min 2", reclaim=""), 6)

    world.asks("b", *[1] * 5)
    assert world.used("b") == [3]
    world.asks("a", *[1] * 5)
    assert world.used("a", "b") == [3, 3], "without reclaim, what was lent stays with b"


def test_pods_outside_every_queue_have_no_quota() -> None:
    world = World.of(queues("a max 1", reclaim=""), 8)

    world.asks("other", 1, 1, 1)
    assert world.pending == []


def test_a_key_makes_a_queue_for_each_value() -> None:
    text = f"queue team by pod.label.q max {GPU} 2000\nfilter true\n"
    world = World.of(text, 8)

    world.asks("red", 1, 1, 1)
    world.asks("blue", 1)
    assert world.used("team/red", "team/blue") == [2, 1]
    for pod in list(world.cluster.pods.values()):
        world.ends(pod.uid)
    assert [queue.name for queue in world.usage.queues()] == []


def test_patience_comes_before_reclaim() -> None:
    world = World.of(queues("a min 1", "b min 1", reclaim="reclaim after 60s"), 2)
    world.runs("a", 1, 1)
    world.submit(world.pod("b"))

    (pod,) = world.pending
    decision = world.cycle.decide(world.frame(pod), world.rules.policies[0].profile)
    assert decision.preemption is None or not decision.preemption.victims
    assert decision.message.endswith("reclaim: not before this pod has waited for 60s.")
    assert "QueueReclaim" in decision.rejectors
    world.now += 60
    decision = world.cycle.decide(world.frame(pod), world.rules.policies[0].profile)
    assert decision.preemption is not None
    assert len(decision.preemption.victims) == 1


def test_a_spared_pod_and_a_pod_that_never_preempts() -> None:
    text = queues("a min 1", "b min 1", reclaim="reclaim evict where victim.priority < 5")
    world = World.of(text, 2)
    world.runs("a", 1, 1, priority=9)

    world.asks("b")
    assert world.evicted == []


def test_terminating_pods_count_until_they_are_gone_and_nobody_else_goes_meanwhile() -> None:
    world = World.of(queues("a min 1", "b min 2"), 3)
    world.runs("a", 1, 1, 1)
    (first, *_) = world.cluster.pods.values()
    leaving = msgspec.structs.replace(first, terminating=True)
    world.cluster.confirm(leaving, "n0")

    world.asks("b")
    assert world.used("a") == [3]
    assert world.evicted == []
    assert "waits until evicted pods are gone" in world.decisions[world.pending[0].uid].message


def test_pods_of_no_queue_do_not_take_the_room_of_a_nominated_pod_that_is_guaranteed() -> None:
    world = World.of(queues("a min 2", "b"), 4)
    guaranteed, borrows = world.pod("a", 2), world.pod("b", 2)
    outside = world.pod("", 3, priority=5)
    for pod in (guaranteed, borrows, outside):
        world.queued[pod.uid] = world.now
    profile = world.rules.policies[0].profile

    world.cluster.nominate(borrows, "n0")
    assert len(world.cycle.feasible(world.frame(outside), profile)) == 1, "borrowed, and of lower priority"
    world.cluster.nominate(borrows, "")
    world.cluster.nominate(guaranteed, "n0")
    assert not len(world.cycle.feasible(world.frame(outside), profile))


@pytest.mark.parametrize(
    ("nominated", "asks", "shares_decide", "keeps"),
    [
        pytest.param(("b", 1), ("a", 2, 9), False, True, id="what may become guaranteed"),
        pytest.param(("b", 2), ("a", 2, 9), False, False, id="what its queue does not guarantee, by priority"),
        pytest.param(("b", 2), ("a", 2, 0), False, True, id="from an equal priority"),
        pytest.param(("b", 2), ("a", 1, -9), False, False, id="what borrows, from what is guaranteed"),
        pytest.param(("b", 1), ("a", 1, 9), False, True, id="what is guaranteed, from what is too"),
        pytest.param(("b", 2), ("a", 2, 9), True, True, id="of another queue where shares decide"),
        pytest.param(("b", 2), ("b", 2, 9), True, False, id="of its own queue where shares decide"),
    ],
)
def test_a_nominated_pod_keeps_its_room(
    nominated: tuple[str, float], asks: tuple[str, float, int], shares_decide: bool, keeps: bool
) -> None:
    world = World.of(queues("a min 1", "b min 1", reclaim="reclaim fair" if shares_decide else "reclaim"), 6)
    assert world.usage.tree.shares_decide is shares_decide
    other = world.pod(*nominated)
    world.cluster.nominate(other, "n0")
    queue, gpus, priority = asks

    assert has_precedence(world.cluster, other, world.pod(queue, gpus, priority=priority)) is keeps


@pytest.mark.parametrize("gpus", [1, 2], ids=["from what is guaranteed", "from what borrows"])
def test_a_nominated_pod_keeps_its_room_if_only_a_queue_above_its_own_may_guarantee_it(gpus: float) -> None:
    world = World.of(queues("c min 1", "p all min 2", "b@p"), 6)
    assert world.usage.named("p") is not None, "usage is tracked from now on"
    other = world.pod("b", 1)
    world.cluster.nominate(other, "n0")

    assert has_precedence(world.cluster, other, world.pod("c", gpus, priority=9))


@pytest.mark.parametrize(
    ("minutes", "min_of_a", "evicted"),
    [
        pytest.param(9, "", 0, id="a young pod is not evicted for a share"),
        pytest.param(11, "", 1, id="an older one is"),
        pytest.param(9, " min 1", 1, id="a guarantee waits for nobody"),
    ],
)
def test_pods_have_some_time_before_they_are_evicted_for_a_share(minutes: int, min_of_a: str, evicted: int) -> None:
    world = World.of(queues("c min 1", f"a{min_of_a}", "b", reclaim="reclaim fair rest 10min"), 2, returns=False)
    for _ in range(2):
        world.cluster.place(msgspec.structs.replace(world.pod("b"), started=world.now + 10 - 60 * minutes), "n0")

    world.submit(world.pod("a"))
    world.settle()
    assert len(world.evicted) == evicted


def test_shares_become_fair_below_a_queue_whose_guarantee_all_of_them_use() -> None:
    """All that run are guaranteed in the queue above; who goes and who comes is as much guaranteed there."""
    world = World.of(queues("c min 2", "p all min 4", "a@p", "b@p", reclaim="reclaim fair"), 6)
    world.runs("b", *[1] * 4)
    world.runs("c", *[1] * 2)

    world.asks("a", 1, 1)
    assert world.used("a", "b", "c") == [2, 2, 2]


# --- what always holds -------------------------------------------------------------------------------------

NAMES = "abc"
_step = st.tuples(st.sampled_from(["ask", "ask", "ask", "end"]), st.sampled_from(NAMES), st.integers(0, 2))


@given(
    mins=st.tuples(*[st.integers(0, 3)] * 3),
    most=st.tuples(*[st.one_of(st.none(), st.integers(3, 8))] * 3),
    lend=st.tuples(*[st.one_of(st.none(), st.integers(0, 3))] * 3),
    steps=st.lists(_step, max_size=25),
    fair=st.booleans(),
)
def test_queues_settle_within_their_limits_and_get_their_guarantees(
    mins: tuple[int, ...],
    most: tuple[int | None, ...],
    lend: tuple[int | None, ...],
    steps: list[tuple[str, str, int]],
    fair: bool,
) -> None:
    """Invariants 1 to 6 and 8, for pods of one GPU on one node with room for all guarantees."""
    lines = []
    for name, low, high, lent in zip(NAMES, mins, most, lend, strict=True):
        more = f" max {high}" if high is not None else ""
        more += f" lend {min(lent, low)}" if lent is not None and low else ""
        lines.append(f"{name} min {low}{more}")
    capacity = max(1, sum(mins))
    world = World.of(queues(*lines, reclaim="reclaim fair" if fair else "reclaim"), capacity)

    for what, name, priority in steps:
        if what == "ask":
            world.submit(world.pod(name, priority=priority))
        elif (first := next(iter(world.queue(name).members), None)) is not None:
            world.ends(first)
        before = len(world.evicted)
        world.settle()
        world.check()
        gone = world.evicted[before:]
        assert len(gone) == len(set(gone)), "a pod was evicted twice"
        for pod in world.pending:
            queue = world.usage.quota_of(pod.template)
            assert queue is not None
            assert queue.used[0] + 1000 > queue.minimum[0], f"{pod.name} is guaranteed, and waits"
            free = capacity * 1000 - sum(each.charged[0] for each in world.usage.queues())
            assert free < 1000 or queue.used[0] + 1000 > queue.maximum[0], f"{pod.name} waits though there is room"


@settings(max_examples=40, deadline=None)
@given(
    weights=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    sizes=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    capacity=st.integers(1, 12),
)
def test_the_fair_order_shares_by_weight_within_one_pod(
    weights: tuple[int, int], sizes: tuple[int, int], capacity: int
) -> None:
    """Invariant 9, one resource: nobody has more than its weighted share plus one pod while others wait."""
    world = World.of(
        queues(*(f"{n} weight {w}" for n, w in zip("ab", weights, strict=True)), "z max 1", reclaim=""), capacity
    )
    waiting = dict(zip("ab", sizes, strict=True))
    for _ in range(capacity):
        ready = [name for name, left in waiting.items() if left]
        if not ready:
            break
        name = min(ready, key=lambda name: (world.usage.order(world.queue(name), ((0, 1000),)), name))
        waiting[name] -= 1
        world.runs(name)
    used = dict(zip("ab", world.used("a", "b"), strict=True))
    by_weight = {name: used[name] / weight for name, weight in zip("ab", weights, strict=True)}
    for name, other, weight in (("a", "b", weights[1]), ("b", "a", weights[0])):
        if waiting[other]:
            assert by_weight[name] <= by_weight[other] + 1 / weight + 1e-9


def test_the_fair_order_counts_what_queues_use_when_the_evictions_under_way_are_done() -> None:
    world = World.of(queues("a max 8", "b max 8"), 8)
    world.runs("a", 3, name="large")
    world.runs("b", 2)
    assert order(world, "a", "b") == ["b", "a"]

    world.cluster.note_evictions(("large",), Steady(0.0))
    assert order(world, "a", "b") == ["a", "b"], "what is being evicted does not count"

    world.cluster.nominate(world.pod("a", 4), "n0")
    assert order(world, "a", "b") == ["b", "a"], "what waits for its victims to end does"


# --- past usage --------------------------------------------------------------------------------------------

HOUR = 3600.0
REMEMBERED = f"""\
queue a for pods where pod.label.q == "a" max {GPU} 8000 remember 1h
queue team by pod.label.q
order by queue.share
"""


def order(world: World, *names: str) -> list[str]:
    """Return queues by the share of their next pod, the first one first."""

    def share(name: str) -> tuple[float, ...]:
        queue = world.usage.quota_of(world.pod(name).template)
        assert queue is not None
        return world.usage.order(queue, ())

    return sorted(names, key=share)


def running(world: World, name: str, gpus: float, *, started: float) -> None:
    pod = msgspec.structs.replace(world.pod(name, gpus), started=started)
    world.cluster.place(pod, "n0")


def test_past_usage_fades_and_that_of_a_queue_by_key_outlives_its_pods() -> None:
    world = World.of(REMEMBERED, 8)
    world.usage.remember(NOW)
    for name, gpus in (("a", 4), ("red", 4)):
        running(world, name, gpus, started=NOW)
    for hour in (1, 2):
        world.usage.remember(NOW + hour * HOUR)
    for pod in list(world.cluster.pods.values()):
        world.ends(pod.uid)
    assert order(world, "a", "red", "blue") == ["blue", "a", "red"], "both used 4 for two hours: 3 each"
    world.usage.remember(NOW + 3 * HOUR)
    running(world, "blue", 2, started=NOW + 3 * HOUR)
    assert order(world, "blue", "red") == ["red", "blue"], "of 3 GPUs, half counts after an hour"


def test_present_usage_counts_at_once_whatever_is_remembered() -> None:
    world = World.of(REMEMBERED, 8)
    world.usage.remember(NOW)
    running(world, "a", 1, started=NOW)
    assert order(world, "a", "blue") == ["blue", "a"]


def test_a_restart_recollects_the_usage_of_pods_that_run() -> None:
    worlds = [World.of(REMEMBERED, 8), World.of(REMEMBERED, 8)]
    first, restarted = worlds
    first.usage.remember(NOW)
    running(first, "a", 4, started=NOW)
    first.usage.remember(NOW + 1.5 * HOUR)
    running(restarted, "a", 4, started=NOW)
    restarted.usage.remember(NOW + 1.5 * HOUR)
    remembered = [world.queue("a").remembered for world in worlds]
    assert remembered[0] == pytest.approx(remembered[1])
    assert remembered[0] is not None
    assert max(remembered[0]) > 0


def test_the_memory_of_queues_by_key_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_usage, "MOST_FADED", 5)
    world = World.of(REMEMBERED, 8)
    world.usage.remember(NOW)
    names = [f"x{number}" for number in range(11)]
    running(world, names[0], 3, started=NOW)
    for name in names[1:]:
        running(world, name, 0.5, started=NOW)
    world.usage.remember(NOW + HOUR)
    for pod in list(world.cluster.pods.values()):
        world.ends(pod.uid)
    known = remembered(world, *(f"team/{name}" for name in names))
    assert sum(past > 0 for past in known.values()) == 5
    assert known["team/x0"] == 1.5, "the largest is not forgotten for others, though it ended first"


def remembered(world: World, *names: str) -> dict[str, float]:
    """Return the past usage of queues in GPUs; 0 for one that nothing is known of."""
    past = world.usage.past_usage()
    assert past is not None
    return {name: round(past.queues.get(name, (0.0,))[0] / 1000, 3) for name in names}


def test_what_was_stored_outlives_a_restart_with_pods_that_ended_and_with_those_that_run() -> None:
    before, after = World.of(REMEMBERED, 8), World.of(REMEMBERED, 8)
    before.usage.remember(NOW)
    for name in ("a", "red"):
        running(before, name, 4, started=NOW)
    before.usage.remember(NOW + HOUR)
    stored = before.usage.past_usage()
    assert stored is not None
    for each in (before, after):
        for pod in list(each.cluster.pods.values()):
            each.ends(pod.uid)
    running(after, "a", 4, started=NOW)  # `red` ended while nobody looked
    after.cluster.recall_usage(stored)
    after.usage.remember(NOW + 2 * HOUR)
    assert remembered(after, "a", "team/red", "team/blue") == {"a": 3.0, "team/red": 1.0, "team/blue": 0.0}
    for _ in range(2):
        after.cluster.recall_usage(stored)
    assert remembered(after, "a", "team/red") == {"a": 3.0, "team/red": 1.0}, "however often it is recalled"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("begins", ["before", "after"])
def test_it_does_not_matter_in_which_order_and_when_pasts_are_recalled(begins: str, reverse: bool) -> None:
    """One leader has seen what `a` used, the next one, whose clock is ahead, what `red` used."""
    pasts = [
        PastUsage(NOW - HOUR, (GPU,), {"a": (4000.0,), "team/red": (500.0,)}),
        PastUsage(NOW + HOUR, (GPU,), {"a": (10.0,), "team/red": (3000.0,)}),
    ]
    world = World.of(REMEMBERED, 8)
    if begins == "before":
        world.usage.remember(NOW)
    for past in reversed(pasts) if reverse else pasts:
        world.cluster.recall_usage(past)
    world.usage.remember(NOW)
    assert remembered(world, "a", "team/red") == {"a": 2.0, "team/red": 3.0}


def after_an_hour_of_four() -> World:
    """Return a world that remembers an hour of 4 GPUs in queue a; nothing runs any more."""
    world = World.of(REMEMBERED, 8)
    world.usage.remember(NOW)
    running(world, "a", 4, started=NOW)
    world.usage.remember(NOW + HOUR)
    for pod in list(world.cluster.pods.values()):
        world.ends(pod.uid)
    return world


@pytest.mark.parametrize("hours", [3, -3])
def test_the_clock_is_set_while_queues_without_a_memory_are_in_force(hours: int) -> None:
    world = after_an_hour_of_four()
    without = World.of(f'queue a for pods where pod.label.q == "a" max {GPU} 9000\n', 8).usage.tree
    world.cluster.track_usage(without)
    world.cluster.ahead = hours * HOUR
    world.usage.remember(NOW + HOUR)
    assert remembered(world, "a") == {"a": 2.0}


@pytest.mark.parametrize("hours", [3, -3])
def test_pods_that_run_have_started_by_the_wall_clock(hours: int) -> None:
    world = World.of(REMEMBERED, 8)
    world.cluster.ahead = hours * HOUR
    running(world, "a", 4, started=NOW + hours * HOUR)
    world.usage.remember(NOW + HOUR)
    assert remembered(world, "a") == {"a": 2.0}


def test_rules_without_queues_are_in_force_meanwhile_and_the_clock_is_set() -> None:
    world = after_an_hour_of_four()
    world.cluster.forget_rules(has_queues=False)
    assert world.cluster.quota_usage is None
    world.cluster.ahead = 3 * HOUR
    world.usage.remember(NOW + HOUR)
    assert remembered(world, "a") == {"a": 2.0}


def test_new_queues_recall_the_usage_of_those_that_keep_their_names() -> None:
    world = World.of(REMEMBERED, 8)
    world.usage.remember(NOW)
    running(world, "a", 4, started=NOW)
    running(world, "red", 2, started=NOW)
    world.usage.remember(NOW + HOUR)
    for pod in list(world.cluster.pods.values()):
        world.ends(pod.uid)
    text = f"""queue a for pods where pod.label.q == "a" max {GPU} 9000 remember 1h\nqueue other by pod.label.q\n"""
    changed = World.of(text, 8)
    usage = world.cluster.track_usage(changed.usage.tree)
    usage.remember(NOW + 2 * HOUR)
    past = usage.past_usage()
    assert past is not None
    assert dict(past.queues) == {"a": pytest.approx((1000.0,))}


@given(
    ends=st.lists(st.tuples(st.sampled_from(["a", "red", "blue"]), st.floats(0, 5), st.floats(0.1, 5)), max_size=8),
    stored_at=st.floats(0, 6),
    restarted_at=st.floats(6, 9),
)
def test_what_a_restart_recalls_is_at_most_what_it_would_remember_and_lacks_only_what_ended_unseen(
    ends: list[tuple[str, float, float]], stored_at: float, restarted_at: float
) -> None:
    """Two replicas see the same pods; one of them restarts after it has stored what it knew."""
    worlds = World.of(REMEMBERED, 100), World.of(REMEMBERED, 100)
    stays, restarts = worlds
    stored = None
    for world in worlds:
        world.usage.remember(NOW)
    moments = {0.0, stored_at, restarted_at, *(at for _, start, last in ends for at in (start, start + last))}
    running_now: dict[int, str] = {}
    for at in sorted(each for each in moments if each <= restarted_at):
        stays.usage.remember(NOW + at * HOUR)
        if at == stored_at:
            stored = stays.usage.past_usage()
        for number, (name, start, last) in enumerate(ends):
            if start == at:
                running(stays, name, 1, started=NOW + at * HOUR)
                running_now[number] = next(reversed(stays.cluster.pods))
            if start + last == at and number in running_now:
                stays.ends(running_now.pop(number))
    assert stored is not None
    for number, (name, start, _) in enumerate(ends):
        if number in running_now:
            running(restarts, name, 1, started=NOW + start * HOUR)
    fresh = World.of(REMEMBERED, 100).cluster
    for pod in restarts.cluster.pods.values():
        fresh.place(pod, "n0")
    fresh.recall_usage(stored)
    usage = fresh.track_usage(restarts.usage.tree)
    usage.remember(NOW + restarted_at * HOUR)
    recalled, known = usage.past_usage(), stays.usage.past_usage()
    assert recalled is not None
    assert known is not None
    faded = stored.faded_to(NOW + restarted_at * HOUR, HOUR, stored.resources)
    for name in {*recalled.queues, *known.queues}:
        now, right = (past.queues.get(name, (0.0,))[0] for past in (recalled, known))
        least = faded.get(name, [0.0])[0]
        assert least - 1 <= now <= right + 1000 * len(ends) / 64 + 1, name


# --- what is kept between two changes -----------------------------------------------------------------------


@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.sampled_from("abxyz"), st.integers(0, 3), st.integers(-1, 2)), max_size=25
    )
)
def test_who_borrows_and_who_can_be_evicted_is_what_a_look_at_all_queues_says(
    steps: list[tuple[bool, str, int, int]],
) -> None:
    text = f'queue top max {GPU} 9000\nqueue a of top for pods where pod.label.q == "a" min {GPU} 2000\n'
    world = World.of(text + f"queue k of top by pod.label.q min {GPU} 1000\nreclaim\n", 100)
    for comes, name, gpus, priority in steps:
        if comes or not world.cluster.pods:
            world.runs(name, gpus, priority=priority)
        else:
            world.ends(next(iter(world.cluster.pods)))
        usage, pod = world.usage, world.pod(name, 9)
        fresh = QuotaUsage(usage.tree, world.cluster.nodes, world.cluster.pods.values())
        asks = [(each, each.quota_of(pod.template), each.amounts(pod)) for each in (usage, usage, fresh)]
        kept, again, right = [each.rejection(queue, amounts) for each, queue, amounts in asks if queue is not None]
        assert kept == again == right
        queue = usage.quota_of(pod.template)
        assert queue is not None
        for most in range(-1, 4):
            plain = any(
                min(other.priorities) < most
                for other in usage.queues()
                if other.members and (other is queue or other.over(0) > 0)
            )
            assert any_evictable(usage, queue, most) == plain
        inside = []
        for each in (usage, QuotaUsage(usage.tree, world.cluster.nodes, world.cluster.pods.values())):
            asking = each.quota_of(pod.template)
            other = each.quota_of(world.pod("a").template)
            assert asking is not None
            assert other is not None
            with each.counting([(other, ((0, 9000),))]):
                inside.append(each.rejection(asking, ((0, 1),)))
        assert inside[0] == inside[1] is not None
        assert usage.rejection(queue, asks[0][2]) == right


# --- pods that new nodes are wanted for --------------------------------------------------------------------


@given(steps=st.lists(st.tuples(st.booleans(), st.sampled_from("abxy"), st.integers(0, 3)), max_size=30))
def test_pods_that_wait_for_nodes_are_counted_by_queue_as_a_recount_says(steps: list[tuple[bool, str, int]]) -> None:
    text = f'queue top max {GPU} 9\nqueue a of top for pods where pod.label.q == "a"\nqueue k of top by pod.label.q\n'
    world = World.of(text, 8)
    kept, placed = AwaitedPods(), list[PodInfo]()
    kept.by_queue(world.usage)
    for comes, name, gpus in steps:
        if comes or not placed:
            placed.append(world.pod(name, gpus))
            kept.place(placed[-1], 0)
        else:
            kept.displace(placed.pop(gpus % len(placed)), 0)
    fresh = AwaitedPods()
    for pod in placed:
        fresh.place(pod, 0)

    def shown(pods: AwaitedPods) -> dict[str, dict[int, int]]:
        return {queue.name: dict(amounts) for queue, amounts in pods.by_queue(world.usage)}

    assert shown(kept) == shown(fresh)
