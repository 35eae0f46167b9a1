"""Laws of the versioned store: history replays to the present, and past states can still be read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.embedded.store import ADDED, DELETED, MODIFIED, Change, Collection, Compacted, Key, Store

NAMES = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.lists(st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from(["x", "y"]), NAMES), max_size=40)


def collection(*, history_limit: int = 1000) -> tuple[Store, Collection]:
    store = Store(history_limit=history_limit)
    store.define("things", lambda obj: (obj["metadata"]["name"], obj["metadata"]["namespace"]))
    return store, store.collection("things")


def thing(namespace: str, name: str, **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
    return {"apiVersion": "v1", "kind": "Thing", "metadata": meta, **more}


def play(things: Collection, steps: list[tuple[str, str, str]]) -> None:
    for number, (step, namespace, name) in enumerate(steps):
        if step == "put":
            things.put(thing(namespace, name, number=number))
        elif things.get((namespace, name)) is not None:
            things.remove((namespace, name))


def state(entries: Any) -> dict[tuple[str, str], bytes]:
    return {entry.key: entry.body for entry in entries}


@given(STEPS)
def test_replaying_the_history_gives_the_present(steps: list[tuple[str, str, str]]) -> None:
    _, things = collection()
    play(things, steps)
    replayed: dict[Key, bytes] = {}
    for change in things.changes_from(0, limit=1000):
        if change.type == DELETED:
            del replayed[change.entry.key]
        else:
            assert (change.type == ADDED) == (change.entry.key not in replayed)
            replayed[change.entry.key] = change.entry.body
    assert replayed == state(things.scan())


@given(STEPS)
def test_every_past_state_can_be_read_again(steps: list[tuple[str, str, str]]) -> None:
    store, things = collection()
    states = {store.revision: state(things.scan())}
    for step in steps:
        play(things, [step])
        states[store.revision] = state(things.scan())
    for revision, was in states.items():
        assert state(things.scan_at(revision)) == was
        assert state(things.scan_at(revision, "x")) == {key: body for key, body in was.items() if key[0] == "x"}


@given(STEPS)
def test_a_scan_is_in_key_order_and_goes_on_behind_a_key(steps: list[tuple[str, str, str]]) -> None:
    _, things = collection()
    play(things, steps)
    keys = [entry.key for entry in things.scan()]
    assert keys == sorted(keys)
    for at, key in enumerate(keys):
        assert [entry.key for entry in things.scan(after=key)] == keys[at + 1 :]


@given(STEPS, st.integers(1, 8))
def test_the_history_is_bounded_and_says_so(steps: list[tuple[str, str, str]], limit: int) -> None:
    store, things = collection(history_limit=limit)
    happened: list[Change] = []
    things.observe(happened.append)
    play(things, steps)
    if len(happened) > limit + limit // 4:
        with pytest.raises(Compacted) as refused:
            things.cursor(0)
        assert 0 < refused.value.oldest <= store.revision
    else:
        assert things.changes_from(things.cursor(0), limit=1000) == happened
    assert things.changes_from(things.cursor(store.revision), limit=1000) == []


def test_what_is_behind_the_history_is_refused() -> None:
    _, things = collection()
    first = things.put(thing("x", "a"))
    things.put(thing("x", "b"))
    things.compact()
    with pytest.raises(Compacted):
        things.cursor(first.resource_version)
    with pytest.raises(Compacted):
        list(things.scan_at(first.resource_version))
    with pytest.raises(Compacted):
        things.changes_from(0, limit=1)


def test_an_object_is_stamped_with_its_version_and_its_type_comes_first() -> None:
    _, things = collection()
    entry = things.put(thing("x", "a", spec={"resourceVersion": "1"}))
    assert entry.body.startswith(b'{"apiVersion":"v1","kind":"Thing","metadata":{"name":"a","namespace":"x"')
    assert entry.decode()["metadata"]["resourceVersion"] == str(entry.resource_version)
    moved = entry.body_at(77)
    assert b'"resourceVersion":"77"' in moved
    assert b'"spec":{"resourceVersion":"1"}' in moved


def test_deletions_carry_the_version_they_happened_at() -> None:
    store, things = collection()
    things.put(thing("x", "a"))
    last = things.remove(("x", "a"))
    assert last.resource_version == store.revision
    change = things.changes_from(1, limit=1)[0]
    assert (change.type, change.entry) == (DELETED, last)


def test_changes_wake_and_observers_see_them_in_order() -> None:
    _, things = collection()
    woken: list[int] = []
    observed: list[str] = []

    def wake() -> None:
        woken.append(1)

    things.wake(wake)
    things.observe(lambda change: observed.append(change.type))
    things.put(thing("x", "a"))
    things.put(thing("x", "a"))
    things.forget(wake)
    things.remove(("x", "a"))
    assert observed == [ADDED, MODIFIED, DELETED]
    assert len(woken) == 2
