"""What the judge of evictions takes a scheduler's queues for, in the words of the model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaUsage
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.quota import comes_before, parts_of
from kube_policy_scheduler.times import Steady
from tests.quotas.accounts import Node, Pod, State, Unit
from tests.quotas.evictions import Reclaim, shortage, takes
from tests.quotas.product import node_object, pod_object, policies
from tests.simulation.quota_view import reclaim_of, seen, why_not


def cluster_of(text: str, node: Node, *pods: Pod) -> tuple[Cluster, QuotaUsage]:
    """Return a cluster where pods run on their node, or are nominated, and what its queues use."""
    cluster, rules = Cluster(), policies(text).queues
    assert rules is not None
    cluster.set_node(node_object(node))
    for pod in pods:
        info = cluster.templates.pod(pod_object(pod))
        if pod.node:
            cluster.place(info, pod.node)
        else:
            cluster.nominate(info, pod.promised)
    return cluster, cluster.track_usage(rules.tree)


def view(text: str, node: Node, *pods: Pod) -> State:
    """Return what counts where pods run on their node, or are nominated."""
    return seen(*cluster_of(text, node, *pods), Steady(0.0))


def test_queues_by_a_key_guarantee_nothing_to_their_parent() -> None:
    text = "queue shared max cpu 20\nqueue rest of shared by pod.namespace min cpu 3\n"
    one = Pod("p", {"cpu": 1_000}, "one", node="n")
    state = view(text, Node("n", {"cpu": 8_000, "pods": 9}), one)
    assert (state.minimum("rest/one", "cpu"), state.minimum("shared", "cpu")) == (3_000, 0)


def test_where_nothing_is_kept_only_nodes_and_limits_are_short() -> None:
    """A pod that is nominated to a node that is gone takes nothing from others."""
    text = 'queue one for pods where pod.namespace == "one" min cpu 1'
    lost = Pod("lost", {"cpu": 4_000}, "one", promised="gone")
    state = view(text, Node("n", {"cpu": 4_000, "pods": 9}), lost)
    asks = Unit((Pod("asks", {"cpu": 3_000, "pods": 1}, "one"),))
    assert shortage(state, asks, {"asks": "n"}).resources == frozenset()
    kept = view(f"{text} lend cpu 0", Node("n", {"cpu": 4_000, "pods": 9}), lost)
    assert shortage(kept, asks, {"asks": "n"}).resources == {"cpu"}


def test_what_is_leaving_makes_room_for_those_that_were_promised_it() -> None:
    """Then a pod for which there is a place besides is not short of places."""
    text = 'queue one for pods where pod.namespace == "one" min cpu 1, pods 1'
    each = {"cpu": 1_000, "pods": 1}
    running = (Pod("stays", each, "one", node="n"), Pod("goes", each, "one", node="n", leaving=True))
    state = State(view(text, Node("n", {})).queues, (Node("n", {"cpu": 4_000, "pods": 3}),), {})
    state = state.changed((*running, Pod("comes", each, "one", promised="n")))
    asks = Unit((Pod("asks", {"cpu": 3_000, "pods": 1}, "one"),))
    assert shortage(state.settled(), asks, {"asks": "n"}).resources == {"cpu"}


def test_what_runs_is_guaranteed_before_what_was_promised_room() -> None:
    """A pod whose start nobody has told yet counts as started now, and so it does beside a nominated one."""
    text = 'queue one for pods where pod.namespace == "one" min cpu 1'
    each = {"cpu": 1_000, "pods": 1}
    running, nominated = Pod("second", each, "one", node="n"), Pod("first", each, "one", promised="n")
    state = view(text, Node("n", {"cpu": 4_000, "pods": 9}), running, nominated)
    assert list(state.guaranteed("one")) == [frozenset({"second"})]


def test_what_is_left_of_a_gang_may_go_though_others_of_it_were_promised_room() -> None:
    text = 'queue one for pods where pod.namespace == "one" min cpu 1\n'
    text += "gang by pod.label.job size number(pod.label.size) within 5min if pod label job\n"
    each = {"cpu": 2_000, "pods": 1}
    left = Pod("left", each, "one", gang="g", size=2, node="n")
    back = Pod("back", each, "one", gang="g", size=2, promised="gone")
    cluster, _ = cluster_of(text, Node("n", {"cpu": 2_000, "pods": 9}), left, back)
    (victim,) = cluster.pods.values()
    for priority, may in ((10, True), (0, False)):
        asks = cluster.templates.pod(pod_object(Pod("asks", each, "one", priority=priority)))
        assert (why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=Reclaim.NO) == "") is may


@pytest.mark.parametrize(("guaranteed", "may"), [(3, True), (2, False)])
def test_a_gang_asks_for_what_each_of_its_members_requests(guaranteed: int, may: bool) -> None:
    """Not for as many times what the one requests for which pods are evicted."""
    text = f'queue one for pods where pod.namespace == "one" min cpu {guaranteed}\n'
    text += 'queue two for pods where pod.namespace == "two"\n'
    text += "gang by pod.label.job size number(pod.label.size) within 5min if pod label job\nreclaim\n"
    runs = Pod("runs", {"cpu": 2_000, "pods": 1}, "two", priority=3, node="n")
    small = Pod("small", {"cpu": 1_000, "pods": 1}, "one", gang="g", size=2, promised="n")
    cluster, _ = cluster_of(text, Node("n", {"cpu": 3_000, "pods": 9}), runs, small)
    large = cluster.templates.pod(pod_object(Pod("large", {"cpu": 2_000, "pods": 1}, "one", gang="g", size=2)))
    (victim,) = cluster.pods.values()
    assert (why_not(cluster, large, (victim,), "n", Steady(0.0), reclaim=Reclaim.GUARANTEES) == "") is may


@pytest.mark.parametrize("reserves", [True, False])
def test_a_guarantee_is_got_on_a_node_that_has_too_little_beside_what_is_reserved(reserves: bool) -> None:
    text = 'queue one for pods where pod.namespace == "one" min cpu 2\n'
    text += 'queue two for pods where pod.namespace == "two"\nreclaim\n'
    runs = Pod("runs", {"cpu": 1_000, "pods": 1}, "two", node="n")
    cluster, _ = cluster_of(text, Node("n", {"cpu": 3_000, "pods": 9}), runs)
    asks = cluster.templates.pod(pod_object(Pod("asks", {"cpu": 2_000, "pods": 1}, "one")))
    (victim,) = cluster.pods.values()
    why = why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=Reclaim.GUARANTEES, reserves=reserves)
    assert (why == "") is reserves


def test_members_beyond_the_size_of_a_gang_ask_for_room_beside_each_other() -> None:
    """What one of them was promised, another one does not get."""
    text = 'queue one for pods where pod.namespace == "one" min cpu 4\n'
    text += 'queue two for pods where pod.namespace == "two"\n'
    text += "gang by pod.label.job size number(pod.label.size) within 5min if pod label job\nreclaim\n"
    each = {"cpu": 1_000, "pods": 1}
    needed = [Pod(f"needed-{number}", each, "one", gang="g", size=2, node="n") for number in range(2)]
    beyond = Pod("beyond", each, "one", gang="g", size=2, promised="n")
    cluster, _ = cluster_of(
        text, Node("n", {"cpu": 4_000, "pods": 9}), *needed, beyond, Pod("runs", each, "two", node="n")
    )
    asks = cluster.templates.pod(pod_object(Pod("asks", each, "one", gang="g", size=2)))
    (victim,) = (pod for pod in cluster.pods.values() if pod.name == "runs")
    assert why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=Reclaim.GUARANTEES) == ""


def test_a_gang_needs_a_member_more_if_the_node_of_one_is_gone() -> None:
    """Both that ask are needed then, and are guaranteed as a whole."""
    text = 'queue one for pods where pod.namespace == "one" min cpu 4\n'
    text += 'queue two for pods where pod.namespace == "two"\n'
    text += "gang by pod.label.job size number(pod.label.size) within 5min if pod label job\nreclaim\n"
    each = {"cpu": 1_000, "pods": 1}
    runs = Pod("runs", {"cpu": 3_000, "pods": 1}, "two", priority=3, node="n")
    there = Pod("there", {"pods": 1}, "one", gang="g", size=2, node="gone")
    beside = Pod("beside", each, "one", gang="g", size=2, promised="n")
    cluster, _ = cluster_of(text, Node("n", {"cpu": 4_000, "pods": 9}), runs, there, beside)
    asks = cluster.templates.pod(pod_object(Pod("asks", each, "one", gang="g", size=2)))
    (victim,) = (pod for pod in cluster.pods.values() if pod.name == "runs")
    members = [(cluster.templates.pod(pod_object(beside)), "n")]
    why = why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=Reclaim.GUARANTEES, members=members)
    assert why == ""


def test_what_a_member_beyond_the_size_of_a_gang_was_promised_counts_beside_those_that_ask() -> None:
    text = 'queue one for pods where pod.namespace == "one" max pods 3\n'
    text += "gang by pod.label.job size number(pod.label.size) within 5min if pod label job\n"
    each = {"cpu": 1_000, "pods": 1}
    runs = Pod("runs", each, "one", node="other")
    beside, beyond = (Pod(name, each, "one", 9, "g", 2, promised="n") for name in ("beside", "beyond"))
    cluster, _ = cluster_of(text, Node("n", {"cpu": 9_000, "pods": 9}), runs, beside, beyond)
    asks = cluster.templates.pod(pod_object(Pod("asks", each, "one", 9, "g", 2)))
    (victim,) = cluster.pods.values()
    members = [(cluster.templates.pod(pod_object(beside)), "n")]
    assert why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=Reclaim.NO, members=members) == ""


@pytest.mark.parametrize(("priority", "may"), [(10, True), (0, False)])
def test_what_is_guaranteed_without_pods_of_its_own_queue_gets_a_node_that_others_were_promised(
    priority: int, may: bool
) -> None:
    """Then these pods may go though they run on another node: they hold the guarantee."""
    text = 'queue one for pods where pod.namespace == "one" min cpu 2\n'
    text += 'queue two for pods where pod.namespace == "two"\nreclaim\n'
    each = {"cpu": 2_000, "pods": 1}
    runs, other = Pod("runs", each, "one", node="other"), Pod("other", each, "two", priority=20, promised="n")
    cluster, _ = cluster_of(text, Node("n", {"cpu": 3_000, "pods": 9}), runs, other)
    asks = cluster.templates.pod(pod_object(Pod("asks", each, "one", priority)))
    (victim,) = cluster.pods.values()
    assert (why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=Reclaim.GUARANTEES) == "") is may


def test_nobody_says_whom_a_gang_of_several_queues_may_evict() -> None:
    """Nor where the other members have no room yet: the one that asks is of another queue than they are."""
    text = 'queue one for pods where pod.namespace == "one" and not pod.label.other min pods 1\n'
    text += 'queue other for pods where pod.label.other min cpu 1\nqueue two for pods where pod.namespace == "two"\n'
    text += "gang by pod.label.job size number(pod.label.size) within 5min if pod label job\nreclaim\n"
    runs = Pod("runs", {"cpu": 2_000, "pods": 1}, "two", priority=3, node="n")
    member = Pod("member", {"cpu": 1_000, "pods": 1}, "one", gang="g", size=2)
    for promised in (True, False):
        cluster, _ = cluster_of(text, Node("n", {"cpu": 2_000, "pods": 9}), runs)
        of_other = cluster.templates.pod(pod_object(replace(member, name="of-other"), {"other": "yes"}))
        if promised:
            cluster.nominate(of_other, "n")
        asks, (victim,) = cluster.templates.pod(pod_object(member)), cluster.pods.values()
        others = () if promised else ((of_other, "n"),)
        assert why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=Reclaim.GUARANTEES, members=others) == ""


@pytest.mark.parametrize(("guaranteed", "may"), [("", True), (" min cpu 1", False)])
def test_what_a_nominated_pod_loses_to_the_one_that_asks_is_not_short(guaranteed: str, may: bool) -> None:
    """If places for pods were short, too, the queue would not be guaranteed one more."""
    text = 'queue one for pods where pod.namespace == "one" min cpu 2, pods 1\n'
    text += 'queue two for pods where pod.namespace == "two"\n'
    text += f'queue three for pods where pod.namespace == "three"{guaranteed}\nreclaim\n'
    own = Pod("own", {"cpu": 500, "pods": 1}, "one", node="n")
    runs = Pod("runs", {"cpu": 3_000, "pods": 1}, "two", node="n")
    promised = Pod("promised", {"cpu": 500, "pods": 1}, "three", promised="n")
    cluster, _ = cluster_of(text, Node("n", {"cpu": 4_000, "pods": 3}), own, runs, promised)
    asks = cluster.templates.pod(pod_object(Pod("asks", {"cpu": 1_000, "pods": 1}, "one")))
    (victim,) = (pod for pod in cluster.pods.values() if pod.name == "runs")
    assert (why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=Reclaim.GUARANTEES) == "") is may


_QUEUES = ("", "top", "left", "right", "beside")
_amounts = st.sampled_from(("", " min cpu 1", " min cpu 2", " min pods 1", " min cpu 1, pods 2"))
_pods = st.builds(
    Pod,
    st.just(""),
    st.sampled_from(({"cpu": 500, "pods": 1}, {"cpu": 1_000, "pods": 1}, {"cpu": 2_000, "pods": 1})),
    st.sampled_from(_QUEUES),
    st.integers(0, 1),
)


@settings(max_examples=100, deadline=None)
@given(
    mins=st.lists(_amounts, min_size=3, max_size=3),
    above=st.sampled_from(("", " min cpu 4, pods 4")),
    running=st.lists(_pods, max_size=3),
    promised=_pods,
    asks=_pods,
    times=st.integers(1, 2),
    fair=st.booleans(),
)
def test_the_judge_and_the_scheduler_agree_on_who_loses_the_room_that_it_was_promised(
    mins: list[str], above: str, running: list[Pod], promised: Pod, asks: Pod, times: int, fair: bool
) -> None:
    own = [f'pod.namespace == "{name}"' for name in _QUEUES]
    text = f"queue top for pods where {' or '.join(own[1:4])}{above}\n"
    text += f"queue left of top for pods where {own[2]}{mins[0]}\nqueue right of top for pods where {own[3]}{mins[1]}\n"
    text += f"queue beside for pods where {own[4]}{mins[2]}\nreclaim{' fair' if fair else ''}\n"
    there = [replace(pod, name=f"runs-{number}", node="n") for number, pod in enumerate(running)]
    other = replace(promised, name="promised", promised="n")
    cluster, usage = cluster_of(text, Node("n", {"cpu": 9_000, "pods": 9}), *there, other)
    pod = cluster.templates.pod(pod_object(replace(asks, name="asks")))
    (nominated,) = cluster.nominated["n"].values()
    state = seen(cluster, usage, Steady(0.0))
    loses = takes(state, replace(asks, name="asks"), times, state.pods["promised"], by_share=fair)
    together = parts_of(usage, [pod] * times)
    assert comes_before(cluster, nominated, pod, together=together) is not loses


@pytest.mark.parametrize(
    ("reclaim", "borrows", "priority", "may"),
    [
        (Reclaim.NO, False, 0, False),
        (Reclaim.GUARANTEES, False, 0, True),
        (Reclaim.FAIR, False, 0, True),
        (Reclaim.NO, True, 0, False),
        (Reclaim.GUARANTEES, True, 0, False),
        (Reclaim.FAIR, True, 0, True),
        (Reclaim.NO, True, 1, True),
        (Reclaim.GUARANTEES, True, 1, True),
        (Reclaim.FAIR, True, 1, True),
    ],
)
def test_a_pod_evicts_by_the_reclaim_that_its_policies_have(
    reclaim: Reclaim, borrows: bool, priority: int, may: bool
) -> None:
    text = f'queue one for pods where pod.namespace == "one" min cpu {0 if borrows else 1}\n'
    text += f'queue two for pods where pod.namespace == "two"\n{reclaim}\n'
    each = {"cpu": 1_000, "pods": 1}
    runs = [Pod(f"runs-{number}", each, "two", node="n") for number in range(2)]
    cluster, _ = cluster_of(text, Node("n", {"cpu": 2_000, "pods": 9}), *runs)
    asks = cluster.templates.pod(pod_object(Pod("asks", each, "one", priority=priority)))
    rules = policies(text).queues
    assert rules is not None
    assert reclaim_of(rules, Frame(asks, cluster, 0.0)) is reclaim
    victim = next(iter(cluster.pods.values()))
    assert (why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=reclaim) == "") is may


def test_where_shares_decide_no_priority_does_between_queues() -> None:
    text = 'queue one for pods where pod.namespace == "one"\nqueue two for pods where pod.namespace == "two"\n'
    runs = Pod("runs", {"cpu": 1_000, "pods": 1}, "two", node="n")
    cluster, _ = cluster_of(text, Node("n", {"cpu": 2_000, "pods": 9}), runs)
    asks = cluster.templates.pod(pod_object(Pod("asks", {"cpu": 2_000, "pods": 1}, "one", priority=1)))
    (victim,) = cluster.pods.values()
    for reclaim in Reclaim:
        may = why_not(cluster, asks, (victim,), "n", Steady(0.0), reclaim=reclaim) == ""
        assert may is (reclaim is not Reclaim.FAIR)
