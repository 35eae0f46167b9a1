"""What people write of workloads and events of a fleet, and what is said of what cannot be read."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.diagnostics import render
from kube_policy_scheduler.documents.yaml_document import DocumentError
from tests.tooling.fleet_simulation.scenarios import fleet

WEB = "workloads: [{name: web, replicas: 2}, {name: web, namespace: shop, kind: Job}, {name: api, count: 2}]"

WORKLOADS = {
    "no list": "pods: []",
    "text instead of a number": "workloads: [{name: web, replicas: many}]",
    "an unknown key": "workloads: [{name: web, decided: 1h}]",
    "an amount": "workloads: [{name: web, cpu: lots}]",
    "a placement": "workloads: [{name: web, placement: {spreadConstraints: 3}}]",
    "a cluster that is not there": "workloads: [{name: web, has: {berlni: 2}}]",
    "the same twice": "workloads: [{name: web}, {name: web}]",
    "times far away": "workloads: [{at: 99999999h}, {name: b, every: 2d, count: 10000}, {name: c, lasts: 9999999d}]",
    "times that are endless": "workloads: [{at: %sh}]" % ("9" * 400),
    "a parameter": "workloads: [{at: '${begin}'}]",
    "too many": "workloads: [{count: 60000}, {name: b, count: 60000}]",
}
EVENTS = {
    "nothing happens": "events: [{at: 1min}]",
    "two things at once": "events: [{at: 1min, lose: berlin, recover: iowa}]",
    "an unknown cluster": "events: [{at: 1min, lose: berlni}]",
    "times far away": "{start: 99999999h, events: [{at: 99999999h, end: api-2}, {at: 1h, lose: iowa, for: 4000d}]}",
    "an unknown region": "events: [{at: 1min, lose: {region: asia}}]",
    "two places": "events: [{at: 1min, lose: {region: eu, zone: a}}]",
    "a cluster that is gone": "events: [{at: 1min, remove: berlin}, {at: 2min, lose: berlin}]",
    "a cluster that is there": "events: [{at: 1min, add: {name: berlin}}]",
    "a change of what is not there": "events: [{at: 1min, change: {name: oslo, price: 3}}]",
    "a taint": "events: [{at: 1min, change: {name: berlin, taints: [x]}}]",
    "an amount": "events: [{at: 1min, add: {name: oslo, cpu: lots}}]",
    "a state that follows from events": "events: [{at: 1min, change: {name: berlin, ready: false}}]",
    "an unknown workload": "events: [{at: 1min, scale: {workload: wbe, replicas: 3}}]",
    "several workloads": "events: [{at: 1min, end: web}]",
    "how long, of what does not end": "events: [{at: 1min, remove: berlin, for: 3min}]",
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_that_cannot_be_read(name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(DocumentError) as error:
        fleet(workloads=WORKLOADS[name])
    assert "\n".join(map(render, error.value.diagnostics)) == snapshot


@pytest.mark.parametrize("name", EVENTS)
def test_events_that_cannot_be_read(name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(DocumentError) as error:
        fleet(workloads=WEB, events=EVENTS[name])
    assert "\n".join(map(render, error.value.diagnostics)) == snapshot


def test_events_name_workloads_in_short_as_long_as_there_is_one() -> None:
    events = fleet(workloads=WEB, events="events: [{at: 1min, end: api-2}, {at: 2min, end: shop/web}]").happens.events
    assert [each.workload for each in events] == ["default/api-2", "shop/web"]


def test_a_loss_with_an_end_is_two_events_in_the_order_of_time() -> None:
    text = "events: [{at: 5min, lose: {provider: aws}, for: 10min}, {at: 7min, lose: [berlin, iowa]}]"
    events = fleet(workloads=WEB, events=text).happens.events
    assert [(each.at, each.action.value, each.clusters) for each in events] == [
        (300.0, "lose", ("frankfurt",)),
        (420.0, "lose", ("berlin", "iowa")),
        (900.0, "recover", ("frankfurt",)),
    ]


def test_the_pace_of_karmada_can_be_said() -> None:
    pace = fleet(workloads=WEB, events="{start: 5s, evict_after: 1min, events: [{at: 1s, end: shop/web}]}").happens.pace
    assert (pace.start, pace.evict_after) == (5.0, 60.0)
