"""The ledger: a position for each reader, listeners that hear at once, and silence while something is tried."""

from __future__ import annotations

from kube_policy_scheduler.cluster.events import ClusterEvent
from kube_policy_scheduler.cluster.ledger import LEAST_KEPT, Ledger

E = ClusterEvent


def test_readers_get_what_came_since_their_position() -> None:
    ledger = Ledger()
    ledger.note(E.NODE_ADD)
    before = ledger.epoch
    assert ledger.since(before) == ()
    ledger.note(E.TAKEN)
    ledger.note(E.POD_DELETE)
    assert ledger.epoch == before + 2
    assert list(ledger.since(before) or ()) == [E.TAKEN, E.POD_DELETE]


def test_a_reader_that_lags_too_far_behind_has_to_expect_anything() -> None:
    ledger = Ledger()
    for _ in range(2 * LEAST_KEPT + 1):
        ledger.note(E.POD_ADD)
    assert ledger.since(0) is None
    assert ledger.since(ledger.epoch - 10) == [E.POD_ADD] * 10


def test_listeners_hear_of_what_may_help_and_not_of_what_was_taken() -> None:
    ledger, heard = Ledger(), list[ClusterEvent]()
    ledger.follow(heard.append)
    for event in (E.TAKEN, E.POD_DELETE, E.TAKEN, E.STORAGE):
        ledger.note(event)
    assert heard == [E.POD_DELETE, E.STORAGE]


def test_while_something_is_tried_nothing_is_noted() -> None:
    ledger, heard = Ledger(), list[ClusterEvent]()
    ledger.follow(heard.append)
    assert not ledger.is_silent
    with ledger.silent():
        with ledger.silent():
            ledger.note(E.POD_DELETE)
        assert ledger.is_silent
        ledger.note(E.POD_DELETE)
    assert not ledger.is_silent
    assert (ledger.epoch, heard) == (0, [])
    ledger.note(E.POD_DELETE)
    assert (ledger.epoch, heard) == (1, [E.POD_DELETE])


def test_of_many_changes_together_listeners_hear_once_at_the_end_and_readers_at_once() -> None:
    ledger, heard = Ledger(), list[ClusterEvent]()
    ledger.follow(heard.append)
    with ledger.together():
        for event in (E.POD_DELETE, E.TAKEN, E.POD_DELETE):
            with ledger.together():
                ledger.note(event)
        ledger.note(E.NODE_ADD)
        assert (ledger.epoch, heard) == (4, [])
    assert heard == [E.POD_DELETE, E.NODE_ADD]
    ledger.note(E.POD_DELETE)
    assert heard == [E.POD_DELETE, E.NODE_ADD, E.POD_DELETE]
