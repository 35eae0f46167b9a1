"""Members of gangs that are decided one by one: which of them need not wait, and whose time is up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.tooling.waiting_members import WaitingMembers


def requirement(key: str, size: int, *, within: float = 60.0) -> GangRequirement:
    return GangRequirement(
        Group("p/gang", "default", "s", key), size, within, group_of=lambda template: None, text="gang"
    )


@given(
    pods=st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.dictionaries(st.sampled_from("XYZ"), st.integers(2, 5), min_size=1, max_size=2),
        min_size=1,
    ),
    running=st.dictionaries(st.sampled_from("XYZ"), st.integers(0, 3)),
)
def test_the_most_pods_are_released_whose_gangs_are_complete_with_them(
    pods: dict[str, dict[str, int]], running: dict[str, int]
) -> None:
    members = WaitingMembers()
    for uid, wanted in pods.items():
        members.wait(uid, tuple(requirement(key, size) for key, size in wanted.items()), 0.0)
    placed = {key: running.get(key, 0) + sum(key in wanted for wanted in pods.values()) for key in "XYZ"}
    members.release(lambda group_of, group: placed[group.key or ""])

    def numbers(uids: set[str]) -> dict[str, int]:
        return {key: running.get(key, 0) + sum(key in pods[uid] for uid in uids) for key in "XYZ"}

    released, staying = pods.keys() - set(members), set(members)
    for uid in released:
        assert all(numbers(set(released))[key] >= size for key, size in pods[uid].items())
    for number in range(1, 2 ** len(staying)):
        more = {uid for at, uid in enumerate(sorted(staying)) if number >> at & 1}
        counts = numbers(set(released) | more)
        assert not all(counts[key] >= size for uid in more for key, size in pods[uid].items()), "they could go, too"


def test_groups_expire_one_by_one_after_changes_to_their_pods() -> None:
    members = WaitingMembers()
    for number, within in enumerate((30.0, 10.0, 20.0)):
        members.wait(f"p{number}", (requirement(f"g{number}", 2, within=within),), 0.0)
    members.leave("p1")
    members.wait("p1", (requirement("g1", 2, within=10.0),), 5.0)  # starts again
    assert members.expire(14.9) == []
    assert sorted(members.expire(20.0)) == ["p1", "p2"]
    assert members.expire(30.0) == ["p0"]
    assert list(members) == []
