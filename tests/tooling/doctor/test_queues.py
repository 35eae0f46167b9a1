"""Queues that contradict the cluster are found; those that fit it are fine."""

from __future__ import annotations

from typing import Any

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.tooling.doctor.findings import Status
from tests.framework.worlds import make_node
from tests.tooling.doctor.test_findings import found, inspection
from tests.tooling.doctor.test_findings import pod as made_pod

GPU = "example.com/gpu"


def node(name: str = "n", gpus: int = 8) -> objects.Node:
    return make_node(name, {"labels": {}, "cpu": "64", "gpu": str(gpus)})


def pod(name: str, team: str, *, gpus: int = 1, on: str = "", **more: Any) -> objects.Pod:
    found = made_pod(name, labels={"team": team}, gpu=str(gpus), **more)
    found.spec.node_name = on
    return found


def queue(name: str, amounts: str = "", *, of: str = "") -> str:
    parent = f" of {of}" if of else ""
    return f'queue {name}{parent} for pods where pod.label.team == "{name}" {amounts}'.strip() + "\n"


def asked(policy: str, *things: Any) -> list[tuple[str, Status, str, str]]:
    return found(inspection(policy, things=things), "queues")


def test_queues_that_fit_the_cluster_are_fine() -> None:
    policy = queue("a", f"min {GPU} 4") + queue("b", f"min {GPU} 4 max {GPU} 6")
    every = asked(policy, node(), pod("one", "a", on="n"), pod("two", "b"))
    assert [(subject, status, text) for subject, status, text, _ in every] == [
        ("queue a", Status.OK, "has 1 pod, of which 0 wait"),
        ("queue b", Status.OK, "has 1 pod, of which 1 waits"),
    ]


def test_no_queues_is_nothing_to_say() -> None:
    assert asked("filter node.ready", node(), pod("one", "a")) == []


def test_guarantees_above_what_the_nodes_offer() -> None:
    policy = queue("a", f"min {GPU} 6") + queue("b", f"min {GPU} 6")
    (problem,) = [each for each in asked(policy, node(), pod("x", "a"), pod("y", "b")) if each[1] is Status.PROBLEM]
    assert problem[0] == f"resource {GPU}"
    assert problem[2] == "12 are guaranteed in all, but 8 can be used by queues"


def test_guarantees_of_queues_by_key_are_counted_for_each_value() -> None:
    policy = f"queue top min {GPU} 4\nqueue team of top by pod.label.team min {GPU} 2\n"
    pods = [pod(f"p{team}", team, on="n") for team in ("red", "blue", "green")]
    (problem,) = [each for each in asked(policy, node(), *pods) if each[1] is Status.PROBLEM]
    assert problem[:3] == (
        "queue top", Status.PROBLEM, f"the 3 queues below it are guaranteed 6 {GPU}, itself 4"
    )  # fmt: skip
    assert [each for each in asked(policy, node(), *pods[:2]) if each[1] is Status.PROBLEM] == []


def test_a_queue_that_takes_no_pod() -> None:
    every = asked(queue("a") + queue("b"), node(), pod("x", "a"))
    assert ("queue b", Status.WARNING, "no pod belongs to it") in [each[:3] for each in every]


def test_a_queue_by_key_has_the_pods_of_all_its_values() -> None:
    every = asked("queue team by pod.label.team\n", node(), pod("x", "red"), pod("y", "blue", on="n"))
    assert [each[:3] for each in every] == [("queue team", Status.OK, "has 2 pods, of which 1 waits")]


def test_a_pod_that_requests_more_than_the_maximum_of_its_queue_or_one_above() -> None:
    policy = f"queue top max {GPU} 3\n" + queue("a", f"max {GPU} 2", of="top")
    every = asked(policy, node(), pod("x", "a", gpus=4), pod("fits", "a", gpus=2))
    problems = [each[:3] for each in every if each[1] is Status.PROBLEM]
    assert problems == [
        ("queue a", Status.PROBLEM, f"1 pod requests up to 4 {GPU}, its `max` is 2: default/x"),
        ("queue top", Status.PROBLEM, f"1 pod requests up to 4 {GPU}, its `max` is 3: default/x"),
    ]


