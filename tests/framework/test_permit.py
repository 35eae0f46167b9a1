"""Permit: which pods bind when a group is complete, and when waiting pods are rejected."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.framework.permit import GangRequirement, Group, Permit


def requirement(key: str, size: int, *, within: float = 60.0) -> GangRequirement:
    return GangRequirement(
        Group("p/gang", "default", "s", key), size, within, group_of=lambda template: None, text="gang"
    )


def slowly_released(pods: dict[str, list[GangRequirement]], uid: str, placed: dict[str, int]) -> set[str]:
    """Return the pods that may bind, by the docstring of `Permit.release`: remove those that cannot until all can."""

    def is_complete(one: GangRequirement, staying: set[str]) -> bool:
        key = one.group.key or ""
        left_out = sum(any(c.group == one.group for c in pods[other]) for other in staying)
        return placed[key] - left_out >= one.size

    if not all(is_complete(one, set()) for one in pods[uid]):
        return set()
    together, ahead = {uid}, [uid]
    while ahead:
        groups = {one.group for one in pods[ahead.pop()]}
        fresh = {
            other for other, requirements in pods.items() if groups & {one.group for one in requirements}
        } - together
        together |= fresh
        ahead += fresh
    staying: set[str] = set()
    while True:
        more = {o for o in together - staying if not all(is_complete(one, staying) for one in pods[o])}
        if not more:
            return together - staying
        staying |= more


@given(
    pods=st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.dictionaries(st.sampled_from("XYZ"), st.integers(2, 5), min_size=1, max_size=2),
        min_size=1,
    ),
    running=st.dictionaries(st.sampled_from("XYZ"), st.integers(0, 3)),
)
def test_exactly_the_pods_that_can_bind_are_released(pods: dict[str, dict[str, int]], running: dict[str, int]) -> None:
    requirements = {
        uid: [requirement(key, size) for key, size in sorted(wanted.items())] for uid, wanted in pods.items()
    }
    placed = {key: running.get(key, 0) + sum(key in wanted for wanted in pods.values()) for key in "XYZ"}
    permit = Permit()
    for uid, wanted in requirements.items():
        permit.wait(uid, tuple(wanted), 0.0)
    last = max(requirements)
    released = permit.release(last, lambda group_of, group: placed[group.key or ""])
    assert set(released) == slowly_released(requirements, last, placed)
    assert set(permit) == requirements.keys() - set(released)


def test_groups_expire_one_by_one_after_changes_to_their_pods() -> None:
    permit = Permit()
    for number, within in enumerate((30.0, 10.0, 20.0)):
        permit.wait(f"p{number}", (requirement(f"g{number}", 2, within=within),), 0.0)
    permit.leave("p1")
    permit.wait("p1", (requirement("g1", 2, within=10.0),), 5.0)  # starts again
    assert permit.next_due() == 15.0
    assert permit.expire(14.9) == {}
    assert list(permit.expire(20.0)) == ["p1", "p2"]
    assert list(permit.expire(30.0)) == ["p0"]
    assert permit.next_due() is None
