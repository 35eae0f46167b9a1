"""Views of kept results: bounded in number, and in bytes that several of them share."""

from __future__ import annotations

from weakref import ref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.footprint import Measured, Shared
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView, Stamped
from kube_policy_scheduler.cluster.objects import Pod
from kube_policy_scheduler.cluster.pods import PASSED_ON, Templates


def view(most: int, kept: KeptBytes) -> KeptView[int, str]:
    return KeptView(kept, most=most)


class Model:
    """Results of some views in the order in which they go: those that were used since they were placed stay."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.kept: dict[tuple[int, int], tuple[str, int, int]] = {}
        """By view and key: the value, when it was used last, and when it was placed."""
        self.requests = 0

    def get(self, view: int, key: int) -> str | None:
        if (view, key) not in self.kept:
            return None
        self.requests += 1
        value, _, placed = self.kept[view, key]
        self.kept[view, key] = value, self.requests, placed
        return value

    def set(self, view: int, key: int, value: str) -> None:
        self.kept.pop((view, key), None)
        if sum(place[0] == view for place in self.kept) >= self.most:
            del self.kept[self.oldest(view)]
        self.requests += 1
        self.kept[view, key] = value, self.requests, self.requests
        while self.taken > self.most_bytes:
            oldest = min((self.oldest(each) for each in {place[0] for place in self.kept}), key=self.used)
            if self.used(oldest) == self.requests:
                break
            del self.kept[oldest]

    def used(self, place: tuple[int, int]) -> int:
        return self.kept[place][1]

    def oldest(self, view: int) -> tuple[int, int]:
        number = sum(place[0] == view for place in self.kept)
        while True:
            place, (value, used, placed) = next(each for each in self.kept.items() if each[0][0] == view)
            if used == placed and (used != self.requests or number == 1):
                return place
            del self.kept[place]
            self.kept[place] = value, used, used

    @property
    def taken(self) -> int:
        return sum(len(value) for value, *_ in self.kept.values())


STEPS = st.lists(
    st.tuples(st.sampled_from(["get", "set", "pop"]), st.integers(0, 2), st.integers(0, 9), st.integers(0, 12))
)


@given(STEPS, st.integers(1, 3))
def test_what_is_kept_stays_within_all_bounds_and_what_is_used_stays_longest(
    steps: list[tuple[str, int, int, int]], number: int
) -> None:
    model, together = Model(4, 30), KeptBytes(30)
    views = [view(4, together) for _ in range(number)]
    for what, place, key, size in steps:
        at = place % number
        if what == "get":
            assert views[at].get(key) == model.get(at, key)
        elif what == "pop":
            assert views[at].pop(key) == model.kept.pop((at, key), (None,))[0]
        else:
            views[at].set(key, "x" * size)
            model.set(at, key, "x" * size)
        found = {(at, key): value for at, kept in enumerate(views) for key, value in kept.items()}
        assert found == {place: value for place, (value, *_) in model.kept.items()}
        assert together.taken == model.taken


def test_what_was_used_since_it_was_added_goes_after_what_was_not() -> None:
    kept = view(3, KeptBytes(20))
    for key in range(3):
        kept.set(key, "x")
    kept.get(0)
    kept.set(3, "x")
    assert [key for key, _ in kept.items()] == [2, 0, 3]
    assert [key in kept for key in range(4)] == [True, False, True, True]


def test_one_that_is_too_large_alone_stays_until_the_next_comes() -> None:
    kept = view(4, KeptBytes(20))
    kept.set(1, "x")
    kept.set(2, "x" * 30)
    assert (kept.get(1), kept.get(2)) == (None, "x" * 30)
    kept.set(3, "x")
    assert (kept.get(2), kept.get(3)) == (None, "x")


class Part(Shared):
    def __init__(self, text: str) -> None:
        self.text = text


class Whole(Measured):
    def __init__(self, *parts: Part) -> None:
        self.parts = parts


def test_what_results_share_counts_once_and_as_long_as_one_of_them_is_kept() -> None:
    together = KeptBytes(1_000)
    kept: KeptView[int, Whole] = KeptView(together, most=10)
    part = Part("x" * 100)
    kept.set(1, Whole(part))
    one = together.taken
    kept.set(2, Whole(part))
    assert together.taken == one + 64 + 8, "and the list with the place of the part"
    part.text = "x" * 150
    kept.measure(1)
    assert together.taken == one + 64 + 8 + 50
    kept.pop(1)
    assert together.taken == one + 50
    kept.pop(2)
    assert together.taken == 0


def test_one_result_under_several_keys_counts_once() -> None:
    together = KeptBytes(1_000)
    kept: KeptView[int, Part] = KeptView(together, most=10, size_of=lambda key, value: 1)
    part = Part("x" * 100)
    for key in range(4):
        kept.set(key, part)
        assert together.taken == 100 + key + 1
    for key in range(4):
        kept.pop(key)
        assert together.taken == (100 + 3 - key if key < 3 else 0)


def test_what_was_not_used_for_a_while_makes_room_for_more() -> None:
    together = KeptBytes(20)
    kept = view(10, together)
    kept.set(1, "x" * 10)
    kept.set(2, "x" * 10)
    assert not together.has_room(5), "both were used just now"
    for _ in range(8):
        kept.get(2)
    assert together.has_room(5)
    assert [key for key, _ in kept.items()] == [2]
    assert not together.has_room(15)


def test_results_of_another_position_are_dropped_together() -> None:
    gone: list[int] = []
    kept: KeptView[int, str] = KeptView(most=10, dropped=lambda key, value: gone.append(key))
    kept.follow(1)
    kept.set(1, "x")
    kept.follow(1)
    assert kept.get(1) == "x"
    kept.follow(2)
    assert (kept.get(1), gone) == (None, [1])


def test_a_result_with_a_stamp_is_made_again_when_that_changes() -> None:
    kept: KeptView[str, Stamped[list[int]]] = KeptView(KeptBytes(1_000), most=2)
    made = [kept.current("a", stamp, lambda: []) for stamp in (1, 1, 2)]
    assert made[0] is made[1]
    assert made[1] is not made[2]
    assert len(kept) == 1


def test_what_bounds_views_does_not_keep_them() -> None:
    together = KeptBytes(20)
    made = view(4, together)
    made.set(1, "x")
    gone = ref(made)
    del made
    assert gone() is None


def pod(name: str, *, image: str, **status: object) -> Pod:
    made = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"containers": [{"name": "c", "image": image}]},
        "status": status,
    }
    return msgspec.convert(made, Pod)


@pytest.mark.parametrize("length", [10, 10_000])
def test_templates_of_pods_that_are_gone_are_kept_up_to_a_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr("kube_policy_scheduler.cluster.pods._RECENT_BYTES", 100_000)
    templates = Templates()
    first = templates.pod(pod("p", image="x" * length)).template
    assert templates.pod(pod("q", image="x" * length)).template is first
    for number in range(40):
        templates.pod(pod(f"p{number}", image=f"{number:04}" + "x" * length))
    assert len(templates) == (41 if length == 10 else 1 + 100_000 // (first.size + 4))
    assert templates.pod(pod("r", image="x" * length)).template is first, "it is in use"


def test_only_conditions_of_pods_that_are_read_are_kept() -> None:
    kinds = ("PodScheduled", "Ready", "DisruptionTarget", "tenants.example/Story", PASSED_ON)
    info = Templates().pod(pod("p", image="i", conditions=[{"type": kind, "message": "m" * 9} for kind in kinds]))
    assert {condition.type for condition in info.conditions} == {"PodScheduled", "DisruptionTarget", PASSED_ON}