def test_a_resource_that_no_node_offers_with_the_one_that_was_meant() -> None:
    (problem,) = [
        each for each in asked(queue("a", "min example.com/gpus 4"), node(), pod("x", "a")) if each[1] is Status.PROBLEM
    ][:1]
    assert problem == ("resource example.com/gpus", Status.PROBLEM, "no node offers it", f"did you mean `{GPU}`?")


def test_pods_that_run_over_the_maximum() -> None:
    pods = [pod(f"x{number}", "a", on="n") for number in range(5)]
    (warning,) = [each for each in asked(queue("a", f"max {GPU} 3"), node(), *pods) if each[1] is Status.WARNING]
    assert warning[2] == f"its pods use 5 {GPU}, its `max` is 3: 2 pods over"


def test_pods_in_no_queue_matter_if_they_use_what_is_guaranteed() -> None:
    policy = queue("a", f"min {GPU} 4")
    every = asked(policy, node(), pod("x", "a"), pod("y", "other"))
    assert (f"resource {GPU}", Status.WARNING, "1 pod in no queue requests it: default/y") in [e[:3] for e in every]
    plain = made_pod("z", labels={"team": "other"})
    every = asked(policy, node(), pod("x", "a"), plain)
    assert ("other pods", Status.OK, "1 pod belongs to no queue: no quota applies") in [e[:3] for e in every]


def test_what_no_node_offers_cannot_be_guaranteed() -> None:
    policy = queue("a", "min example.com/fpga 4") + queue("b", "min example.com/fpga 2")
    every = asked(policy, node(), pod("x", "a"), pod("y", "b"))
    assert ("resource example.com/fpga", Status.PROBLEM, "6 are guaranteed in all, but none can be used by queues") in [
        each[:3] for each in every
    ]


def test_without_nodes_nothing_can_be_compared() -> None:
    assert [each[1] for each in asked(queue("a"), pod("x", "a"))] == [Status.UNCHECKED]


def test_guarantees_are_compared_with_nodes_that_new_pods_can_use() -> None:
    cordoned = node("old")
    cordoned.spec.unschedulable = True
    policy = queue("a", f"min {GPU} 6") + queue("b", f"min {GPU} 4")
    (problem,) = [
        each for each in asked(policy, node(), cordoned, pod("x", "a"), pod("y", "b")) if each[1] is Status.PROBLEM
    ]
    assert problem[2] == "10 are guaranteed in all, but 8 can be used by queues"
    assert problem[3].startswith("not all of a (6), b (4) can get their `min`")


def test_more_is_kept_than_there_is() -> None:
    policy = queue("a", f"min {GPU} 9 lend {GPU} 0") + queue("b")
    problems = [each[2] for each in asked(policy, node(), pod("x", "a"), pod("y", "b")) if each[1] is Status.PROBLEM]
    assert "a keep 9 for themselves, 8 can be used" in problems


def test_pods_that_are_larger_than_the_guarantee_of_their_queue() -> None:
    policy = queue("a", f"min {GPU} 4") + queue("b", f"min {GPU} 2")
    found = asked(policy, node(), pod("large", "b", gpus=3), pod("fits", "a", gpus=4))
    (warning,) = [each for each in found if each[1] is Status.WARNING]
    assert warning[0] == "queue b"
    assert warning[2] == f"1 pod requests up to 3 {GPU}, more than its `min`: default/large"


def test_pods_that_do_not_take_the_room_that_is_kept_for_them() -> None:
    waits = pod("waits", "a")
    waits.status.nominated_node_name = "n"
    waits.metadata.creation_timestamp = "2020-01-01T00:00:00Z"
    found = asked(queue("a", f"min {GPU} 4"), node(), waits)
    (warning,) = [each for each in found if each[1] is Status.WARNING]
    assert warning[2] == "1 pod is nominated to a node and old: default/waits"
