"""What the judge of evictions takes a scheduler's queues for, in the words of the model."""

from __future__ import annotations

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.times import Steady
from tests.quotas.accounts import Node, Pod, State, Unit
from tests.quotas.evictions import shortage
from tests.quotas.product import node_object, pod_object, policies
from tests.simulation.quota_view import seen


def view(text: str, node: Node, *pods: Pod) -> State:
    """Return what counts where pods run on their node, or are nominated."""
    cluster, rules = Cluster(), policies(text).queues
    assert rules is not None
    cluster.set_node(node_object(node))
    for pod in pods:
        info = cluster.templates.pod(pod_object(pod))
        if pod.node:
            cluster.place(info, pod.node)
        else:
            cluster.nominate(info, pod.promised)
    return seen(cluster, cluster.track_usage(rules.tree), Steady(0.0))


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
