"""Views of kept results: bounded in number, and in bytes that several of them share."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.footprint import Measured, Shared
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.objects import Pod
from kube_policy_scheduler.cluster.pods import PASSED_ON, Templates


def view(most: int, kept: KeptBytes) -> KeptView[int, str]:
    return KeptView(kept, most=most)


@given(st.lists(st.tuples(st.sampled_from(["get", "set", "pop"]), st.integers(0, 9), st.integers(0, 12))))
def test_it_keeps_what_was_used_last_as_far_as_both_bounds_let_it(steps: list[tuple[str, int, int]]) -> None:
    together = KeptBytes(20)
    kept = view(4, together)
    model: dict[int, str] = {}
    """In order of use."""
    for what, key, size in steps:
        if what == "get":
            assert kept.get(key) == model.get(key)
            if key in model:
                model[key] = model.pop(key)
        elif what == "pop":
            assert kept.pop(key) == model.pop(key, None)
        else:
            kept.set(key, "x" * size)
            model.pop(key, None)
            model[key] = "x" * size
            while len(model) > 1 and (len(model) > 4 or sum(map(len, model.values())) > 20):
                del model[next(iter(model))]
        assert len(kept) == len(model)
        assert together.taken == sum(map(len, model.values()))
        assert dict(kept.items()) == model


def test_one_that_is_too_large_alone_stays_until_the_next_comes() -> None:
    kept = view(4, KeptBytes(20))
    kept.set(1, "x")
    kept.set(2, "x" * 30)
    assert (kept.get(1), kept.get(2)) == (None, "x" * 30)
    kept.set(3, "x")
    assert (kept.get(2), kept.get(3)) == (None, "x")


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["get", "set", "pop"]), st.integers(0, 5))))
def test_of_several_views_the_oldest_result_makes_room(steps: list[tuple[int, str, int]]) -> None:
    together = KeptBytes(30)
    views = [view(100, together) for _ in range(3)]
    model: dict[tuple[int, int], str] = {}
    """In order of use."""
    for number, what, key in steps:
        kept, place = views[number], (number, key)
        if what == "get":
            assert kept.get(key) == model.get(place)
            if place in model:
                model[place] = model.pop(place)
        elif what == "pop":
            assert kept.pop(key) == model.pop(place, None)
        else:
            kept.set(key, "x" * 7)
            model.pop(place, None)
            model[place] = "x" * 7
            while 7 * len(model) > 30:
                del model[next(iter(model))]
        assert {(number, key) for number, kept in enumerate(views) for key, _ in kept.items()} == set(model)
        assert together.taken == 7 * len(model)


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
    assert together.taken == one + 8, "and the place of the part"
    part.text = "x" * 150
    kept.measure(1)
    assert together.taken == one + 8 + 50
    kept.pop(1)
    assert together.taken == one + 50
    kept.pop(2)
    assert together.taken == 0


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


def test_a_view_with_a_name_is_made_once() -> None:
    together = KeptBytes(20)
    made = together.view("texts", lambda kept: view(4, kept))
    assert together.view("texts", lambda kept: view(4, kept)) is made


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
