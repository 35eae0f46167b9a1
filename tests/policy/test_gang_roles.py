"""`gang … with 1 of role=driver, 2 of role=worker`: what the gang needs, counted by role."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.groups.state import gang_state
from kube_policy_scheduler.tooling.waiting_members import WaitingMembers
from tests.policy.worlds import node, pod, policy

GANG = "gang by pod.label.job size {size} with 1 of role=driver, 2 of role=worker"


def requirement(cluster: Cluster, name: str, role: str | None, *, text: str = GANG.format(size=3)) -> GangRequirement:
    labels = {"job": "j"} | ({"role": role} if role else {})
    (found,) = policy(text).gang_requirements(Frame(pod(cluster, name, labels=labels), cluster, 0.0))
    return found


FILLED = [
    # size, drivers, workers, others, filled
    (3, 0, 0, 0, 0),
    (3, 1, 0, 0, 1),
    (3, 2, 0, 0, 1),  # a second driver fills no place
    (3, 0, 5, 0, 2),
    (3, 1, 1, 5, 2),
    (3, 1, 2, 0, 3),
    (3, 1, 5, 0, 3),  # without its driver it is not complete, however many workers there are
    (3, 2, 4, 0, 4),  # one member, whichever it is, can go
    (5, 1, 2, 0, 3),
    (5, 3, 2, 4, 5),
    (5, 0, 0, 9, 2),  # two places are open to all
    (5, 1, 4, 0, 5),
]


@pytest.mark.parametrize(("size", "drivers", "workers", "others", "filled"), FILLED)
def test_a_gang_counts_the_places_that_it_needs(
    size: int, drivers: int, workers: int, others: int, filled: int
) -> None:
    made = Cluster()
    made.set_node(node("n", cpu="64"))
    for role, number in (("driver", drivers), ("worker", workers), ("", others)):
        for at in range(number):
            labels = {"job": "j"} | ({"role": role} if role else {})
            made.place(pod(made, f"{role or 'other'}{at}", labels=labels), "n")

    asked = policy(GANG.format(size=size)).gang_requirements(
        Frame(pod(made, "me", labels={"job": "j", "role": "worker"}), made, 0.0)
    )
    assert [each.filled(made.counters.group_size) for each in asked] == [filled]


@given(st.integers(1, 6), st.lists(st.sampled_from(["driver", "worker", ""]), max_size=9))
def test_a_complete_gang_has_its_size_and_every_role_and_stays_so_without_those_it_can_spare(
    size: int, members: list[str]
) -> None:
    made = Cluster()
    size = max(size, 3)
    asked = requirement(made, "me", "worker", text=GANG.format(size=size))
    numbers = {"driver": members.count("driver"), "worker": members.count("worker"), "": len(members)}

    def number_of(group_of: object, group: object) -> int:
        return next((numbers[r.text.partition("=")[2]] for r in asked.roles if r.group == group), numbers[""])

    complete = len(members) >= size and numbers["driver"] >= 1 and numbers["worker"] >= 2
    filled = asked.filled(number_of)
    assert (filled >= size) is complete
    assert filled <= len(members)
    if complete:
        for gone in ("driver", "worker", ""):
            left = {"driver": numbers["driver"], "worker": numbers["worker"], "": numbers[""] - (filled - size)}
            if gone:
                left[gone] = max(0, left[gone] - (filled - size))
            assert left[""] >= size
            assert left["driver"] >= 1
            assert left["worker"] >= 2


def test_no_member_binds_before_every_role_has_its_number() -> None:
    made = Cluster()
    made.set_node(node("n", cpu="64"))
    waiting, released = WaitingMembers(), list[list[str]]()

    for name, role in (("w1", "worker"), ("w2", "worker"), ("x", None), ("d", "driver"), ("w3", "worker")):
        labels = {"job": "j"} | ({"role": role} if role else {})
        made.place(pod(made, name, labels=labels), "n")
        waiting.wait(name, (requirement(made, f"like-{name}", role),), 0.0)
        before = set(waiting)
        waiting.release(made.counters.group_size)
        released.append(sorted(before.difference(waiting)))

    assert released == [[], [], [], ["d", "w1", "w2", "x"], ["w3"]]


def test_the_message_names_the_missing_role() -> None:
    made = Cluster()
    made.set_node(node("n", cpu="64"))
    made.place(pod(made, "w1", labels={"job": "j", "role": "worker"}), "n")
    asked = requirement(made, "w2", "worker")

    state = gang_state(asked, placed=made.counters.group_size, pending=lambda group_of, group: 0)

    assert state.missing == 2
    assert state.sentence() == (
        'gang "default/j": 1 of 3 members has a node, 2 are missing, 0 of 1 with role=driver, 1 of 2 with role=worker'
        " (gang by pod.label.job size 3 with 1 of role=driver, 2 of role=worker)"
    )


def test_a_pod_has_the_first_role_that_fits() -> None:
    made = Cluster()
    text = "gang by pod.label.job size 3 with 1 of role in (driver, leader), 1 of role"

    asked = [requirement(made, "p", role, text=text).role for role in ("leader", "x", None)]
    assert [each and each.text for each in asked] == ["role in (driver, leader)", "role", None]


@pytest.mark.parametrize(
    ("workers", "message"),
    [("7", "the roles need 8 pods, but the size is 3 for this pod"), ("x", "the number of role=worker has no value")],
)
def test_numbers_that_cannot_be_gate_the_pod(workers: str, message: str) -> None:
    made = Cluster()
    text = "gang by pod.label.job size 3 with 1 of role=driver, number(pod.label.workers) of role=worker"
    labels = {"job": "j", "role": "worker", "workers": workers}

    with pytest.raises(ValueError, match=message):
        policy(text).gang_requirements(Frame(pod(made, "p", labels=labels), made, 0.0))
